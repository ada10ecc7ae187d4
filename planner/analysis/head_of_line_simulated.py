"""Head-of-line blocking, simulated: short prompts and a long one under each order, while the long one waits and once it runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from planner.analysis.case import Case
from planner.errors import InputError
from planner.simulator.cluster import EngineSpec, run_engine
from planner.simulator.inputs import RequestTable
from planner.simulator.job import Traits
from planner.simulator.policies import Discipline

Enforced = Literal["by itself", "as a priority", "not at all"]
"""How vLLM serves in an order: with a setting of its own, by --scheduling-policy priority when whoever sends the request states its
rank, or not at all."""

_BEHIND_S = 1e-3  # the long prompt's first step has begun and none has ended


@dataclass(frozen=True, slots=True)
class Burst:
    """A long prompt and short ones.

    long_tokens, short_tokens : prompts [token]; shorts : how many short ones [request]; output_tokens : of each request [token]
    threshold_tokens : most prompt tokens of one request in a step, where an order cuts chunks [token]
    """

    long_tokens: int
    short_tokens: int
    shorts: int
    output_tokens: int
    threshold_tokens: int


class BurstOrder(NamedTuple):
    """An order of service.

    policy : a name in POLICIES; enforced : how vLLM does it; cut : chunks of one prompt stay below the threshold
    """

    name: str
    policy: str
    enforced: Enforced
    cut: bool = False


FIRST_COME = "First come, first served"
SHORTEST_PROMPT = "Shortest prompt first"
FEEDBACK = "Multi-level feedback"
ORDERS = (
    BurstOrder(FIRST_COME, "fcfs", "by itself"),
    BurstOrder("First come, long prompts cut", "fcfs", "by itself", cut=True),
    BurstOrder("Priority: short ones first", "priority", "by itself"),
    BurstOrder(SHORTEST_PROMPT, "shortest-prompt", "as a priority"),
    BurstOrder("Shortest predicted job first", "shortest-predicted", "as a priority"),
    BurstOrder(FEEDBACK, "multi-level-feedback", "not at all"),
)


@dataclass(frozen=True, slots=True)
class BurstRun:
    """One order's run.

    running : the short ones come just after the long one's first step has begun; else all wait together
    long_s, short_s : TTFT of the long prompt and of each short one [s]
    """

    order: BurstOrder
    running: bool
    long_s: float
    short_s: tuple[float, ...]

    @property
    def short_mean_s(self) -> float:
        """Mean TTFT of the short prompts [s]."""
        return float(np.mean(self.short_s))

    @property
    def mean_s(self) -> float:
        """Mean TTFT of all [s]."""
        return float(np.mean((self.long_s, *self.short_s)))


def simulated_bursts(case: Case, burst: Burst) -> Sequence[BurstRun]:
    """Return what the case's engine makes of a burst under every order, with the long prompt still waiting and already running.

    Raises InputError where the engine can't hold one of the requests.
    """
    return [simulated_burst(case, burst, order, running=running) for running in (False, True) for order in ORDERS]


def simulated_burst(case: Case, burst: Burst, order: BurstOrder, *, running: bool) -> BurstRun:
    """Return what the case's engine makes of a burst under one order."""
    count = 1 + burst.shorts
    behind_s = np.full(burst.shorts, _BEHIND_S if running else 0.0)
    requests = RequestTable(
        np.concatenate([[0.0], behind_s]),
        np.array([burst.long_tokens] + [burst.short_tokens] * burst.shorts, np.int64),
        np.full(count, burst.output_tokens, np.int64),
    )
    traits = Traits(priority=np.array([1] + [0] * burst.shorts, np.int64))
    limits = case.limits._replace(long_prefill_token_threshold=burst.threshold_tokens if order.cut else 0)
    run = run_engine(EngineSpec(limits, case.coefficients, Discipline(order.policy)), requests, traits)
    if not run.served.all():
        fault = int(np.argmin(run.served))
        raise InputError(
            "Prompt tokens",
            int(requests.prompt_tokens[fault]),
            f"with {burst.output_tokens} output tokens must fit the engine's KV cache of {case.kv_tokens} tokens",
            "Shorten the prompt",
        )
    ttft_s = run.ttft_s + case.request_s
    return BurstRun(order, running, float(ttft_s[0]), tuple(ttft_s[1:].tolist()))

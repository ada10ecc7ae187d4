"""Who is served first: the scheduling policies, each a function and one entry in a table.

A policy ranks jobs, lowest first. Jobs enter the engine in that order, and where a policy says so the engine preempts the job that
ranks last instead of the one admitted last. vLLM itself has two of them; the others are what-ifs and are marked so.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from planner.errors import InputError
from planner.simulator.job import Job
from planner.simulator.limits import EngineLimits


class ClassLimit(NamedTuple):
    """What the requests of one class may take of an engine; None sets no bound.

    max_kv_tokens : KV that the class may hold, rounded down to whole blocks [token]
    prefill_share : share of max_num_batched_tokens that the class's prefill chunks may take in one step [1]
    """

    max_kv_tokens: int | None = None
    prefill_share: float | None = None


@dataclass(frozen=True, slots=True)
class Discipline:
    """A policy with its parameters, and the limits of each class.

    policy : a name in POLICIES
    prompt_weight, output_weight : cost of a prompt token and of an output token, in any common unit. 1 and 2 are those of the
        virtual token counter's authors (Sheng et al., OSDI 2024); the step model gives a deployment's own
    request_weight : cost of a request whatever its length, in the same unit; alone it makes tenants take turns by requests
    tenant_weights : share that each tenant is owed, by tenant; a tenant beyond the end has 1
    lift : a tenant that comes back from idleness starts level with the others; without it, idle time banks credit
    level_costs : cost at which a job falls to the next level of multi-level feedback, rising. Each level holds four times the
        one above, in the manner of FastServe (Wu et al., 2023), assumed
    ageing_s : a request that has waited so long goes before all that have not, first come first; None: no bound [s]
    class_limits : by class_index; classes beyond the end have no limit
    """

    policy: str = "fcfs"
    prompt_weight: float = 1.0
    output_weight: float = 2.0
    request_weight: float = 0.0
    tenant_weights: tuple[float, ...] = ()
    lift: bool = True
    level_costs: tuple[float, ...] = (512.0, 2048.0, 8192.0)
    ageing_s: float | None = None
    class_limits: tuple[ClassLimit, ...] = ()

    def cost(self, prompt_tokens: float, output_tokens: float) -> float:
        """Return the weighted cost of tokens, in the weights' unit."""
        return self.prompt_weight * prompt_tokens + self.output_weight * output_tokens

    def class_limit(self, class_index: int) -> ClassLimit:
        """Return what a class may take."""
        return self.class_limits[class_index] if class_index < len(self.class_limits) else _NO_LIMIT


_NO_LIMIT = ClassLimit()


@dataclass(slots=True)
class Account:
    """What one tenant has had, and the credit that was taken from it.

    requests : admitted [request]; prompt_tokens : of them; output_tokens : that came out [token]
    lift : added to the counter when the tenant came back from idleness, in the weights' unit
    waiting : requests in the waiting queue [request]
    """

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    lift: float = 0.0
    waiting: int = 0


@dataclass(slots=True)
class Ledger:
    """The service that each tenant has had: the virtual token counters of Sheng et al. (OSDI 2024), algorithm 2."""

    discipline: Discipline
    accounts: defaultdict[int, Account] = field(default_factory=lambda: defaultdict(Account))
    last_left: int | None = None

    def counter(self, tenant: int) -> float:
        """Return a tenant's weighted service and lift, divided by the share that it is owed."""
        account = self.accounts[tenant]
        weights = self.discipline.tenant_weights
        cost = self.discipline.cost(account.prompt_tokens, account.output_tokens)
        cost += self.discipline.request_weight * account.requests
        return account.lift + cost / (weights[tenant] if tenant < len(weights) else 1.0)

    def enter(self, tenant: int, *, back: bool) -> None:
        """Note that a request joins the waiting queue; back : it was preempted, so that its tenant was not idle.

        A tenant without a waiting request is lifted to the lowest counter among those with one, or to that of the tenant that left
        the queue last, so that idle time banks no credit.
        """
        account = self.accounts[tenant]
        if self.discipline.lift and account.waiting == 0 and not back:
            others = [self.counter(other) for other, theirs in self.accounts.items() if theirs.waiting > 0]
            if others:
                account.lift += max(0.0, min(others) - self.counter(tenant))
            elif self.last_left is not None:
                account.lift += max(0.0, self.counter(self.last_left) - self.counter(tenant))
        account.waiting += 1

    def leave(self, tenant: int) -> None:
        """Note that a request leaves the waiting queue."""
        self.accounts[tenant].waiting -= 1
        self.last_left = tenant


class Policy(NamedTuple):
    """A scheduling policy.

    rank : number of a job, lowest first; ties go by arrival
    in_vllm : vLLM's --scheduling-policy has it
    description : one line for a menu
    by_tenant : rank depends on the job's tenant alone and moves while the job waits
    victim_ranks_last : short of KV blocks, the engine preempts the job that ranks last, not the one admitted last
    displaces : a waiting job takes the place of a running one that ranks after it
    """

    rank: Callable[[Job, Ledger], float]
    in_vllm: bool
    description: str
    by_tenant: bool = False
    victim_ranks_last: bool = True
    displaces: bool = False


def first_come(_job: Job, _ledger: Ledger) -> float:
    """Rank all alike, so that arrival decides."""
    return 0.0


def by_priority(job: Job, _ledger: Ledger) -> float:
    """Rank by the priority that the client gives."""
    return float(job.priority)


def shortest_prompt(job: Job, _ledger: Ledger) -> float:
    """Rank by the tokens of the prompt."""
    return float(job.prompt_tokens)


def shortest_predicted(job: Job, ledger: Ledger) -> float:
    """Rank by the predicted cost of the whole request."""
    return ledger.discipline.cost(job.prompt_tokens, job.predicted_output_tokens)


def feedback_level(job: Job, ledger: Ledger) -> float:
    """Rank by level: the cost of the prompt, known on arrival, and of the outputs so far."""
    return float(bisect_right(ledger.discipline.level_costs, ledger.discipline.cost(job.prompt_tokens, job.outputs)))


def least_served_tenant(job: Job, ledger: Ledger) -> float:
    """Rank by the service that the job's tenant has had."""
    return ledger.counter(job.tenant)


POLICIES: dict[str, Policy] = {
    "fcfs": Policy(first_come, in_vllm=True, description="First come, first served", victim_ranks_last=False),
    "priority": Policy(by_priority, in_vllm=True, description="Lowest priority number first, then by arrival"),
    "shortest-prompt": Policy(shortest_prompt, in_vllm=False, description="Shortest prompt first"),
    "shortest-predicted": Policy(
        shortest_predicted, in_vllm=False, description="Smallest predicted job first: prompt and predicted output, weighted"
    ),
    "multi-level-feedback": Policy(
        feedback_level,
        in_vllm=False,
        description="Jobs sink level by level as they consume tokens; a job of a higher level takes the place of a lower one",
        displaces=True,
    ),
    "virtual-token-counter": Policy(
        least_served_tenant,
        in_vllm=False,
        description="The tenant that has had the fewest weighted tokens first; idle time banks no credit",
        by_tenant=True,
    ),
}


def check_discipline(discipline: Discipline, limits: EngineLimits) -> Policy:
    """Return the policy that is named, or raise InputError for parameters without sense on an engine of these limits."""
    if discipline.policy not in POLICIES:
        raise InputError("policy", discipline.policy, f"must be one of {', '.join(POLICIES)}", "Choose one of them")
    for name in ("prompt_weight", "output_weight", "request_weight"):
        weight = getattr(discipline, name)
        if not 0.0 <= weight < float("inf"):
            raise InputError(name, weight, "must be finite and at least 0", "Give the cost of one")
    for tenant, weight in enumerate(discipline.tenant_weights):
        if not 0.0 < weight < float("inf"):
            raise InputError(f"tenant_weights[{tenant}]", weight, "must be finite and above 0", "Give the tenant's share")
    costs = discipline.level_costs
    if not costs or any(not 0.0 < cost < float("inf") for cost in costs) or any(b <= a for a, b in pairwise(costs)):
        raise InputError("level_costs", costs, "must be finite, above 0 and rising", "Give the cost that each level holds")
    if discipline.ageing_s is not None and not 0.0 <= discipline.ageing_s < float("inf"):
        raise InputError("ageing_s", discipline.ageing_s, "must be finite and at least 0", "Give seconds, or None for no bound")
    for index, limit in enumerate(discipline.class_limits):
        _check_class_limit(index, limit, limits)
    return POLICIES[discipline.policy]


def _check_class_limit(index: int, limit: ClassLimit, limits: EngineLimits) -> None:
    if limit.max_kv_tokens is not None and limit.max_kv_tokens < limits.block_size:
        raise InputError(
            f"class_limits[{index}].max_kv_tokens",
            limit.max_kv_tokens,
            f"must hold at least one block ({limits.block_size} tokens)",
            "Raise it, or leave it unset for no bound",
        )
    share = limit.prefill_share
    if share is not None and not (0.0 < share <= 1.0 and share * limits.max_num_batched_tokens >= 1.0):
        raise InputError(
            f"class_limits[{index}].prefill_share",
            share,
            "must be above 0, at most 1, and give at least one token of the step's budget",
            "Raise it, or leave it unset for no bound",
        )

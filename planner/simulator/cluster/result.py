"""What a simulated cluster returns."""

from dataclasses import dataclass
from enum import IntEnum
from typing import cast

import numpy as np
import numpy.typing as npt

from planner.simulator.engine import EngineTotals
from planner.simulator.metrics import Metric, values_s
from planner.simulator.result import SimulationResult
from planner.simulator.verdict import Judgement, judge

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


class Outcome(IntEnum):
    """What became of a request.

    SERVED : its last token came; REFUSED : no engine could hold it; REJECTED : by the admission hook
    UNFINISHED : the run was stopped because engines preempted without end
    EXPIRED : dropped because it had waited to the deadline without a token being computed
    """

    SERVED = 0
    REFUSED = 1
    REJECTED = 2
    UNFINISHED = 3
    EXPIRED = 4


@dataclass(frozen=True, slots=True, eq=False)
class ReplicaResult:
    """One replica's run.

    pool, index : where it is; totals : sums over its steps
    recomputed_tokens : lost to preemption and computed again; wasted_rows : computed after a stop token [token]
    peak_class_blocks : most KV blocks that each class held, where the engine counts them [block]
    """

    pool: str
    index: int
    totals: EngineTotals
    recomputed_tokens: int
    wasted_rows: int
    peak_class_blocks: dict[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class ClusterResult:
    """A cluster's run over a list of requests; arrays follow the caller's order, NaN where a request wasn't served.

    arrival_s, prompt_tokens, output_tokens, class_index, tenant : as asked; outputs cut at max_model_len
    outcome : of `Outcome`
    first_scheduled_s, first_token_s, finish_s : absolute times [s]; the finish of what was stopped is NaN
    transfer_s : from the end of prefill to the KV's arrival in the decode pool; 0 without hand-over [s]
    pool, replica : position of the pool in the cluster, and of the replica in it, that finished the request; -1 where none did
    preemptions, cached_tokens : of each request; found in the prefix cache at first admission
    mean_in_system : requests inside the cluster, over the time from 0 to the last token, counted by events [request]
    makespan_s : from time 0 to the last token [s]
    judgement : verdict on the cluster as a whole, over the requests that were served
    """

    arrival_s: Floats
    prompt_tokens: Ints
    output_tokens: Ints
    class_index: Ints
    tenant: Ints
    outcome: Ints
    first_scheduled_s: Floats
    first_token_s: Floats
    finish_s: Floats
    transfer_s: Floats
    pool: Ints
    replica: Ints
    preemptions: Ints
    cached_tokens: Ints
    replicas: tuple[ReplicaResult, ...]
    mean_in_system: float
    makespan_s: float
    judgement: Judgement

    @property
    def served(self) -> Mask:
        """Requests whose last token came."""
        return np.equal(self.outcome, Outcome.SERVED)

    @property
    def rejected(self) -> Mask:
        """Requests that were not served, for whatever reason."""
        return np.not_equal(self.outcome, Outcome.SERVED)

    @property
    def ttft_s(self) -> Floats:
        """Time to first token of each request [s]."""
        return self._metric_s("ttft")

    @property
    def tpot_s(self) -> Floats:
        """Time per output token of each request [s]; NaN for one token."""
        return self._metric_s("tpot")

    @property
    def e2e_s(self) -> Floats:
        """Time from arrival to the last token of each request [s]."""
        return self._metric_s("e2e")

    @property
    def queue_s(self) -> Floats:
        """Time from arrival to the first tokens scheduled of each request [s]."""
        return self._metric_s("queue")

    def _metric_s(self, metric: Metric) -> Floats:
        """Return a metric as it is defined for one engine; its definition reads only columns that a cluster's result has too."""
        return values_s(cast("SimulationResult", self), metric)

    def of_class(self, class_index: int) -> Mask:
        """Return the served requests of one class."""
        of_class: Mask = self.served & np.equal(self.class_index, class_index)
        return of_class

    def count(self, outcome: Outcome) -> int:
        """Return how many requests had an outcome."""
        return int((self.outcome == outcome).sum())


def judge_cluster(arrival_s: Floats, finish_s: Floats, waiting_share: float, *, stopped: bool) -> Judgement:
    """Return the saturation verdict of a cluster's run.

    arrival_s, finish_s : of the served requests, in any order [s]
    waiting_share : share of the engines' busy time in which a request waited for a place [1]
    stopped : an engine preempted without end
    """
    if stopped:
        return Judgement("overloaded", "an engine preempted again and again and was stopped")
    order = np.argsort(arrival_s, kind="stable")
    return judge(arrival_s[order], finish_s[order], waiting_share)

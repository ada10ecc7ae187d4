"""Whether traffic has drifted from what was planned for: lengths, arrivals and prefix reuse, each with a test and an effect.

With thousands of requests a test finds differences that matter to nobody, so that a drift is judged by its effect: on the GPU time
of a request here, on the replicas that the load needs in `planner.drift_check`.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.stats import ks_2samp

from planner.analysis.case import Case
from planner.analysis.steps import require_positive
from planner.errors import InputError
from planner.token_costs import token_costs_s
from planner.workloads import RowsLengths, Workload, load_trace, prefix_hit_rate, running_context_mean

Floats = npt.NDArray[np.float64]
SIGNIFICANT = 0.01
NOTABLE_SHARE = 0.05
SAMPLE = 20_000
_LEAST_ROWS = 50


class Shift(NamedTuple):
    """One figure of the traffic, then and now.

    planned, seen : its value [in `unit`]
    distance : largest difference of the two distributions (Kolmogorov and Smirnov's D) [1]; None where a figure has no distribution
    p_value : probability of such a distance between samples of the same traffic [1]
    """

    figure: str
    unit: str
    planned: float
    seen: float
    distance: float | None
    p_value: float | None

    @property
    def change(self) -> float | None:
        """Relative change [1]; None where nothing was planned."""
        return None if self.planned == 0.0 else self.seen / self.planned - 1.0

    @property
    def verdict(self) -> Literal["same", "small", "drifted"]:
        """Same: equal, or the test finds nothing. Small: it does, within 5 %. Drifted: it does, and by more.

        A figure without a test goes by its change alone.
        """
        if self.planned == self.seen or (self.p_value is not None and self.p_value >= SIGNIFICANT):
            return "same"
        change = self.change
        return "small" if change is not None and abs(change) < NOTABLE_SHARE else "drifted"


@dataclass(frozen=True, slots=True, eq=False)
class TrafficSample:
    """Requests of some traffic.

    prompt_tokens, output_tokens : of each [token]
    gaps : between arrivals, in multiples of their mean [1]; None where times are unknown
    reuse : share of prompt tokens seen before [1]; None where the content of prompts is unknown
    """

    name: str
    prompt_tokens: Floats
    output_tokens: Floats
    gaps: Floats | None
    reuse: float | None


def sample_of(workload: Workload, seed: int, count: int = SAMPLE) -> TrafficSample:
    """Return a sample of a workload: its lengths, its gaps between arrivals, and its reuse where it is known.

    count : requests, fewer where fewer were recorded: rows drawn again and again would prove differences that are chance
    """
    if isinstance(workload.lengths, RowsLengths):
        count = min(count, len(workload.lengths.rows()[0]))
    drawn = workload.sample_requests(count, 1.0, seed)
    gaps = np.diff(drawn.arrival_s)
    mean = float(gaps.mean()) if len(gaps) else 0.0
    return TrafficSample(
        workload.name,
        drawn.prompt_tokens.astype(np.float64),
        drawn.output_tokens.astype(np.float64),
        gaps / mean if mean > 0.0 else None,
        _reuse(workload),
    )


def shifts(planned: TrafficSample, seen: TrafficSample) -> tuple[Shift, ...]:
    """Return what has shifted between two samples of at least 50 requests, lengths first."""
    for sample in (planned, seen):
        if len(sample.prompt_tokens) < _LEAST_ROWS:
            rows = len(sample.prompt_tokens)
            raise InputError("traffic", rows, f"must hold at least {_LEAST_ROWS} requests", "Record for longer")
    found = [
        *_length_shifts("Prompt", planned.prompt_tokens, seen.prompt_tokens),
        *_length_shifts("Output", planned.output_tokens, seen.output_tokens),
    ]
    if planned.gaps is not None and seen.gaps is not None:
        test = ks_2samp(planned.gaps, seen.gaps)
        found.append(_shift("Burstiness: CV of the gaps between arrivals", "", _cv(planned.gaps), _cv(seen.gaps), test))
    if planned.reuse is not None and seen.reuse is not None:
        found.append(Shift("Prompt tokens seen before", "%", 100.0 * planned.reuse, 100.0 * seen.reuse, None, None))
    return tuple(found)


class Work(NamedTuple):
    """GPU time of a mean request at the case's planned batch.

    planned_s, seen_s : of the planned and of the seen traffic [s]
    """

    planned_s: float
    seen_s: float

    @property
    def ratio(self) -> float:
        """Seen ÷ planned: what the load grows by at an unchanged request rate [1]."""
        return self.seen_s / self.planned_s


def work_shift(case: Case, planned: TrafficSample, seen: TrafficSample, running: float) -> Work:
    """Return the GPU time of a mean request then and now; running : sequences of the usual batch [seq], above 0.

    The sum over a request of what each of its tokens costs at the usual batch: prompt tokens with their own attention, output
    tokens at the mean context of their request. A rate of requests times this is the share of the GPU that they take.
    """
    require_positive("running", running, "sequences")
    return Work(_request_s(case, planned, running), _request_s(case, seen, running))


def _request_s(case: Case, sample: TrafficSample, running: float) -> float:
    output = sample.output_tokens
    context = running_context_mean(sample.prompt_tokens, output)
    square_mean = float((sample.prompt_tokens**2).mean() / sample.prompt_tokens.mean())
    prompt_s, output_s = token_costs_s(case.coefficients, max(running, 1.0), context, prompt_tokens=square_mean)
    return float(sample.prompt_tokens.mean()) * prompt_s + float(output.mean()) * output_s


def _length_shifts(side: str, planned: Floats, seen: Floats) -> tuple[Shift, Shift]:
    test = ks_2samp(planned, seen)
    return (
        _shift(f"{side} tokens, mean", "tokens", float(planned.mean()), float(seen.mean()), test),
        _shift(f"{side} tokens, p99", "tokens", float(np.percentile(planned, 99)), float(np.percentile(seen, 99)), test),
    )


def _shift(figure: str, unit: str, planned: float, seen: float, test: object) -> Shift:
    return Shift(figure, unit, planned, seen, float(getattr(test, "statistic", 0.0)), float(getattr(test, "pvalue", 1.0)))


def _cv(gaps: Floats) -> float:
    return float(gaps.std() / gaps.mean())


def _reuse(workload: Workload) -> float | None:
    """Return the share of prompt tokens that came before in the workload's own trace; None where nobody recorded it."""
    if workload.prefix_hits is not None:
        return workload.prefix_hits.unbounded_hit_rate
    if not isinstance(workload.lengths, RowsLengths):
        return None
    trace = load_trace(workload.lengths.trace)
    if trace.block_hashes is None:
        return None
    return prefix_hit_rate(trace.block_hashes, trace.prompt_tokens, None)

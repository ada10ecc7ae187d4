"""A spike, simulated: the same clients before each rule at the door, and each kind of client before one rule."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from planner.analysis.case import Case
from planner.analysis.overload import Spike
from planner.analysis.predictor import Aims, door_bounds, forecast_of
from planner.analysis.steps import require_positive
from planner.errors import InputError
from planner.simulator import Metric, meets, token_gaps_s
from planner.simulator.clients import Clients, DoorRule, Fate, Retry, Rules, Tries, simulate_clients
from planner.token_costs import token_costs_s
from planner.workloads import Requests

Floats = npt.NDArray[np.float64]
Masks = npt.NDArray[np.bool_]
RuleName = Literal["no bound", "requests", "tokens", "deadline", "predicted"]
RULE_NAMES: tuple[RuleName, ...] = ("no bound", "requests", "tokens", "deadline", "predicted")
STORM_RULES: tuple[RuleName, ...] = ("no bound", "requests")
RETRIES: tuple[Retry, ...] = ("none", "fixed", "exponential", "as told")
DELAY_S = 1.0
MOST_TRIES = 4
MOST_REQUESTS = 24_000
_LEAD_SHARE = 0.5
_LEAST_TAIL_S = 60.0
_TAIL_DRAINS = 1.6
_MOST_TAILS = 4.0
_MOST_BINS = 72
_LEAST_BINS = 24
_PER_BIN = 20
_WINDOW = 25
_RECOVERED = 0.9


@dataclass(frozen=True, slots=True)
class SpikeSetting:
    """What happens, and what is asked for.

    spike : loads as shares of capacity_rps, the rate at which requests leave a full engine [request/s]
    aims : of every request; patience_s : a client without its first token gives up after so long [s]
    """

    spike: Spike
    capacity_rps: float
    aims: Aims
    patience_s: float

    @property
    def lead_s(self) -> float:
        """Usual load before the spike [s]."""
        return _LEAD_SHARE * self.spike.duration_s

    @property
    def tail_s(self) -> float:
        """Usual load after it: what the backlog takes to drain and more, at most four times the spike's length and a minute [s]."""
        load, base = self.spike.base_load * self.spike.factor, self.spike.base_load
        most_s = _MOST_TAILS * self.spike.duration_s + _LEAST_TAIL_S
        if base >= 1.0:
            return most_s
        drain_s = max(load - 1.0, 0.0) * self.spike.duration_s / (1.0 - base)
        return min(max(_TAIL_DRAINS * drain_s, _LEAST_TAIL_S, self.spike.duration_s), most_s)

    @property
    def ends_s(self) -> float:
        """When the last request is first sent [s]."""
        return self.lead_s + self.spike.duration_s + self.tail_s

    @property
    def spike_end_s(self) -> float:
        """When the load is usual again [s]."""
        return self.lead_s + self.spike.duration_s


def spike_requests(case: Case, setting: SpikeSetting) -> Requests:
    """Return the case's requests under the spike: the workload's own arrivals, closer together while it lasts.

    Raises InputError where there would be more than 24,000.
    """
    spike = setting.spike
    for field, value in (("capacity", setting.capacity_rps), *zip(spike._fields, spike, strict=True)):
        require_positive(field, value, "of its unit")
    base_rps = spike.base_load * setting.capacity_rps
    knots_s = np.array([0.0, setting.lead_s, setting.spike_end_s, setting.ends_s])
    rates = np.array([base_rps, base_rps * spike.factor, base_rps])
    expected = np.concatenate([[0.0], np.cumsum(rates * np.diff(knots_s))])
    count = int(expected[-1])
    if not 1 <= count <= MOST_REQUESTS:
        bound = f"must make from 1 to {MOST_REQUESTS:,} requests"
        raise InputError("spike", count, bound, "Take a shorter or smaller one" if count else "Take a longer one")
    drawn = case.requests(count, 1.0)
    kept = int((drawn.arrival_s <= expected[-1]).sum())
    return replace(drawn.take(np.arange(kept)), arrival_s=np.interp(drawn.arrival_s[:kept], expected, knots_s))


class Asked(NamedTuple):
    """One run to make."""

    rule: RuleName
    retry: Retry


def rules_of(case: Case, setting: SpikeSetting, wanted: Asked) -> Rules:
    """Return a rule at the door with the bounds that the targets give."""
    if wanted.rule == "no bound":
        return Rules()
    if wanted.rule == "deadline":
        return Rules(deadline_s=setting.aims.ttft_s - case.request_s)
    bounds, tells = door_bounds(case, setting.aims), wanted.retry == "as told"
    forecast = forecast_of(case, setting.aims) if tells or wanted.rule == "predicted" else None
    bound = {"requests": bounds.unfinished, "tokens": bounds.waiting_prompt_tokens, "predicted": None}[wanted.rule]
    return Rules(DoorRule(wanted.rule, bound, forecast))


@dataclass(frozen=True, slots=True, eq=False)
class SpikeRun:
    """What became of a spike under one rule with one kind of client.

    at_s : start of each bin of time, from the spike's start [s]; good_rps : answers within the targets, by when they ended, and
        tries_rps : requests sent, first and later tries, in each bin [request/s]; dead_share : of the GPU time of the answers that
        ended in each bin, what went to clients who had given up [1]
    good_in_spike, good_after : share of the requests first sent in and after the spike that were answered within the targets
        [1]; None where none was sent
    dead : share of all GPU time that went to clients who had given up [1]
    turned_away : share of the requests that no try of was ever let in or kept [1]
    tries : sent for each request [1]; longest_wait_s : of an answer for its first token [s]
    recovery_s : from the spike's end until nine of ten requests are good again [s]; None: not within the run
    """

    rule: RuleName
    retry: Retry
    at_s: Floats
    good_rps: Floats
    tries_rps: Floats
    dead_share: Floats
    good_in_spike: float | None
    good_after: float | None
    dead: float
    turned_away: float
    tries: float
    longest_wait_s: float
    recovery_s: float | None
    requests: int


def spike_runs(
    case: Case, setting: SpikeSetting, wanted: Sequence[Asked], tell: Callable[[str, float], None] | None = None
) -> list[SpikeRun]:
    """Return the runs that are wanted, on the same requests; tell : gets progress."""
    requests = spike_requests(case, setting)
    runs = []
    for index, one in enumerate(wanted):
        if tell is not None:
            tell(f"The same spike, run {index + 1} of {len(wanted)}", index / len(wanted))
        runs.append(spike_run(case, setting, requests, one))
    return runs


def storm_runs(
    case: Case, setting: SpikeSetting, known: Sequence[SpikeRun], tell: Callable[[str, float], None] | None = None
) -> list[SpikeRun]:
    """Return each kind of client before no bound and before one on requests.

    known : runs of this spike, which aren't made again
    """
    wanted = [Asked(rule, retry) for rule in STORM_RULES for retry in RETRIES]
    made = {Asked(run.rule, run.retry): run for run in known}
    missing = [one for one in wanted if one not in made]
    made |= dict(zip(missing, spike_runs(case, setting, missing, tell), strict=True))
    return [made[one] for one in wanted]


def spike_run(case: Case, setting: SpikeSetting, requests: Requests, wanted: Asked) -> SpikeRun:
    """Return what becomes of the requests under one rule with one kind of client."""
    clients = Clients(wanted.retry, DELAY_S, MOST_TRIES, max(setting.patience_s - case.request_s, 1e-3))
    rules = rules_of(case, setting, wanted)
    tries = simulate_clients(requests, (case.limits, case.coefficients), rules, clients, np.random.default_rng([case.seed, 15]))
    return _measured(case, setting, requests, wanted, tries)


def good_tries(case: Case, aims: Aims, tries: Tries) -> Masks:
    """Return which tries were answered within both targets, each from when it was sent."""
    values: dict[Metric, Floats] = {
        "ttft": tries.first_token_s - tries.sent_s + case.request_s,
        "tpot": token_gaps_s(tries.first_token_s, tries.finish_s, tries.output_tokens),
    }
    return meets(values, np.equal(tries.fate, Fate.SERVED), aims.targets)


def _measured(case: Case, setting: SpikeSetting, requests: Requests, wanted: Asked, tries: Tries) -> SpikeRun:
    good = good_tries(case, setting.aims, tries) & ~tries.given_up
    served = tries.fate == Fate.SERVED
    answered = np.zeros(len(requests), np.bool_)
    answered[tries.request[good]] = True
    let_in = np.zeros(len(requests), np.bool_)
    let_in[tries.request[served]] = True
    sent_s = requests.arrival_s
    in_spike = (sent_s >= setting.lead_s) & (sent_s < setting.spike_end_s)
    cost_s = _gpu_s(case, tries)
    dead_s = np.where(tries.given_up, cost_s, 0.0)
    edges_s = np.linspace(0.0, setting.ends_s, int(np.clip(len(requests) // _PER_BIN, _LEAST_BINS, _MOST_BINS)) + 1)
    width_s = float(edges_s[1])

    def over_time(at_s: Floats, weight: Floats) -> Floats:
        return np.histogram(at_s, edges_s, weights=weight)[0].astype(np.float64)

    ends_s, ones = np.where(served, tries.finish_s, -1.0), np.ones(len(tries))
    spent_s = over_time(ends_s, cost_s)
    waits_s = tries.first_token_s[served] - tries.sent_s[served] + case.request_s
    return SpikeRun(
        rule=wanted.rule,
        retry=wanted.retry,
        at_s=edges_s[:-1] + width_s / 2.0 - setting.lead_s,
        good_rps=over_time(ends_s, good.astype(np.float64)) / width_s,
        tries_rps=over_time(tries.sent_s, ones) / width_s,
        dead_share=over_time(ends_s, dead_s) / np.maximum(spent_s, 1e-12),
        good_in_spike=_share(answered[in_spike]),
        good_after=_share(answered[sent_s >= setting.spike_end_s]),
        dead=float(dead_s.sum() / max(cost_s.sum(), 1e-12)),
        turned_away=float((~let_in).mean()),
        tries=len(tries) / len(requests),
        longest_wait_s=float(waits_s.max(initial=0.0)),
        recovery_s=_recovery_s(sent_s, answered, setting),
        requests=len(requests),
    )


def _gpu_s(case: Case, tries: Tries) -> Floats:
    """Return the GPU time of each served try at a full batch [s]."""
    prompt_s, output_s = token_costs_s(
        case.coefficients, case.full_batch, case.context_tokens, float(case.lengths.prompt_mean_tokens)
    )
    cost_s = tries.prompt_tokens * prompt_s + tries.output_tokens * output_s
    return np.where(tries.fate == Fate.SERVED, cost_s, 0.0)


def _share(mask: Masks) -> float | None:
    return float(mask.mean()) if len(mask) else None


def _recovery_s(sent_s: Floats, answered: Masks, setting: SpikeSetting) -> float | None:
    """Return the end of the last window of 25 requests, first sent after the spike, of which fewer than nine in ten were good."""
    after = np.flatnonzero(sent_s >= setting.spike_end_s)
    if len(after) < _WINDOW:
        return None
    shares = np.convolve(answered[after].astype(np.float64), np.full(_WINDOW, 1.0 / _WINDOW), mode="valid")
    bad = np.flatnonzero(shares < _RECOVERED)
    if not len(bad):
        return 0.0
    if bad[-1] >= len(shares) - _WINDOW:
        return None
    # the window's last bad request is where the trouble ends
    window = after[bad[-1] : bad[-1] + _WINDOW]
    return float(sent_s[window[~answered[window]][-1]]) - setting.spike_end_s

"""Admission by prediction, simulated: whom it lets in or turns away wrongly, and what becomes of those turned away."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from planner.analysis.case import Case
from planner.analysis.predictor import Aims, door_bounds, forecast_of
from planner.analysis.spike_simulated import good_tries
from planner.analysis.steps import require_positive
from planner.errors import InputError
from planner.parallel import in_parallel
from planner.simulator import SimulationOptions, met
from planner.simulator.clients import Clients, DoorRule, Fate, Rules, Tries, simulate_clients
from planner.simulator.door import Failing
from planner.workloads import GammaArrivals, PoissonArrivals, Requests

Floats = npt.NDArray[np.float64]
Masks = npt.NDArray[np.bool_]
Arrivals = Literal["Poisson", "bursty"]
Gate = Literal["none", "cap", "predicted"]
Remainder = Literal["reject", "come back", "batch class", "second pool", "queue"]

GATES: tuple[Gate, ...] = ("none", "cap", "predicted")
ARRIVALS: tuple[Arrivals, ...] = ("Poisson", "bursty")
REMAINDERS: tuple[Remainder, ...] = ("reject", "come back", "batch class", "second pool", "queue")
BURSTY_CV = 3.0
SAMPLED = 60
_LARGEST_SIGMA = 3.0
_QUIET = SimulationOptions(over_time=False)
_TRIES = 4


class Offered(NamedTuple):
    """What comes to the door.

    load : as a share of the rate at which requests leave a full engine [1]; capacity_rps : that rate [request/s]
    arrivals : Poisson, or gamma gaps with CV 3; requests : how many
    """

    load: float
    capacity_rps: float
    arrivals: Arrivals
    requests: int

    @property
    def rate_rps(self) -> float:
        """Requests a second [request/s]."""
        return self.load * self.capacity_rps


def offered_requests(case: Case, offered: Offered) -> Requests:
    """Return the case's requests with these arrivals."""
    require_positive("load", offered.load, "shares of the capacity")
    law = PoissonArrivals() if offered.arrivals == "Poisson" else GammaArrivals(cv=BURSTY_CV)
    workload = case.workload.model_copy(update={"arrivals": law})
    return replace(case, workload=workload).requests(offered.requests, offered.rate_rps)


@dataclass(frozen=True, slots=True)
class GateRun:
    """One gate before one stream of requests.

    good : share of all requests answered within the targets [1]; good_rps : a second, over the time in which they come [request/s]
    admitted : share let in [1]; false_admits : share of those let in that missed a target [1]
    """

    gate: Gate
    offered: Offered
    good: float
    good_rps: float
    admitted: float
    false_admits: float


def gate_runs(
    case: Case, aims: Aims, offered: Sequence[Offered], sigma: float, tell: Callable[[str, float], None]
) -> list[GateRun]:
    """Return every gate before every stream; sigma : of the prediction's error, see `off_by`; tell : gets progress."""
    wanted = [(gate, one) for one in offered for gate in GATES]
    runs = []
    for index, (gate, one) in enumerate(wanted):
        tell(f"Serving {len(wanted)} streams of {one.requests:,} requests", 0.5 * index / len(wanted))
        runs.append(gate_run(case, aims, gate, one, sigma))
    return runs


def gate_run(case: Case, aims: Aims, gate: Gate, offered: Offered, sigma: float) -> GateRun:
    """Return what one gate makes of one stream."""
    requests = offered_requests(case, offered)
    tries = _through(case, requests, _gate(case, aims, gate, off_by(sigma, len(requests), case.seed)))
    return _gate_run(case, aims, gate, offered, tries)


def _gate_run(case: Case, aims: Aims, gate: Gate, offered: Offered, tries: Tries) -> GateRun:
    good, served = good_tries(case, aims, tries), tries.fate == Fate.SERVED
    span_s = max(float(tries.sent_s[-1]), 1e-9)
    return GateRun(
        gate=gate,
        offered=offered,
        good=float(good.mean()),
        good_rps=float(good.sum()) / span_s,
        admitted=float(served.mean()),
        false_admits=float((~good[served]).mean()) if served.any() else 0.0,
    )


def off_by(sigma: float, count: int, seed: int) -> Floats:
    """Return the factor by which each prediction is off: exp(σ · Z), median 1 [1]; sigma : of the error's logarithm, at most 3."""
    if not 0.0 <= sigma <= _LARGEST_SIGMA:
        raise InputError(
            "sigma", sigma, f"must be from 0 to {_LARGEST_SIGMA:g}", "Give the standard deviation of ln(predicted ÷ true)"
        )
    factors: Floats = np.exp(sigma * np.random.default_rng([seed, 11]).standard_normal(count))
    return factors


def _gate(case: Case, aims: Aims, gate: Gate, factors: Floats) -> DoorRule | None:
    if gate == "none":
        return None
    if gate == "cap":
        return DoorRule("requests", door_bounds(case, aims).unfinished)
    return DoorRule("predicted", forecast=forecast_of(case, aims), off_by=factors)


def _through(case: Case, requests: Requests, door: DoorRule | None, clients: Clients | None = None) -> Tries:
    rng = np.random.default_rng([case.seed, 12])
    return simulate_clients(requests, (case.limits, case.coefficients), Rules(door), clients or Clients(), rng)


@dataclass(frozen=True, slots=True)
class Mistakes:
    """How well the prediction tells who will be answered within the targets.

    run : of the predicting gate; rejected : share of all requests turned away [1]
    alone : share of those turned away that would have met both targets, had it been let in beside all who were [1]; None where
        nobody was turned away
    false_rejects : the same without costing any other request its targets [1]; sampled : of them that were tried
    """

    sigma: float
    run: GateRun
    rejected: float
    alone: float | None
    false_rejects: float | None
    sampled: int


def mistakes(case: Case, aims: Aims, offered: Offered, sigma: float, most_sampled: int = SAMPLED) -> Mistakes:
    """Return the predicting gate's mistakes; each of a sample of those turned away is let in alone, in a run of its own."""
    requests = offered_requests(case, offered)
    tries = _through(case, requests, _gate(case, aims, "predicted", off_by(sigma, len(requests), case.seed)))
    turned_away = tries.request[tries.fate == Fate.REJECTED]
    let_in = np.sort(tries.request[tries.fate == Fate.SERVED])
    picked = turned_away[np.unique(np.linspace(0, len(turned_away) - 1, most_sampled).astype(np.int64))] if len(turned_away) else []
    good = np.zeros(len(requests), np.bool_)
    good[tries.request] = good_tries(case, aims, tries)
    tried = in_parallel(lambda one: _let_in_too(case, aims, requests, (let_in, good), int(one)), picked)
    return Mistakes(
        sigma=sigma,
        run=_gate_run(case, aims, "predicted", offered, tries),
        rejected=len(turned_away) / len(requests),
        alone=float(np.mean([own for own, _ in tried])) if tried else None,
        false_rejects=float(np.mean([own and not others for own, others in tried])) if tried else None,
        sampled=len(tried),
    )


def _let_in_too(
    case: Case, aims: Aims, requests: Requests, before: tuple[npt.NDArray[np.int64], Masks], one: int
) -> tuple[bool, bool]:
    """Return whether one request that was turned away would have met the targets, and whether another would then have missed them.

    before : those who were let in, and which requests met the targets
    """
    let_in, good = before
    rows = np.insert(let_in, np.searchsorted(let_in, one), one)
    result = case.serve(requests.take(rows), _QUIET)
    now_good = met(result, aims.targets)
    own = rows == one
    return bool(now_good[own][0]), bool((good[rows] & ~now_good & ~own).any())


@dataclass(frozen=True, slots=True)
class RemainderRun:
    """What becomes of all when those who fail the prediction go a certain way.

    The batch class waits behind the others on the same engine, whose max_num_seqs is lowered to what holds the TPOT target.

    good : share of all requests answered within the targets, on whatever try [1]; good_first : of those that passed at once [1]
    answered : share answered at all [1]; median_s : their wait for the first token, from the first try, of those who failed [s];
        None where they get no answer; pool_load : their rate as a share of what a second replica carries [1]; None without one
    """

    remainder: Remainder
    good: float
    good_first: float
    answered: float
    median_s: float | None
    pool_load: float | None


def remainder_runs(case: Case, aims: Aims, offered: Offered, sigma: float) -> list[RemainderRun]:
    """Return each way to treat those who fail the prediction, on the same requests."""
    requests = offered_requests(case, offered)
    return [_remainder_run(case, aims, (offered, requests), sigma, way) for way in REMAINDERS]


def _remainder_run(case: Case, aims: Aims, stream: tuple[Offered, Requests], sigma: float, way: Remainder) -> RemainderRun:
    offered, requests = stream
    gate = _gate(case, aims, "predicted", off_by(sigma, len(requests), case.seed))
    assert gate is not None
    failing: Failing = way if way in ("queue", "batch class") else "reject"
    most = min(case.limits.max_num_seqs, door_bounds(case, aims).batch.sequences or 1)
    engine = case.with_limits(policy="priority", max_num_seqs=most) if way == "batch class" else case
    clients = Clients("as told", 1.0, _TRIES) if way == "come back" else Clients()
    tries = _through(engine, requests, replace(gate, failing=failing), clients)
    failed = np.zeros(len(requests), np.bool_)
    failed[tries.request[tries.failed]] = True
    waits_s, good = _by_request(case, aims, tries, requests)
    load = None
    if way == "second pool":
        rows = np.flatnonzero(failed)
        pool = requests.take(rows)
        waits_s[rows], good[rows] = _by_request(case, aims, _through(case, pool, None), pool)
        load = len(rows) / len(requests) * offered.load
    answered = np.isfinite(waits_s)
    late = failed & answered
    return RemainderRun(
        remainder=way,
        good=float(good.mean()),
        good_first=float(good[~failed].mean()) if (~failed).any() else 0.0,
        answered=float(answered.mean()),
        median_s=float(np.median(waits_s[late])) if late.any() else None,
        pool_load=load,
    )


def _by_request(case: Case, aims: Aims, tries: Tries, requests: Requests) -> tuple[Floats, Masks]:
    """Return each request's wait for its first token since its first try [s], NaN for none, and whether a try of it was good."""
    waits_s = np.full(len(requests), np.nan)
    served = tries.fate == Fate.SERVED
    rows = tries.request[served]
    waits_s[rows] = tries.first_token_s[served] - requests.arrival_s[rows] + case.request_s
    good = np.zeros(len(requests), np.bool_)
    good[tries.request[good_tries(case, aims, tries)]] = True
    return waits_s, good

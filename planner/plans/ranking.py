"""The order of candidates, and what a layout would have to carry to stand before another."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from planner.calibration.records import CalibrationRecord
from planner.errors import InputError
from planner.plans.candidates import Layout, cheapest_placement
from planner.plans.results import Candidate
from planner.plans.starting import Question, records_for
from planner.pricing import fleet_usd_per_hour

_ROUNDING = 1e-9


class Dearness(NamedTuple):
    """What a fleet costs, for comparison: dollars an hour, or GPUs where no price is known, which stand behind all priced ones."""

    unpriced: bool
    amount: float


def rank(candidate: Candidate) -> tuple[bool, Dearness, float, int, str]:
    """Return the order of candidates: feasible, priced, cheap (few GPUs where no price is known), low p99 TPOT, small TP, id."""
    tpot_s = candidate.latency.tpot_p99_s or 0.0 if candidate.latency else 0.0
    return (not candidate.feasible, dearness_of(candidate), tpot_s, candidate.tensor_parallel, candidate.gpu_id)


def dearness_of(candidate: Candidate) -> Dearness:
    """Return what a candidate costs, for comparison."""
    if candidate.cost is not None:
        return Dearness(unpriced=False, amount=candidate.cost.usd_per_hour)
    gpus = candidate.replicas.total * candidate.tensor_parallel if candidate.replicas else 0
    return Dearness(unpriced=True, amount=float(gpus))


def dearness(layout: Layout, replicas: int) -> Dearness:
    """Return what so many replicas of a layout cost, for comparison."""
    found = cheapest_placement(layout, replicas)
    if found is None:
        return Dearness(unpriced=True, amount=float(replicas * layout.tensor_parallel))
    return Dearness(unpriced=False, amount=fleet_usd_per_hour(*found))


def needed_rps(question: Question, layout: Layout, limit: Dearness, *, less: bool = False) -> float | None:
    """Return the rate that each replica of a layout must carry for the fleet to cost no more than a limit [request/s].

    less : for it to cost less

    0 where any rate would do, as before a fleet without a price; None where not even one replica beside the spares is affordable.
    """

    def whole(count: float) -> int:
        return math.ceil(count * (1.0 - _ROUNDING)) - 1 if less else int(count * (1.0 + _ROUNDING))

    if not layout.tariffs:
        if not limit.unpriced:
            return None
        affordable = whole(limit.amount / layout.tensor_parallel)
    elif limit.unpriced:
        return 0.0
    else:
        affordable = max(
            whole(limit.amount / tariff.usd_per_instance_hour) * int(tariff.gpus_per_instance // layout.tensor_parallel)
            for tariff in layout.tariffs
        )
    fleet = question.scenario.fleet
    carrying = affordable - fleet.spare_replicas
    return question.load.peak_rps / (carrying * (1.0 - fleet.headroom)) if carrying >= 1 else None


def records_of(question: Question, ways: Sequence[Layout]) -> dict[str, CalibrationRecord]:
    """Return the calibration of each GPU in play, by id."""
    return records_for(question, {layout.gpu.id: layout.gpu for layout in ways}.values())


def check_named_record(question: Question, records: Mapping[str, CalibrationRecord]) -> None:
    """Raise InputError when the scenario names a calibration that none of its GPUs can use."""
    named = question.scenario.engine.calibration_id
    if named is not None and all(record.id != named for record in records.values()):
        raise InputError(
            "engine.calibration_id",
            named,
            "was measured on none of the GPUs in play",
            "Name its GPU in hardware.gpu_ids, or leave it out",
        )

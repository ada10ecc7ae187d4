"""What a drift of the traffic does to a planned fleet, in replicas: the same scenario planned on the traffic that is seen."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from planner.errors import InputError
from planner.plans import Candidate, Plan, complete, first_answer
from planner.scenario import Scenario, scenario_from_dict


@dataclass(frozen=True, slots=True)
class FleetEffect:
    """The fleet before, and what the seen traffic needs of the same machines.

    before : replicas of the plan, spares apart
    as_set : needed with the settings as they are; None when the targets can't be met with them
    tuned : needed with settings chosen anew; None when the targets can't be met at all
    usd_per_day_before, usd_per_day : of the planned fleet and of the cheaper of the two others [USD/day]
    binds : what keeps a replica of the better settings from carrying more, or why none serves this traffic; None where unknown
    why_not : what stops the fleet as it is set; None when nothing does
    """

    before: int
    as_set: int | None
    tuned: int | None
    usd_per_day_before: float
    usd_per_day: float | None
    binds: str | None
    why_not: str | None

    @property
    def needed(self) -> int | None:
        """Replicas that the seen traffic needs, by the better of the two settings."""
        return min((count for count in (self.as_set, self.tuned) if count is not None), default=None)

    @property
    def more(self) -> int | None:
        """Replicas to add; negative when some can go, None when the targets can't be met."""
        return None if self.needed is None else self.needed - self.before


def fleet_effect(planned: Plan, workload_id: str, rate_rps: float | None = None) -> FleetEffect:
    """Return what another traffic does to a planned fleet, everything else unchanged.

    workload_id : the traffic that is seen, of the catalogue or uploaded
    rate_rps : its peak rate; None keeps the planned one [request/s]

    Raises InputError for a plan without an answer and for an unknown workload.
    """
    chosen = planned.chosen
    if chosen is None or chosen.replicas is None or chosen.knobs is None or chosen.cost is None:
        raise InputError("plan", planned.summary, "has no fleet to check", "Change the scenario until the plan has an answer")
    rate = rate_rps if rate_rps is not None else planned.load.peak_rps
    tuned, as_set = (_answered(_patched(planned, workload_id, rate, fixed=fixed)) for fixed in (False, True))
    found = [each.choice for each in (as_set, tuned) if each.choice is not None]
    bills = [each.cost.usd_per_day for each in found if each.cost is not None]
    best = min(found, key=lambda each: _needed(each) or 0, default=None)
    return FleetEffect(
        before=chosen.replicas.needed,
        as_set=_needed(as_set.choice),
        tuned=_needed(tuned.choice),
        usd_per_day_before=chosen.cost.usd_per_day,
        usd_per_day=min(bills, default=None),
        binds=tuned.obstacle if best is None else best.binds,
        why_not=as_set.why_not,
    )


class _Answered(NamedTuple):
    """A scenario's choice, or why it has none: in a word or two, and in a sentence."""

    choice: Candidate | None
    obstacle: str | None = None
    why_not: str | None = None


def _answered(scenario: Scenario) -> _Answered:
    """Return a scenario's choice; the evidence is made only where the choice isn't certain without it."""
    answer = first_answer(scenario)
    if answer.chosen is not None:
        return _Answered(answer.chosen)
    whole = complete(answer)
    if whole.chosen is not None:
        return _Answered(whole.chosen)
    rejection = whole.candidates[0].rejection if whole.candidates else None
    return _Answered(None, None if rejection is None else rejection.reason, whole.summary)


def _needed(candidate: Candidate | None) -> int | None:
    return None if candidate is None or candidate.replicas is None else candidate.replicas.needed


def _patched(planned: Plan, workload_id: str, rate_rps: float, *, fixed: bool) -> Scenario:
    """Return the scenario with other traffic on the planned machines; fixed : with the planned settings too."""
    chosen = planned.chosen
    document: dict[str, Any] = planned.scenario.model_dump(mode="json")
    document["workload"] = {"id": workload_id, "load": {"kind": "rate", "requests_per_s": rate_rps}, "peak_factor": 1.0}
    if chosen is not None:
        document["hardware"] |= {"gpu_ids": [chosen.gpu_id], "tensor_parallel": [chosen.tensor_parallel]}
        if fixed and chosen.knobs is not None:
            knobs = {"max_num_seqs": chosen.knobs.max_num_seqs, "max_num_batched_tokens": chosen.knobs.max_num_batched_tokens}
            document["engine"] |= knobs
    return scenario_from_dict(document)

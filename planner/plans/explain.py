"""Puts a plan into words: the answer in a sentence, what would change it, and what to know before relying on it."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.calibration.records import CalibrationRecord
from planner.plans.market import commitment_text, why_no_price
from planner.plans.results import Candidate, Change, Details, Latency, NearestFeasible, Reason
from planner.plans.search import percent
from planner.plans.starting import Question
from planner.units import dollars, duration, per_second, percentage, plural, three_figures

_NEXT_CANDIDATES = 2
_NAMED = 3
_NO_ROOM = 0.005  # less than half a per cent would be written as none
_BEYOND_SEARCH = 1.015  # a capacity is searched to 1.2 %: just above it the same replicas may still hold
_REASONS_BY_PROGRESS: tuple[Reason, ...] = (
    "layout is not legal",
    "precision is not supported",
    "weights do not fit",
    "KV cache is too small",
    "requests are too long",
    "TTFT target cannot be met",
    "TPOT target cannot be met",
    "no machine to rent",
    "costs more than another layout",
)
NO_TPOT = "no TPOT: one-token outputs"
NO_TTFT = "no TTFT: no request got a token"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the search found."""

    question: Question
    candidates: tuple[Candidate, ...]
    chosen: Candidate | None
    nearest: NearestFeasible | None
    details: Details | None


def summary_of(outcome: Outcome) -> str:
    """Return the answer in one sentence with its figures."""
    chosen, load = outcome.chosen, outcome.question.load
    if chosen is None or chosen.replicas is None:
        return _infeasible_summary(outcome)
    replicas = chosen.replicas
    gpus = replicas.total * chosen.tensor_parallel
    spares = f" + {plural(replicas.spares, 'spare')}" if replicas.spares else ""
    layout = f" of {chosen.tensor_parallel} GPUs" if chosen.tensor_parallel > 1 else ""
    who = f"{gpus:,} × {chosen.gpu_name} ({plural(replicas.needed, 'replica')}{layout}{spares})"
    text = f"{who} {'serves' if gpus == 1 else 'serve'} {per_second(load.peak_rps)}"
    if not outcome.question.scenario.targets.offline and chosen.latency is not None:
        text += f" at {ttft_text(chosen.latency)}"
        no_tpot = chosen.latency.tpot_p99_s is None
        text += f" ({NO_TPOT})" if no_tpot else f" and {tpot_text(chosen.latency)}"
    if chosen.cost is not None:
        text += f" for {dollars(chosen.cost.usd_per_day)}/day: {dollars(chosen.cost.usd_per_million_tokens)} per million tokens"
    else:
        why = why_no_price(chosen.gpu_id, outcome.question.scenario.hardware) or "no price is known for this GPU"
        text += f", cost unknown: {why}. Give your own price to see dollars"
    return f"{text}. {_capitalised(chosen.binds or '')} binds; {percentage(1.0 - replicas.utilisation)} of capacity is free."


def changes_of(outcome: Outcome, alternatives: Sequence[tuple[str, dict[str, object], Candidate]]) -> tuple[Change, ...]:
    """Return what would change the answer: other settings that were planned too, rivals, and where the next replica starts.

    alternatives : title, patch of the scenario and the candidate that wins with it
    """
    changes: list[Change] = []
    chosen = outcome.chosen
    if chosen is None:
        return _loosen(outcome)
    for title, patch, candidate in alternatives:
        change = _alternative(title, dict(patch), candidate, chosen)
        if change is not None:
            changes.append(change)
    if chosen.replicas is not None:
        at_rps = chosen.replicas.next_replica_at_rps
        beyond = at_rps / outcome.question.load.peak_rps - 1.0
        detail = f"above {per_second(at_rps)} ({percentage(beyond, signed=True)}) one more replica is needed"
        if beyond < _NO_ROOM:
            detail = f"{per_second(at_rps)} is all that these replicas carry within their headroom: any more needs another"
        changes.append(Change("More traffic", detail, _rate_patch(outcome, at_rps * _BEYOND_SEARCH), None))
    changes.extend(_rivals(outcome, chosen))
    commitment = None if chosen.tariff is None else commitment_text(chosen.tariff)
    if commitment is not None:
        changes.append(Change("Commit to the machines", commitment, None, None))
    return tuple(changes)


def warnings_of(outcome: Outcome, extra: Sequence[str] = ()) -> tuple[str, ...]:
    """Return what the reader should know before relying on the plan."""
    found = list(extra)
    chosen = outcome.chosen
    if chosen is None:
        return tuple(found)
    if chosen.latency is not None and chosen.latency.refused_share > 0.0:
        share = percent(chosen.latency.refused_share)
        found.append(f"The engine refuses {share} of the requests, which are longer than max_model_len or the KV cache.")
    if chosen.record is not None and chosen.record.basis in {"prior", "published"}:
        found.append(
            f"Step times of {chosen.gpu_name} are {_basis(chosen.record.basis)}: measure one before you rent many "
            "(planner/calibration)."
        )
    elif chosen.record is not None:
        found.extend(_unmeasured_precision(outcome.question, chosen.gpu_name, chosen.record))
    if outcome.details is not None and outcome.details.impossible_draws:
        found.append(
            f"In {outcome.details.impossible_draws} draws of the calibration no rate meets the targets on {chosen.gpu_name}: "
            "the plan stands near what this GPU can do. Measure it before you rely on it."
        )
    found.extend(_link(chosen))
    found.extend(_idle(chosen))
    found.extend(_unpriced(outcome, chosen))
    near = _inside_the_noise(outcome, chosen)
    if near:
        names = ", ".join(c.label for c in near[:_NAMED])
        more = f" and {len(near) - _NAMED} more" if len(near) > _NAMED else ""
        verb = "cost" if len(near) > 1 else "costs"
        found.append(f"Inside the noise: {names}{more} {verb} as much within the calibration's error; choose by availability.")
    if chosen.latency is not None and chosen.latency.binds == "host":
        found.append("The host binds, not the GPU: more API-server processes or smaller replicas help more than a faster GPU.")
    return tuple(found)


def _unmeasured_precision(question: Question, gpu_name: str, record: CalibrationRecord) -> list[str]:
    """Return that a measured GPU wasn't measured at the precision that the plan computes in."""
    dtype = question.quantization.compute_dtype
    share = record.compute_efficiency.get(dtype)
    if share is None or share.informed_by != "prior":
        return []
    range_of_share = f"{share.low:.2f} to {share.high:.2f} of its peak FLOP/s"
    text = f"Step times of {gpu_name} in {dtype} are scaled from those it was measured in ({range_of_share})"
    return [f"{text}: measure it at this precision before you rent many."]


def _link(chosen: Candidate) -> list[str]:
    """Return what the all-reduces are timed over, where another machine with these GPUs may have another link."""
    link = chosen.link
    fast = chosen.deployment.gpu.link if chosen.deployment is not None else None
    if link is None or fast is None:
        return []
    if not link.in_fast_domain:
        return [f"All-reduces are timed over {link.kind}: {link.reason}. A machine that joins them faster may need fewer GPUs."]
    if not fast.sold_separately:
        return []
    where = f"{chosen.tariff.provider} {chosen.tariff.instance}" if chosen.tariff is not None else "your machine"
    return [f"All-reduces are timed over {link.kind}, which is sold separately: check that {where} has it."]


def _idle(chosen: Candidate) -> list[str]:
    """Return which machines are rented, where some of their GPUs are paid for and serve nothing."""
    cost = chosen.cost
    if cost is None or cost.placement.idle_gpus <= 0.0:
        return []
    placement, tariff = cost.placement, cost.tariff
    machines = f"{plural(placement.instances, 'machine')} of {three_figures(tariff.gpus_per_instance)} GPUs"
    idle = f"{three_figures(placement.idle_gpus)} of {plural(placement.gpus_paid, 'GPU', three_figures(placement.gpus_paid))}"
    verb = "idles" if placement.idle_gpus == 1.0 else "idle"
    return [f"Rented are {machines} ({tariff.provider} {tariff.instance}): {idle} {verb}, and the bill includes them."]


def _unpriced(outcome: Outcome, chosen: Candidate) -> list[str]:
    """Return why GPUs that the user named stand behind the priced ones."""
    if chosen.cost is None:
        return []
    choice = outcome.question.scenario.hardware
    names = {each.gpu_id: each.gpu_name for each in outcome.candidates if each.gpu_id in choice.gpu_ids and each.cost is None}
    reasons = {name: why_no_price(gpu_id, choice) for gpu_id, name in names.items()}
    return [f"{name} stands behind the GPUs with a price: {why}." for name, why in reasons.items() if why is not None]


def _inside_the_noise(outcome: Outcome, chosen: Candidate) -> list[Candidate]:
    """Return the rivals whose cost lies within the plan's own interval.

    Where that is a point, since whole machines hide the error of the capacity: within what the capacity may be off by.
    """
    if chosen.cost is None or outcome.details is None:
        return []
    own_usd, capacity, dollars = chosen.cost.usd_per_day, outcome.details.capacity_rps, outcome.details.usd_per_day
    error = capacity.likely / capacity.low if capacity.low > 0.0 else 1.0
    limit = dollars.high if dollars is not None and dollars.high > own_usd else own_usd * max(error, 1.0)
    rivals = [c for c in outcome.candidates if c.feasible and c is not chosen]
    return [c for c in rivals if c.cost is not None and c.cost.usd_per_day <= limit]


def _infeasible_summary(outcome: Outcome) -> str:
    """Return that nothing serves the scenario: the reason of the layouts that come furthest, and the commonest of the others."""
    reasons = [each.rejection.reason for each in outcome.candidates if each.rejection is not None]
    text = f"No configuration of the {plural(len(outcome.candidates), 'candidate')} serves this"
    furthest = max(reasons, key=_REASONS_BY_PROGRESS.index, default=None)
    if furthest is not None:
        others = [reason for reason in reasons if reason != furthest]
        most = max(dict.fromkeys(others), key=others.count, default=None)
        text += f": {_clause(furthest)}"
        if most is not None:
            count = reasons.count(furthest)
            text += f" on the {plural(count, 'layout')} that {'comes' if count == 1 else 'come'} furthest"
            text += f"; {_clause(most)} on {others.count(most)}"
    nearest = outcome.nearest
    return f"{text}. Nearest: {nearest.detail}." if nearest is not None else f"{text}."


def _clause(reason: Reason) -> str:
    return reason if reason.startswith("no ") else f"the {reason}"


def _alternative(title: str, patch: dict[str, object], candidate: Candidate, chosen: Candidate) -> Change | None:
    if candidate.cost is None or chosen.cost is None:
        return None
    saved = candidate.cost.usd_per_day - chosen.cost.usd_per_day
    if abs(saved) < 0.005 * chosen.cost.usd_per_day:
        return Change(title, f"changes nothing: {_fleet(candidate)} at the same cost", patch, 0.0)
    verb = "saves" if saved < 0 else "costs"
    return Change(title, f"{verb} {dollars(abs(saved))}/day: {_fleet(candidate)}", patch, saved)


def next_candidates(candidates: Sequence[Candidate], chosen: Candidate) -> list[Candidate]:
    """Return the cheapest candidates on other GPUs than the chosen one, which a reader may turn to; candidates : in order."""
    seen: dict[str, Candidate] = {}
    for each in candidates:
        if each.feasible and each.gpu_id != chosen.gpu_id and each.cost is not None and each.latency is not None:
            seen.setdefault(each.gpu_id, each)
    return list(seen.values())[:_NEXT_CANDIDATES]


def _rivals(outcome: Outcome, chosen: Candidate) -> list[Change]:
    changes = []
    for candidate in next_candidates(outcome.candidates, chosen):
        if candidate.cost is None or chosen.cost is None or candidate.latency is None:
            continue
        extra = candidate.cost.usd_per_day - chosen.cost.usd_per_day
        ttft, tpot = ttft_text(candidate.latency), tpot_text(candidate.latency)
        detail = f"{_fleet(candidate)}, {ttft}, {tpot}, {dollars(extra)}/day more"
        changes.append(Change(f"Next: {candidate.label}", detail, {"hardware.gpu_ids": [candidate.gpu_id]}, extra))
    return changes


def _loosen(outcome: Outcome) -> tuple[Change, ...]:
    nearest = outcome.nearest
    if nearest is None:
        return _longer_context(outcome)
    patch: dict[str, object] = {"targets.ttft_p99_s": nearest.ttft_p99_s, "targets.tpot_p99_s": nearest.tpot_p99_s}
    return (Change("Loosen the targets", nearest.detail, patch, None),)


def _longer_context(outcome: Outcome) -> tuple[Change, ...]:
    if outcome.question.scenario.engine.max_model_len is None:
        return ()
    longest = outcome.question.demand.longest_tokens
    detail = f"the workload's longest request has {longest:,} tokens; the planner then sets a context that holds it"
    return (Change("Leave max_model_len open", detail, {"engine.max_model_len": None}, None),)


def _rate_patch(outcome: Outcome, rate_rps: float) -> dict[str, object]:
    factor = outcome.question.load.peak_factor
    return {
        "workload.load": {"kind": "rate", "requests_per_s": float(f"{rate_rps / factor:.4g}")},
        "workload.peak_factor": factor if factor > 1.0 else None,
    }


def _fleet(candidate: Candidate) -> str:
    if candidate.replicas is None:
        return candidate.label
    gpus = candidate.replicas.total * candidate.tensor_parallel
    return f"{gpus:,} × {candidate.gpu_name} (TP{candidate.tensor_parallel}, {plural(candidate.replicas.total, 'replica')})"


def ttft_text(latency: Latency) -> str:
    """Return the p99 TTFT for a sentence, or that there is none."""
    return NO_TTFT if latency.ttft_p99_s is None else f"p99 TTFT {duration(latency.ttft_p99_s)}"


def tpot_text(latency: Latency) -> str:
    """Return the p99 TPOT for a sentence, or that there is none."""
    return NO_TPOT if latency.tpot_p99_s is None else f"p99 TPOT {duration(latency.tpot_p99_s)}"


def _basis(basis: str) -> str:
    return "taken from a publication" if basis == "published" else "a prior scaled from other GPUs, not measured"


def _capitalised(text: str) -> str:
    first = text.split(" ", 1)[0]
    return text if "_" in first else text[:1].upper() + text[1:]

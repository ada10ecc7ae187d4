"""A plan as JSON and as text."""

import datetime as dt
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from planner.exporters.flags import serve_command
from planner.plans.explain import tpot_text, ttft_text
from planner.plans.results import Candidate, Change, Interval, Latency, NearestFeasible, Plan
from planner.pricing import Cost, Tariff
from planner.units import GIB, dollars, duration, per_second, plural

DOCUMENT_VERSION = 1


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the whole plan as plain JSON types, in SI units and dollars; keys are stable within one document_version."""
    return {
        "document_version": DOCUMENT_VERSION,
        "summary": plan.summary,
        "feasible": plan.chosen is not None,
        "scenario": plan.scenario.model_dump(mode="json"),
        "scenario_digest": plan.scenario.digest(),
        "load": asdict(plan.load),
        "lengths": {name.removesuffix("_tokens"): value for name, value in plan.lengths._asdict().items()},
        "chosen": _candidate(plan.chosen) if plan.chosen else None,
        "details": _details(plan),
        "nearest_feasible": _nearest(plan.nearest),
        "candidates": [_candidate(candidate) for candidate in plan.candidates],
        "changes": [_change(change) for change in plan.changes],
        "warnings": list(plan.warnings),
    }


def plan_text(plan: Plan, today: dt.date) -> str:
    """Return the plan as text for a terminal: the answer, the choice, the rivals with their reasons, what would change it.

    today : the day against which an old price is marked
    """
    lines = [plan.summary, ""]
    if plan.chosen is not None:
        lines += [*_chosen_lines(plan, plan.chosen), ""]
    feasible = [candidate for candidate in plan.candidates if candidate.feasible]
    if feasible:
        lines += ["Candidates, cheapest first:", *(f"  {_candidate_line(candidate)}" for candidate in feasible[:10]), ""]
    rejected = [candidate for candidate in plan.candidates if candidate.rejection is not None]
    if rejected:
        lines += ["Left out:", *(f"  {_rejection_line(candidate)}" for candidate in rejected[:10])]
        lines += [f"  … and {len(rejected) - 10} more (--json lists all)"] if len(rejected) > 10 else []
        lines += [""]
    if plan.changes:
        lines += ["What would change it:", *(f"  {change.title}: {change.detail}" for change in plan.changes), ""]
    lines += [f"Note: {warning}" for warning in (*plan.warnings, *_price_notes(plan, today))]
    return "\n".join(lines).rstrip()


def _price_notes(plan: Plan, today: dt.date) -> list[str]:
    tariff = plan.chosen.tariff if plan.chosen is not None else None
    if tariff is None or tariff.as_of is None or not tariff.is_stale(today):
        return []
    age = (today - tariff.as_of).days
    return [f"The price is {age} days old ({tariff.as_of}): check it before you commit to it."]


def _chosen_lines(plan: Plan, chosen: Candidate) -> list[str]:
    lines = []
    if chosen.knobs and chosen.latency and chosen.replicas and chosen.capacity_rps:
        latency = chosen.latency
        lines.append(f"max_num_seqs {chosen.knobs.max_num_seqs}, max_num_batched_tokens {chosen.knobs.max_num_batched_tokens}")
        found = plan.details
        ranges = (found.capacity_rps, found.ttft_p99_s, found.tpot_p99_s, found.usd_per_day) if found else (None,) * 4
        lines.append(
            f"one replica carries {per_second(chosen.capacity_rps)}{_between(ranges[0], per_second)}, "
            f"planned at {per_second(latency.rate_rps)}; {chosen.binds} binds"
        )
        ttft, tpot = (latency.ttft_mean_s, latency.ttft_p99_s), (latency.tpot_mean_s, latency.tpot_p99_s)
        lines.append(f"TTFT {_mean_and_p99(*ttft)}{_between(ranges[1], duration)}, {latency.method}")
        lines.append(f"TPOT {_mean_and_p99(*tpot)}{_between(ranges[2], duration)}, {latency.method}")
        if chosen.cost:
            lines.append(f"${chosen.cost.usd_per_day:,.0f}/day{_between(ranges[3], lambda usd: f'${usd:,.0f}')}")
    if chosen.memory:
        lines.append(f"KV cache {chosen.memory.kv_bytes / GIB:.3g} GiB a GPU: {chosen.memory.kv_tokens:,} tokens")
    if chosen.tariff:
        lines.append(f"priced as {_tariff(chosen.tariff)}")
    if chosen.link:
        lines.append(f"all-reduces over {chosen.link.kind}: {chosen.link.reason}")
    if chosen.record:
        lines.append(f"step times from {chosen.record.id} ({chosen.record.basis})")
    if plan.details:
        lines.append(f"replicas {_range(plan.details.replicas)}; the ranges: {plan.details.interval_source}")
    if chosen.deployment:
        lines.append(serve_command(chosen.deployment).line)
    return lines


def _between(interval: Interval | None, written: Callable[[float], str]) -> str:
    return "" if interval is None else f" ({written(interval.low)} to {written(interval.high)})"


def _mean_and_p99(mean_s: float | None, p99_s: float | None) -> str:
    if mean_s is None or p99_s is None:
        return "none: one-token outputs"
    return f"mean {duration(mean_s)}, p99 {duration(p99_s)}"


def _tariff(tariff: Tariff) -> str:
    where = f"{tariff.provider} {tariff.instance} in {tariff.region}, {tariff.basis}"
    dated = f", {tariff.as_of}" if tariff.as_of else ""
    return f"{where}, {dollars(tariff.usd_per_gpu_hour)} a GPU-hour{dated}"


def _candidate_line(candidate: Candidate) -> str:
    text = candidate.label
    if candidate.replicas and candidate.capacity_rps:
        text += f": {plural(candidate.replicas.total, 'replica')} of {per_second(candidate.capacity_rps)}"
    if candidate.cost:
        text += f", ${candidate.cost.usd_per_day:,.0f}/day, {dollars(candidate.cost.usd_per_million_tokens)} per million tokens"
    if candidate.latency:
        text += f", {ttft_text(candidate.latency)}, {tpot_text(candidate.latency)}"
    return text


def _rejection_line(candidate: Candidate) -> str:
    rejection = candidate.rejection
    return candidate.label if rejection is None else f"{candidate.label}: {rejection.detail}"


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "gpu": candidate.gpu_id,
        "gpu_name": candidate.gpu_name,
        "tensor_parallel": candidate.tensor_parallel,
        "quantization": candidate.quantization_id,
        "kv_dtype": candidate.kv_dtype,
        "link": candidate.link._asdict() if candidate.link else None,
        "rejection": asdict(candidate.rejection) if candidate.rejection else None,
        "max_num_seqs": candidate.knobs.max_num_seqs if candidate.knobs else None,
        "max_num_batched_tokens": candidate.knobs.max_num_batched_tokens if candidate.knobs else None,
        "kv_tokens": candidate.memory.kv_tokens if candidate.memory else None,
        "num_blocks": candidate.memory.num_blocks if candidate.memory else None,
        "capacity_rps": candidate.capacity_rps,
        "binds": candidate.binds,
        "latency": _latency(candidate.latency),
        "replicas": _replicas(candidate),
        "gpus": candidate.replicas.total * candidate.tensor_parallel if candidate.replicas else None,
        "cost": _cost(candidate.cost),
        "calibration": {"id": candidate.record.id, "basis": candidate.record.basis} if candidate.record else None,
    }


def _replicas(candidate: Candidate) -> dict[str, Any] | None:
    replicas = candidate.replicas
    return None if replicas is None else asdict(replicas) | {"total": replicas.total}


def _cost(cost: Cost | None) -> dict[str, Any] | None:
    if cost is None:
        return None
    document = asdict(cost)
    as_of = cost.tariff.as_of
    document["tariff"]["as_of"] = as_of.isoformat() if as_of else None
    return document


def _latency(latency: Latency | None) -> dict[str, Any] | None:
    return None if latency is None else asdict(latency)


def _details(plan: Plan) -> dict[str, Any] | None:
    details = plan.details
    if details is None:
        return None
    return {
        "curve": [asdict(point) for point in details.curve],
        "knob_map": [asdict(cell) for cell in details.knob_map],
        "default_knobs": asdict(details.default),
        "replicas": asdict(details.replicas),
        "capacity_rps": asdict(details.capacity_rps),
        "ttft_p99_s": asdict(details.ttft_p99_s),
        "tpot_p99_s": asdict(details.tpot_p99_s) if details.tpot_p99_s else None,
        "usd_per_day": asdict(details.usd_per_day) if details.usd_per_day else None,
        "interval_source": details.interval_source,
        "impossible_draws": details.impossible_draws,
        "mean_field": _latency(details.mean_field),
        "command": list(serve_command(plan.chosen.deployment).arguments) if plan.chosen and plan.chosen.deployment else None,
    }


def _nearest(nearest: NearestFeasible | None) -> dict[str, Any] | None:
    if nearest is None:
        return None
    return {
        "gpu": nearest.candidate.gpu_id,
        "tensor_parallel": nearest.candidate.tensor_parallel,
        "ttft_p99_s": nearest.ttft_p99_s,
        "tpot_p99_s": nearest.tpot_p99_s,
        "detail": nearest.detail,
    }


def _change(change: Change) -> dict[str, Any]:
    return asdict(change)


def _range(interval: Interval) -> str:
    if interval.low == interval.high:
        return f"{interval.likely:.0f}"
    return f"{interval.low:.0f}–{interval.high:.0f}, {interval.likely:.0f} most likely"

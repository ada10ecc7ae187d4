"""Every candidate of a plan as one flat row: the table of the Plan page, its CSV and its JSON."""

from planner.exporters.table import Cell
from planner.plans.results import Candidate, Plan
from planner.units import MS

ROUNDED_DIGITS = 6


def candidate_rows(plan: Plan) -> list[dict[str, Cell]]:
    """Return one row a candidate, feasible ones first by cost; every column is named with its unit."""
    ordered = sorted(plan.candidates, key=_by_cost)
    return [_row(candidate, chosen=candidate is plan.chosen) for candidate in ordered]


def _by_cost(candidate: Candidate) -> tuple[bool, float, str, int]:
    usd = candidate.cost.usd_per_day if candidate.cost is not None else float("inf")
    return (not candidate.feasible, usd, candidate.gpu_id, candidate.tensor_parallel)


def _row(candidate: Candidate, *, chosen: bool) -> dict[str, Cell]:
    latency, cost, replicas, knobs, rejection = (
        candidate.latency,
        candidate.cost,
        candidate.replicas,
        candidate.knobs,
        candidate.rejection,
    )
    tariff = candidate.tariff
    return {
        "gpu_id": candidate.gpu_id,
        "gpu": candidate.gpu_name,
        "tensor_parallel": candidate.tensor_parallel,
        "link": candidate.link.kind if candidate.link else None,
        "quantization": candidate.quantization_id,
        "kv_dtype": candidate.kv_dtype,
        "meets_targets": candidate.feasible,
        "chosen": chosen,
        "reason": rejection.reason if rejection else None,
        "detail": rejection.detail if rejection else None,
        "remedy": rejection.remedy if rejection else None,
        "replicas": replicas.total if replicas else None,
        "spares": replicas.spares if replicas else None,
        "gpus": replicas.total * candidate.tensor_parallel if replicas else None,
        "capacity_rps": _rounded(candidate.capacity_rps),
        "utilisation": _rounded(replicas.utilisation if replicas else None),
        "ttft_p99_ms": _rounded(latency.ttft_p99_s / MS if latency and latency.ttft_p99_s is not None else None),
        "tpot_p99_ms": _rounded(latency.tpot_p99_s / MS if latency and latency.tpot_p99_s is not None else None),
        "usd_per_hour": _rounded(cost.usd_per_hour if cost else None),
        "usd_per_day": _rounded(cost.usd_per_day if cost else None),
        "usd_per_million_tokens": _rounded(cost.usd_per_million_tokens if cost else None),
        "usd_per_million_prompt_tokens": _rounded(cost.usd_per_million_prompt_tokens if cost else None),
        "usd_per_million_output_tokens": _rounded(cost.usd_per_million_output_tokens if cost else None),
        "max_num_seqs": knobs.max_num_seqs if knobs else None,
        "max_num_batched_tokens": knobs.max_num_batched_tokens if knobs else None,
        "kv_tokens": candidate.memory.kv_tokens if candidate.memory else None,
        "binds": candidate.binds,
        "provider": tariff.provider if tariff else None,
        "instance": tariff.instance if tariff else None,
        "region": tariff.region if tariff else None,
        "price_as_of": tariff.as_of.isoformat() if tariff and tariff.as_of else None,
        "price_source": tariff.source if tariff else None,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.{ROUNDED_DIGITS}g}")

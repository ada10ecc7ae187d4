"""A replay as text, as JSON, and its requests as CSV and parquet."""

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from planner.exporters.table import spreadsheet_safe
from planner.replay import Difference, Outcome, Replay, differences, sentence_of
from planner.simulator import Distribution, Estimate, values_s
from planner.units import duration

DOCUMENT_VERSION = 1
METRICS = ("ttft", "tpot", "itl", "e2e", "queue")


def requests_table(replay: Replay) -> pa.Table:
    """Return one row for each request of the shown run, in order of arrival; figures that a request lacks are null.

    Times are as the client sees them; `within_targets` says whether it met every target of the scenario.
    """
    run, requests = replay.shown, replay.requests
    client = run.client
    names = [each.name for each in replay.plan.workload.classes]
    classes = pa.DictionaryArray.from_arrays(pa.array(requests.class_index, pa.int32()), pa.array(names)).cast(pa.string())
    columns: dict[str, Any] = {
        "request": np.arange(len(requests)),
        "class": classes,
        "arrival_s": requests.arrival_s,
        "prompt_tokens": requests.prompt_tokens,
        "output_tokens": client.output_tokens,
        "cached_prompt_tokens": client.cached_tokens,
        **{f"{metric}_s": values_s(client, metric) for metric in ("queue", "ttft", "tpot", "e2e")},
        "first_token_s": client.first_token_s,
        "finish_s": client.finish_s,
        "preemptions": client.preemptions,
        "rejected": client.rejected,
        "within_targets": run.met,
    }
    return pa.table({name: _column(values) for name, values in columns.items()})


def requests_csv(replay: Replay) -> bytes:
    """Return the requests as CSV whose text no spreadsheet runs as a formula."""
    table = requests_table(replay)
    safe = pa.array([spreadsheet_safe(name) for name in table["class"].combine_chunks().dictionary_encode().dictionary.to_pylist()])
    indices = table["class"].combine_chunks().dictionary_encode().indices
    column = pa.DictionaryArray.from_arrays(indices, safe).cast(pa.string())
    out = io.BytesIO()
    pa_csv.write_csv(table.set_column(table.schema.get_field_index("class"), "class", column), out)
    return out.getvalue()


def requests_parquet(replay: Replay) -> bytes:
    """Return the requests as parquet, with what was run in the file's metadata."""
    about = {
        "scenario": replay.plan.scenario.to_json(),
        "replay": replay.settings.model_dump_json(),
        "rate_rps": f"{replay.rate_rps!r}",
        "seed": f"{replay.seed}",
    }
    table = requests_table(replay)
    out = io.BytesIO()
    pq.write_table(table.replace_schema_metadata(about), out, compression="zstd")
    return out.getvalue()


def replay_document(replay: Replay) -> dict[str, Any]:
    """Return the replay as plain JSON types, in SI units; keys are stable within one document_version."""
    return {
        "document_version": DOCUMENT_VERSION,
        "summary": sentence_of(replay),
        "scenario": replay.plan.scenario.model_dump(mode="json"),
        "scenario_digest": replay.plan.scenario.digest(),
        "deployment": {
            "gpu_id": replay.candidate.gpu_id,
            "tensor_parallel": replay.candidate.tensor_parallel,
            "quantization": replay.candidate.quantization_id,
            "kv_dtype": replay.candidate.kv_dtype,
        },
        "settings": replay.settings.model_dump(mode="json"),
        "requests": len(replay.requests),
        "rate_rps": replay.rate_rps,
        "seed": replay.seed,
        "planned": _outcome(replay.planned),
        "changed": _outcome(replay.changed) if replay.changed is not None else None,
        "differences": [_difference(each) for each in differences(replay)],
    }


def replay_text(replay: Replay) -> str:
    """Return the replay as text for a terminal."""
    run = replay.shown
    limits, totals = run.setup.limits, run.result.totals
    knobs = f"max_num_seqs {limits.max_num_seqs}, max_num_batched_tokens {limits.max_num_batched_tokens}"
    rejected = f"{int(run.result.rejected.sum()):,} rejected requests"
    recomputed = f"{totals.preemptions:,} preemptions, {totals.recomputed_tokens:,} recomputed tokens"
    lines = [
        sentence_of(replay),
        "",
        f"{knobs}, {limits.num_blocks:,} KV blocks of {limits.block_size} tokens",
        f"{len(replay.requests):,} requests at {replay.rate_rps:.4g} req/s, seed {replay.seed}; the first tenth warms up",
        "",
        f"{'':7}{'mean':>10}{'p50':>10}{'p90':>10}{'p99':>10}   95 % interval of p99",
        *(_latency_line(metric, getattr(run.summary, metric)) for metric in METRICS),
        "",
        f"{recomputed}, {totals.wasted_rows:,} wasted rows, {rejected}",
        "waits for " + ", ".join(f"{name} {share:.1%}" for name, share in run.result.bound_shares().items()),
        "steps spent on " + ", ".join(f"{name} {share:.1%}" for name, share in run.result.resource_shares().items()),
    ]
    if replay.changed is not None:
        lines += ["", "Changed less planned, on the same requests:", *_difference_lines(replay)]
    return "\n".join(line.rstrip() for line in lines)


def _column(values: Any) -> Any:  # noqa: ANN401 - pyarrow is untyped
    return values if isinstance(values, pa.Array) else pa.array(values, from_pandas=True)


def _latency_line(metric: str, found: Distribution) -> str:
    cells = [found.mean.value, *(found.percentiles[q].value for q in (50.0, 90.0, 99.0))]
    text = "".join(f"{duration(value) if np.isfinite(value) else '–':>10}" for value in cells)
    tail = found.percentiles[99.0]
    interval = f"   {duration(tail.low)} to {duration(tail.high)}" if tail.low is not None and tail.high is not None else ""
    return f"{'queue' if metric == 'queue' else metric.upper():7}{text}{interval}"


def _difference_lines(replay: Replay) -> list[str]:
    return [f"  {_difference_line(each)}" for each in differences(replay) if each.planned or each.changed]


def _difference_line(each: Difference) -> str:
    if each.unit == "s" and np.isfinite(each.planned + each.changed):
        return f"{each.name}: {duration(each.planned)} → {duration(each.changed)}"
    return f"{each.name}: {each.planned:.4g} → {each.changed:.4g}"


def _outcome(run: Outcome) -> dict[str, Any]:
    result = run.result
    return {
        "engine": {**run.setup.limits._asdict(), "request_s": run.setup.request_s},
        "verdict": result.verdict,
        "verdict_reason": result.verdict_reason,
        "latency_s": {metric: _distribution(getattr(run.summary, metric)) for metric in METRICS},
        "measured_requests": run.summary.measured,
        "requests_per_s": run.summary.requests_per_s,
        "output_tokens_per_s": run.summary.output_tokens_per_s,
        "goodput": run.goodput._asdict() if run.goodput is not None else None,
        "targets": [
            {
                "metric": check.target.metric,
                "percentile": check.target.percentile,
                "limit_s": check.target.limit_s,
                "measured_s": _estimate(check.measured),
                "met": check.met,
                "surely_met": check.surely_met,
            }
            for check in run.checks
        ],
        "rejected_requests": int(result.rejected.sum()),
        "totals": {name: getattr(result.totals, name) for name in result.totals.__slots__},
        "averages": {name: getattr(result.averages, name) for name in result.averages.__slots__},
        "waits_for": result.bound_shares(),
        "steps_spent_on": result.resource_shares(),
    }


def _distribution(found: Distribution) -> dict[str, Any]:
    return {
        "count": found.count,
        "mean": _estimate(found.mean),
        **{f"p{q:g}": _estimate(estimate) for q, estimate in found.percentiles.items()},
    }


def _estimate(estimate: Estimate) -> dict[str, float | None]:
    return {name: None if value is None or not np.isfinite(value) else value for name, value in estimate._asdict().items()}


def _difference(each: Difference) -> dict[str, Any]:
    return {
        "name": each.name,
        "unit": each.unit,
        "planned": each.planned if np.isfinite(each.planned) else None,
        "changed": each.changed if np.isfinite(each.changed) else None,
        "difference": _estimate(each.difference),
        "better": each.better,
    }

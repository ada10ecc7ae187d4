"""A calibration record in words and tables: what it rests on, its figures with their intervals, how far off it was."""

import pandas as pd

from planner.calibration.records import CalibrationRecord, Evidence, GroupError, Parameter
from planner.calibration.schema import EFFICIENCIES
from planner.engines import ENGINE_TITLES
from planner.exporters.table import spreadsheet_safe
from planner.ui.charts.base import Row
from planner.ui.views.why import source_row
from planner.ui.words import (
    DASH,
    day,
    figure,
    gigabytes_per_second,
    percent,
    plural,
    seconds,
    span,
    stop,
    teraflops,
)

BASIS = {
    "fitted": "fitted to measured times of this GPU and engine",
    "published": "taken from published fits of this GPU",
    "prior": "a prior, scaled from measurements of other GPUs",
    "textbook": "the textbook setting, for comparison alone",
}
_BASIS_IN_TABLE = {
    "fitted": "measured times",
    "published": "published fits",
    "prior": "a scaled prior",
    "textbook": "the textbook",
}
RESTS_ON = {"data": "measured", "prior": "prior", "assumed": "assumed"}
_TABLES = {
    "memory_efficiency": "Memory bandwidth reached, {} weights",
    "compute_efficiency": "Compute reached, {}",
    "expert_compute_efficiency": "Compute reached, experts, {}",
}
_ALL_REDUCE = {"alpha_s": "All-reduce latency, {} GPUs", "beta_bytes_per_s": "All-reduce bandwidth, {} GPUs"}
_NAMES = {
    "attention_efficiency": "Compute reached, prefill attention",
    "kv_read_efficiency": "Memory bandwidth reached, KV reads",
    "layer_s": "Constant time of a layer",
    "expert_layer_s": "Constant time of routing",
    "mix_factor": "KV reads beside prefill, times dearer",
    "expert_spread": "Fresh experts drawn by a token",
    "smoothness": "Overlap of memory and compute time",
    "activation_bandwidth_fraction": "Memory bandwidth reached, activations",
    "host.host_s": "Host time of a step",
    "host.host_s_per_sequence": "Host time of a sequence",
    "host.exposed_host_s_per_sequence": "Exposed host time of a sequence",
    "host.request_s": "Time of a request outside the engine",
}
_SHARES = (*EFFICIENCIES, "attention_efficiency", "kv_read_efficiency", "activation_bandwidth_fraction")


def name_of(path: str) -> str:
    """Return what a parameter is, in words; path : as CalibrationRecord.parameters yields it.

    >>> name_of("all_reduce.8.alpha_s"), name_of("memory_efficiency.fp8")
    ('All-reduce latency, 8 GPUs', 'Memory bandwidth reached, FP8 weights')
    """
    table, _, rest = path.partition(".")
    if table in _TABLES:
        return _TABLES[table].format(rest.upper())
    if table == "all_reduce":
        size, _, part = rest.partition(".")
        return _ALL_REDUCE[part].format(size)
    return _NAMES.get(path, path.replace("_", " "))


def write_value(path: str, value: float) -> str:
    """Return a parameter's value with its unit."""
    if path.endswith("bytes_per_s"):
        return gigabytes_per_second(value)
    if path.endswith("_s") or "_s_per_" in path:
        return seconds(value)
    return percent(value) if path.partition(".")[0] in _SHARES else figure(value)


def in_use(record: CalibrationRecord) -> str:
    """Return which record a plan uses and what it rests on."""
    return f"The plan's step times come from {rests_on(record)}"


def rests_on(record: CalibrationRecord) -> str:
    """Return a record's name, what it rests on, and how far off it is, best on groups that its fit hadn't seen."""
    basis = f"{record.id}, {BASIS[record.basis]}"
    evidence = record.evidence
    if evidence is None or not evidence.rows:
        return f"{basis}: no measured time of this GPU stands behind it."
    held = [group.held_out_median_abs_pct for group in evidence.groups if group.held_out_median_abs_pct is not None]
    times = f"{basis}: {plural(evidence.rows, 'time')} in {plural(len(evidence.groups), 'group')}"
    if held:
        return f"{times}. Groups left out of the fit are predicted {_range(held)} off (median)."
    errors = [group.median_abs_pct for group in evidence.groups]
    return f"{times}, predicted {_range(errors)} off (median). Nothing could be left out of the fit to test it."


def _range(values: list[float]) -> str:
    return span(percent(min(values) / 100.0), percent(max(values) / 100.0))


def held_out_note(record: CalibrationRecord) -> str | None:
    """Return what was held out of a record's fit; None where nothing was measured."""
    return None if record.evidence is None or not record.evidence.rows else stop(f"Left out: {record.evidence.held_out}")


def parameters_of(record: CalibrationRecord, paths: frozenset[str] | None = None) -> list[tuple[str, Parameter]]:
    """Return a record's parameters with their paths; paths : only these, None for all."""
    return [(path, parameter) for path, parameter in record.parameters() if paths is None or path in paths]


def parameter_frame(record: CalibrationRecord, paths: frozenset[str] | None = None) -> pd.DataFrame:
    """Return the parameters as a table: value, 80 % interval, what informs each, and the source."""
    rows = [
        {
            "Parameter": name_of(path),
            "Value": write_value(path, parameter.value),
            "80 % interval": interval_of(path, parameter),
            "Reached": _absolute(record, path, parameter) or DASH,
            "Rests on": RESTS_ON[parameter.informed_by],
            "Source": spreadsheet_safe(reference_of(parameter)),
        }
        for path, parameter in parameters_of(record, paths)
    ]
    return pd.DataFrame(rows)


def interval_of(path: str, parameter: Parameter) -> str:
    """Return a parameter's 80 % interval with its unit."""
    return span(write_value(path, parameter.low), write_value(path, parameter.high))


def reference_of(parameter: Parameter) -> str:
    """Return a parameter's source with its day."""
    row = source_row("", "", parameter.source)
    return row.reference if parameter.source.retrieved is None else f"{row.reference}, {row.date}"


def _absolute(record: CalibrationRecord, path: str, parameter: Parameter) -> str | None:
    peak = record.reference_rate(path)
    if peak is None:
        return None
    rate = parameter.value * peak
    return gigabytes_per_second(rate) if path.startswith("memory_efficiency") else teraflops(rate)


def interval_rows(record: CalibrationRecord, paths: frozenset[str] | None = None) -> tuple[list[Row], str]:
    """Return each parameter's interval as a multiple of its value, with the finding; those without a width are left out."""
    rows = [_interval_row(path, parameter) for path, parameter in parameters_of(record, paths) if parameter.value > 0.0]
    rows = [row for row in rows if row["high"] > row["low"]]
    if not rows:
        return [], ""
    widest = max(rows, key=lambda row: row["high"] / max(row["low"], 1e-3))
    measured = sum(row["rests_on"] == "measured" for row in rows)
    informed = (
        f"{measured} of {plural(len(rows), 'figure')} rest on measurements" if measured else "No figure rests on measurements"
    )
    return rows, f"{informed}; the widest interval: {lower(widest['name'])}"


def lower(text: str) -> str:
    """Return a name inside a sentence; an abbreviation keeps its capitals.

    >>> lower("Host time"), lower("KV reads")
    ('host time', 'KV reads')
    """
    return text if text[:2].isupper() else f"{text[:1].lower()}{text[1:]}"


def _interval_row(path: str, parameter: Parameter) -> Row:
    return {
        "name": name_of(path),
        "low": parameter.low / parameter.value,
        "high": parameter.high / parameter.value,
        "at": 1.0,
        "rests_on": RESTS_ON[parameter.informed_by],
        "value": write_value(path, parameter.value),
        "interval": interval_of(path, parameter),
    }


def error_rows(evidence: Evidence) -> tuple[list[Row], str]:
    """Return the errors of each group of measured steps, fitted and held out, the worst first, with the finding."""
    groups = sorted(evidence.groups, key=lambda group: -_worst(group))
    rows = [row for group in groups for row in _error_rows(group)]
    if not rows:
        return [], ""
    worst = groups[0]
    held = worst.held_out_median_abs_pct is not None
    seen = "when left out of the fit" if held else "in the fit itself"
    return rows, f"{worst.group} is predicted worst: {percent(_worst(worst) / 100.0)} off {seen}"


def _worst(group: GroupError) -> float:
    return group.median_abs_pct if group.held_out_median_abs_pct is None else group.held_out_median_abs_pct


def _error_rows(group: GroupError) -> list[Row]:
    rows = [{"group": group.group, "pct": group.median_abs_pct, "kind": "fitted", "error": _pct(group.median_abs_pct)}]
    if group.held_out_median_abs_pct is not None:
        pct = group.held_out_median_abs_pct
        rows.append({"group": group.group, "pct": pct, "kind": "left out of the fit", "error": _pct(pct)})
    return [{**row, "rows": f"{group.rows:,}", "bias": _signed(group.bias_pct), "worst": _pct(group.worst_abs_pct)} for row in rows]


def _pct(value: float) -> str:
    return percent(value / 100.0)


def _signed(value: float) -> str:
    return f"{'−' if value < 0 else '+'}{percent(abs(value) / 100.0)}"


def records_frame(records: tuple[CalibrationRecord, ...], own: frozenset[str]) -> pd.DataFrame:
    """Return every record with what it rests on; own : ids of the user's."""
    return pd.DataFrame([_record_row(record, mine=record.id in own) for record in records])


def _record_row(record: CalibrationRecord, *, mine: bool) -> dict[str, object]:
    evidence = record.evidence
    groups = evidence.groups if evidence is not None else ()
    held = [group.held_out_median_abs_pct for group in groups if group.held_out_median_abs_pct is not None]
    fitted = [group.median_abs_pct for group in groups]
    return {
        "Record": record.id,
        "Of": "yours" if mine else "shipped",
        "Rests on": _BASIS_IN_TABLE[record.basis],
        "Steps": evidence.rows if evidence is not None else 0,
        "Groups": len(groups),
        "Off by, fitted": _range(fitted) if fitted else DASH,
        "Off by, left out": _range(held) if held else DASH,
        "Engine": f"{ENGINE_TITLES.get(record.engine, record.engine)} {record.engine_version or ''}".strip(),
        "Made": day(record.created),
        "What it is": spreadsheet_safe(record.description),
    }


def file_name(record_id: str) -> str:
    """Return the name that a record's file must have in its GPU's folder: a catalogue reads it under that name alone.

    >>> file_name("h100-80g-sxm/vllm-0.33.0")
    'vllm-0.33.0.json'
    """
    return f"{record_id.rpartition('/')[2]}.json"

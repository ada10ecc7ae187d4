"""One line for each section of the sidebar: what it says while folded."""

from planner.errors import InputError
from planner.ui import reading
from planner.ui.choices import gpu_names, model_names
from planner.ui.fields import FIELDS, LOAD_KEY, OFFLINE_KEY, Section, Values, changed
from planner.ui.words import figure, literal, plural, seconds
from planner.workloads import load_workload

_MAX_NAMED = 2


def summary_of(section: Section, values: Values) -> str:
    """Return the section's state in a few words, as Markdown."""
    text = {
        "workload": _workload,
        "model": _model,
        "where": _where,
        "targets": _targets,
        "fleet": _fleet,
        "advanced": _advanced,
    }[section](values)
    return literal(text)


def _workload(values: Values) -> str:
    workload_id = str(values["workload"])
    try:
        found = load_workload(workload_id)  # one that was uploaded is in no list
    except InputError:
        return f"{workload_id} · {_load(values)}"
    means = found.expected_means
    lengths = f" · {figure(means.prompt_mean_tokens)} in / {figure(means.output_mean_tokens)} out" if means else ""
    return f"{found.name} · {_load(values)}{lengths}"


def _load(values: Values) -> str:
    if values[LOAD_KEY] == "Users":
        return f"{_figure(values['users'])} users"
    if values[LOAD_KEY] == "Tokens":
        return f"{_figure(values['tokens'])} tokens a day"
    return f"{_figure(values['rps'])} req/s"


def _figure(text: object) -> str:
    try:
        return figure(reading.number("", str(text)))
    except InputError:
        return str(text)


def _duration(text: object, unit: str) -> str:
    """Return a target as it is meant: the unit of one typed without is said."""
    try:
        return seconds(reading.duration(unit)("", str(text)))
    except InputError:
        return str(text)


def _model(values: Values) -> str:
    model_id = str(values["model"])
    cache = "" if values["kv"] == "auto" else f", KV {str(values['kv']).upper()}"
    return f"{model_names().get(model_id, model_id)} · {str(values['quant']).upper()}{cache}"


def _where(values: Values) -> str:
    chosen = values["gpus"] if isinstance(values["gpus"], list) else []
    names = gpu_names()
    shown = ", ".join(names.get(gpu_id, gpu_id) for gpu_id in chosen[:_MAX_NAMED])
    more = f" and {len(chosen) - _MAX_NAMED} more" if len(chosen) > _MAX_NAMED else ""
    place = " ".join(str(values[key]) for key in ("provider", "region") if values[key])
    parts = [f"{shown}{more}" if chosen else "every priced GPU", place, str(values["basis"])]
    return " · ".join(part for part in parts if part)


def _targets(values: Values) -> str:
    if values[OFFLINE_KEY]:
        return "offline, throughput only"
    named = [
        f"{name} ≤ {_duration(text, unit)}"
        for name, text, unit in (("TTFT", values["ttft"], "s"), ("TPOT", values["tpot"], "ms"))
        if text
    ]
    return f"p99 {' · '.join(named)}" if named else "none, throughput only"


def _fleet(values: Values) -> str:
    spares = str(values["spares"])
    try:
        counted = plural(reading.whole("", spares), "spare")
    except InputError:
        counted = f"{spares} spares"
    return f"{values['headroom']} headroom · {counted}"


def _advanced(values: Values) -> str:
    count = len(changed([field.key for field in FIELDS if field.section == "advanced"], values))
    return f"● {plural(count, 'change')}" if count else "defaults"

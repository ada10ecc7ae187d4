"""Every input of a scenario as a widget: its key, which is its name in the link, and the way from text to the document and back.

A widget holds text even where the document holds a number: what a link carries or a person types is then shown as it is and refused
in place, never replaced in silence by a default.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from planner.errors import InputError
from planner.scenario import Scenario
from planner.ui import reading
from planner.units import MS

Value = str | list[str] | bool | None
Values = dict[str, Value]
Section = Literal["workload", "model", "where", "targets", "fleet", "advanced"]

LOAD_KINDS = {"Requests": "rate", "Users": "users", "Tokens": "tokens_per_day"}
LOAD_KEY = "load"
OFFLINE_KEY = "offline"
_DEFAULTS = Scenario()


@dataclass(frozen=True, slots=True)
class Field:
    """One input.

    key : name of the widget and of the query parameter
    path : dotted name in the scenario document
    read : text to the document's value; InputError names `path`
    write : the document's value to text that reads back to exactly that value
    initial : text of a field that the default scenario leaves unset
    load : the way of stating load that it belongs to; None for every other field
    multiple, choice : a list of words, one word out of a list; text otherwise
    """

    key: str
    path: str
    section: Section
    label: str
    read: Callable[[str, str], Any]
    write: Callable[[Any], str]
    help: str | None = None
    placeholder: str | None = None
    initial: str = ""
    load: str | None = None
    multiple: bool = False
    choice: bool = False


def _text(value: float | str | None) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    for factor, suffix in ((1e12, "T"), (1e9, "B"), (1e6, "M")):
        short = f"{value / factor:g}{suffix}"
        if value >= factor and reading.number("", short) == value:
            return short
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e15 else repr(value)


def _share(value: float) -> str:
    short = f"{value * 100:g}%"
    return short if reading.share("", short) == value else repr(value)


def _duration(unit: str) -> Callable[[float | None], str]:
    def write(value_s: float | None) -> str:
        if value_s is None:
            return ""
        for factor, suffix in ((MS, "ms"), (1.0, "s")) if unit == "ms" else ((1.0, "s"), (MS, "ms")):
            short = f"{value_s / factor:g} {suffix}"
            if reading.duration(unit)("", short) == value_s:
                return short
        return f"{value_s!r} s"

    return write


def _prices(value: dict[str, float]) -> str:
    return ", ".join(f"{gpu_id} {price!r}" for gpu_id, price in sorted(value.items()))


def _basis(field: str, text: str) -> str:
    return reading.word(field, text).replace(" ", "_")


def _spaced(value: str) -> str:
    return value.replace("_", " ")


_PEAK_HELP = (
    "Rate to plan for ÷ the stated mean. Empty: a stated request rate is planned as it is; users and tokens a day take the "
    "workload's own busiest hour."
)
_LOG_HELP = "The engine's own start-up line; it replaces the computed KV capacity. Needs one GPU and one TP size."
_number, _whole, _maybe_number, _maybe_whole = (
    reading.number,
    reading.whole,
    reading.optional(reading.number),
    reading.optional(reading.whole),
)
_maybe_word = reading.optional(reading.word)
_RATE, _USERS, _TOKENS = LOAD_KINDS

FIELDS: tuple[Field, ...] = (
    Field("workload", "workload.id", "workload", "Lengths and arrivals", reading.word, _text,
          help="Real traces and named presets; upload your own on the Catalogue page.", choice=True),
    Field("rps", "workload.load.requests_per_s", "workload", "Requests a second, mean", _number, _text,
          initial="10", load=_RATE, placeholder="10"),
    Field("users", "workload.load.users", "workload", "Users", _whole, _text, initial="1000", load=_USERS,
          help="People who have access.", placeholder="1000 or 20k"),
    Field("active", "workload.load.active_share", "workload", "Active at once", reading.share, _share, initial="20%", load=_USERS,
          help="Share of the users who are active in the mean hour."),
    Field("rpm", "workload.load.requests_per_user_minute", "workload", "Requests a minute, each", _number, _text, initial="0.4",
          load=_USERS, help="Requests that one active user makes in a minute."),
    Field("tokens", "workload.load.tokens_per_day", "workload", "Tokens a day", _number, _text, initial="1B", load=_TOKENS,
          help="Prompt and output tokens together.", placeholder="500M or 10B"),
    Field("peak", "workload.peak_factor", "workload", "Peak ÷ mean", _maybe_number, _text,
          placeholder="from the workload", help=_PEAK_HELP),
    Field("model", "model.id", "model", "Model", reading.word, _text,
          help="Upload your own config.json on the Catalogue page.", choice=True),
    Field("quant", "model.quantization", "model", "Weights", reading.word, _text, choice=True),
    Field("kv", "model.kv_dtype", "model", "KV cache", reading.word, _text,
          help="auto: what the checkpoint of this precision uses.", choice=True),
    Field("gpus", "hardware.gpu_ids", "where", "GPUs", reading.word, _text, multiple=True,
          placeholder="Compare every priced GPU"),
    Field("tp", "hardware.tensor_parallel", "where", "Tensor parallel sizes", _whole, _text, multiple=True,
          placeholder="Every legal size"),
    Field("provider", "hardware.provider", "where", "Provider", _maybe_word, _text, placeholder="Any: the cheapest", choice=True),
    Field("region", "hardware.region", "where", "Region", _maybe_word, _text, placeholder="Any", choice=True),
    Field("basis", "hardware.price_basis", "where", "Price", _basis, _spaced, choice=True),
    Field("prices", "hardware.usd_per_gpu_hour", "where", "Your own prices, $ per GPU-hour", reading.prices, _prices,
          placeholder="h100-80g-sxm 2.10, l40s 0.90", help="A GPU id and its price, separated by commas; wins over the catalogue."),
    Field("ttft", "targets.ttft_p99_s", "targets", "p99 time to first token", reading.optional(reading.duration("s")),
          _duration("s"), placeholder="no target", help="Seconds unless you write ms. Empty: no target."),
    Field("tpot", "targets.tpot_p99_s", "targets", "p99 time per output token", reading.optional(reading.duration("ms")),
          _duration("ms"), placeholder="no target", help="Milliseconds unless you write s. Empty: no target."),
    Field("headroom", "fleet.headroom", "fleet", "Headroom", reading.share, _share,
          help="Share of a replica's capacity kept free at the planned rate."),
    Field("spares", "fleet.spare_replicas", "fleet", "Spare replicas", _whole, _text,
          help="Replicas that may be down while the targets still hold."),
    Field("version", "engine.version", "advanced", "vLLM version", reading.word, _text, choice=True),
    Field("seqs", "engine.max_num_seqs", "advanced", "max_num_seqs", _maybe_whole, _text, placeholder="chosen by the plan"),
    Field("budget", "engine.max_num_batched_tokens", "advanced", "max_num_batched_tokens", _maybe_whole, _text,
          placeholder="chosen by the plan"),
    Field("maxlen", "engine.max_model_len", "advanced", "max_model_len", _maybe_whole, _text, placeholder="the model's own"),
    Field("util", "engine.gpu_memory_utilization", "advanced", "gpu_memory_utilization", reading.optional(reading.share), _text,
          placeholder="the engine's default"),
    Field("block", "engine.block_size", "advanced", "block_size", _maybe_whole, _text, placeholder="the engine's default"),
    Field("kvlog", "engine.logged_kv_tokens", "advanced", "Logged GPU KV cache size, tokens", _maybe_whole, _text,
          placeholder="computed", help=_LOG_HELP),
    Field("calibration", "engine.calibration_id", "advanced", "Calibration record", _maybe_word, _text,
          placeholder="the shipped one", choice=True),
    Field("seed", "seed", "advanced", "Seed", _whole, _text, help="Same seed, same answer."),
)  # fmt: skip
BY_KEY = {field.key: field for field in FIELDS}
_LOADERS_NAMES = {
    "model": "model",
    "gpu": "gpus",
    "gpu_id": "gpus",
    "hardware": "provider",
    "quantization": "quant",
    "record": "calibration",
    "kv_dtype": "kv",
}
"""What the catalogues' loaders call a scenario's field in their complaints."""


def defaults() -> Values:
    """Return what every widget holds when the app opens without a link."""
    return values_of(_DEFAULTS)


def values_of(scenario: Scenario) -> Values:
    """Return the widget values that state a scenario; `document` reads them back to the same one."""
    document = scenario.model_dump()
    kinds = {kind: label for label, kind in LOAD_KINDS.items()}
    values: Values = {LOAD_KEY: kinds[scenario.workload.load.kind], OFFLINE_KEY: scenario.targets.offline}
    for field in FIELDS:
        values[field.key] = _value_of(field, document, scenario)
    return values


def _value_of(field: Field, document: dict[str, Any], scenario: Scenario) -> Value:
    if field.load is not None and LOAD_KINDS[field.load] != scenario.workload.load.kind:
        return field.initial
    if field.section == "targets" and scenario.targets.offline:
        return field.write(_get(_DEFAULTS.model_dump(), field.path))
    value = _get(document, field.path)
    if field.multiple:
        return [field.write(item) for item in value]
    return field.write(value) if value is not None or field.key in {"ttft", "tpot"} else ""


def document(values: Values) -> tuple[dict[str, Any], list[InputError]]:
    """Return the scenario document that the widgets state, and what could not be read in them.

    values : by widget key; a missing key takes the default
    """
    state = {**defaults(), **values}
    tree: dict[str, Any] = {"workload": {"load": {"kind": LOAD_KINDS[str(state[LOAD_KEY])]}}}
    faults: list[InputError] = []
    for field in FIELDS:
        if field.load is not None and field.load != state[LOAD_KEY]:
            continue
        try:
            value = None if field.section == "targets" and state[OFFLINE_KEY] else _read(field, state[field.key])
        except InputError as fault:
            faults.append(fault)
            continue
        _set(tree, field.path, value)
    return tree, faults


def _read(field: Field, value: Value) -> Any:  # noqa: ANN401 - a document holds any JSON value
    if field.multiple:
        return [field.read(field.path, item) for item in (value if isinstance(value, list) else [])]
    return field.read(field.path, str(value or ""))


def query_of(values: Values) -> list[tuple[str, str]]:
    """Return the query parameters of a link: every value that differs from the default, in the order of the form."""
    normal = defaults()
    pairs: list[tuple[str, str]] = []
    for key, value in {**normal, **values}.items():
        if value == normal[key]:
            continue
        if isinstance(value, list):
            pairs.extend((key, item) for item in value)
        else:
            pairs.append((key, str(value).lower() if isinstance(value, bool) else str(value or "")))
    return pairs


def field_of(path: str, load: object = None) -> Field | None:
    """Return the field that a complaint about `path` belongs to; a path inside a field (a list's item) belongs to it too.

    load : what the load is stated as, for a complaint about the whole of it
    """
    if path == "workload.load":
        return next((field for field in FIELDS if field.load is not None and field.load == load), None)
    if path in _LOADERS_NAMES:
        return BY_KEY[_LOADERS_NAMES[path]]
    owners = [field for field in FIELDS if path == field.path or path.startswith(f"{field.path}.")]
    return owners[0] if owners else None


def changed(keys: Sequence[str], values: Values) -> tuple[str, ...]:
    """Return those keys whose value differs from the default."""
    normal = defaults()
    return tuple(key for key in keys if values.get(key, normal[key]) != normal[key])


def _get(document: dict[str, Any], path: str) -> Any:  # noqa: ANN401
    value: Any = document
    for part in path.split("."):
        value = value[part]
    return value


def _set(tree: dict[str, Any], path: str, value: Any) -> None:  # noqa: ANN401
    *parents, last = path.split(".")
    for part in parents:
        tree = tree.setdefault(part, {})
    tree[last] = value

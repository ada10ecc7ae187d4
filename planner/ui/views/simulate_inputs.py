"""The Simulate page's own inputs: name in the link, text as people type it, and the replay settings that they state."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from planner.errors import InputError
from planner.plans.results import Plan
from planner.replay import ReplaySettings, can_replay_recorded, planned_rate_rps, replayed_candidate, settings_from_dict
from planner.ui import reading
from planner.ui.words import figure, plural

PREFIX = "sim-"
START_KEY = "sim-at"
Section = Literal["requests", "engine"]
_MAX_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Input:
    """One input; empty or the first choice takes the plan's value.

    field : of the replay settings
    choices : what a select offers, by what it means in the settings; None for text
    """

    key: str
    field: str
    section: Section
    label: str
    read: Callable[[str, str], Any] = reading.whole
    choices: Mapping[str, Any] | None = None
    help: str | None = None

    @property
    def default(self) -> str:
        """What the widget holds when nobody has changed it."""
        return next(iter(self.choices)) if self.choices is not None else ""


INPUTS: tuple[Input, ...] = (
    Input("sim-rate", "rate_rps", "requests", "Arrival rate (requests/s)", reading.number,
          help="Of this one replica. The same requests come closer together at a higher rate."),
    Input("sim-n", "requests", "requests", "Number of requests"),
    Input("sim-seed", "seed", "requests", "Seed", help="Same seed, same requests."),
    Input("sim-order", "order", "requests", "Source of requests", choices={"synthetic": None, "recorded order": "recorded"},
          help="Synthetic: drawn from the workload. Recorded order: the trace's own requests one after the other, with its own "
          "arrival times stretched to the rate."),
    Input("sim-cv", "arrival_cv", "requests", "Burstiness of arrivals (CV)", reading.number,
          help="Standard deviation ÷ mean of the gaps between arrivals: 1 is Poisson, 2 a few clients, 6 batch-like clients."),
    Input("sim-stop", "stop", "requests", "Outputs end", choices={"at max_tokens": None, "at a stop token": "eos"},
          help="The scheduler foresees max_tokens; a stop token wastes the row of the step that is already decided."),
    Input("sim-seqs", "max_num_seqs", "engine", "max_num_seqs"),
    Input("sim-budget", "max_num_batched_tokens", "engine", "max_num_batched_tokens"),
    Input("sim-async", "async_scheduling", "engine", "Async scheduling", choices={"as planned": None, "on": True, "off": False},
          help="On: a step is decided while the one before it runs."),
    Input("sim-prefix", "enable_prefix_caching", "engine", "Prefix caching", choices={"off": None, "on": True},
          help="The plan counts no hits. On: blocks of known prompts stay findable, which only some traces allow."),
)  # fmt: skip
BY_KEY = {each.key: each for each in INPUTS}
KEYS = (*BY_KEY, START_KEY)


@dataclass(frozen=True, slots=True)
class InputState:
    """What the widgets state: settings, or None with what can't be read, by key."""

    settings: ReplaySettings | None
    faults: Mapping[str, InputError]


def read_inputs(values: Mapping[str, str]) -> InputState:
    """Return the settings that the widgets state; values : by key, a missing one is the default.

    >>> read_inputs({"sim-n": "5k", "sim-async": "off"}).settings.requests
    5000
    """
    document: dict[str, Any] = {}
    faults: dict[str, InputError] = {}
    for each in INPUTS:
        text = (values.get(each.key) or "").strip()
        if not text:
            continue
        try:
            value = each.choices[text] if each.choices is not None else each.read(each.field, text)
        except InputError as fault:
            faults[each.key] = fault
            continue
        except KeyError:
            faults[each.key] = InputError(each.field, text, f"must be {_words(each.choices or ())}", "Choose one of these")
            continue
        if value is not None:
            document[each.field] = value
    if faults:
        return InputState(None, faults)
    try:
        return InputState(settings_from_dict(document), {})
    except InputError as fault:
        return InputState(None, {key_of(fault) or INPUTS[0].key: fault})


def key_of(fault: InputError) -> str | None:
    """Return the input that a complaint belongs to, whether the replay's settings or the engine made it."""
    name = fault.field.rpartition(".")[2]
    return next((each.key for each in INPUTS if each.field == name), None)


def complaints_of(query: Mapping[str, list[str]]) -> tuple[str, ...]:
    """Return a sentence for each parameter of a link that names no input of the page or no choice of one.

    >>> complaints_of({"sim-rate": ["5"], "sim-async": ["maybe"], "sim-cows": ["1"], "rps": ["x"]})[0]
    'The link says sim-async=maybe, which is none of as planned, on, off; the default is used.'
    """
    found: list[str] = []
    for key, texts in query.items():
        last = texts[-1] if texts else ""
        if not key.startswith(PREFIX):
            continue
        each = BY_KEY.get(key)
        if each is None and key != START_KEY:
            found.append(f"The link says {key[:_MAX_SHOWN]}={last[:_MAX_SHOWN]}, which no field is called; it is left out.")
        elif each is not None and each.choices is not None and last not in each.choices:
            known = ", ".join(each.choices)
            found.append(f"The link says {key}={last[:_MAX_SHOWN]}, which is none of {known}; the default is used.")
    return tuple(found)


def placeholders(plan: Plan) -> dict[str, str]:
    """Return what each empty field stands for, by key."""
    candidate = replayed_candidate(plan)
    knobs = candidate.knobs if candidate is not None else None
    shown = {
        "sim-rate": f"{figure(planned_rate_rps(plan))} as planned",
        "sim-n": f"{ReplaySettings().requests:,}",
        "sim-seed": f"{plan.scenario.seed}, the scenario's",
        "sim-cv": "the workload's own",
    }
    if knobs is not None:
        shown["sim-seqs"] = f"{knobs.max_num_seqs:,} as planned"
        shown["sim-budget"] = f"{knobs.max_num_batched_tokens:,} as planned"
    return shown


def offered(plan: Plan) -> tuple[Input, ...]:
    """Return the inputs that make sense for a plan: recorded order only where the workload has recorded times."""
    recorded = can_replay_recorded(plan.workload)
    return tuple(each for each in INPUTS if each.key != "sim-order" or recorded)


def summary_of(section: Section, settings: ReplaySettings, plan: Plan) -> str:
    """Return a section's state in a few words, for its folded line."""
    if section == "requests":
        rate = figure(settings.rate_rps or planned_rate_rps(plan))
        seed = plan.scenario.seed if settings.seed is None else settings.seed
        extras = [
            "recorded order" if settings.order == "recorded" else "",
            f"CV {figure(settings.arrival_cv)}" if settings.arrival_cv is not None else "",
            "stop tokens" if settings.stop == "eos" else "",
        ]
        return " · ".join(part for part in (f"{settings.requests:,} at {rate} req/s", f"seed {seed}", *extras) if part)
    changes = settings.engine_changes()
    return f"{plural(len(changes), 'change')} against the plan" if changes else "as planned"


def read_start(text: str) -> float | None:
    """Return the time from which steps are drawn [s]; None for around the longest step.

    >>> read_start("2 min"), read_start("")
    (120.0, None)
    """
    return reading.duration("s")("at", text) if text.strip() else None


def _words(choices: Any) -> str:  # noqa: ANN401 - any collection of words
    return ", ".join(choices)

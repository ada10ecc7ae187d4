"""The inputs of a question's view: name in the link, text as people type it, and the value that it states."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from planner.errors import InputError
from planner.ui import reading
from planner.ui.views.questions import FORMER_TITLES
from planner.units import MS

PREFIX = "q-"
_MAX_SHOWN = 60
VIEW, CASE = "view", "case"
"""The inputs that every group has: which of its views, and whose case."""
_WHOLE_FROM = 1000.0


@dataclass(frozen=True, slots=True)
class Input:
    """One input of a view.

    name : of the value that it states, unique in the view
    initial : text that the widget holds when nobody has changed it; it must read well
    read : text to value; ignored where `choices` are given
    low, high : bounds of a numeric value, both allowed
    choices : what a select offers, by what each word means
    slider : offer the choices as a slider, in their order
    """

    name: str
    label: str
    initial: str
    read: Callable[[str, str], Any] = reading.number
    low: float | None = None
    high: float | None = None
    choices: Mapping[str, Any] | None = None
    slider: bool = False
    help: str | None = None


Known = Mapping[str, Sequence[str] | None]
"""Words of each input of a group or a view; None where any text may stand."""


def complaints_of(query: Mapping[str, str], group: tuple[str, Known], view: tuple[str, Known]) -> tuple[str, ...]:
    """Return a sentence for each parameter of a link that names no input of the view shown, or none of a choice's words.

    query : of the link; group, view : name of each with its inputs. What belongs to other views isn't looked at.

    >>> complaints_of({"q-spike-cows": "1", "q-spike-for": "NaN"}, ("overload", {}), ("spike", {"for": None}))
    ('The link says q-spike-cows=1, which no field is called; it is left out.',)
    """
    known = {widget_key(name, each): words for name, inputs in (group, view) for each, words in inputs.items()}
    found = []
    for key, text in query.items():
        said = f"The link says {key[:_MAX_SHOWN]}={text[:_MAX_SHOWN]}"
        words = known.get(key)
        if key not in known and key.startswith(widget_key(view[0], "")):
            found.append(f"{said}, which no field is called; it is left out.")
        elif words is not None and FORMER_TITLES.get(text, text) not in words:
            found.append(f"{said}, which is none of {', '.join(words)}; the first of them is shown.")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a view's inputs state, by name.

    faults : what can't be read, by name; a view with faults isn't answered
    """

    values: Mapping[str, Any]
    faults: Mapping[str, InputError] = field(default_factory=dict)

    def number(self, name: str) -> float:
        """Return a numeric value."""
        return float(self.values[name])

    def whole(self, name: str) -> int:
        """Return a whole number."""
        return int(self.values[name])

    def word(self, name: str) -> str:
        """Return a word."""
        return str(self.values[name])

    @property
    def key(self) -> tuple[tuple[str, Any], ...]:
        """The values as something that names them: equal when they are."""
        return tuple(sorted(self.values.items()))


def widget_key(view: str, name: str) -> str:
    """Return the name of a widget, of the query parameter and of the session's value alike.

    >>> widget_key("little", "rate")
    'q-little-rate'
    """
    return f"{PREFIX}{view}-{name}"


def short(value: float) -> str:
    """Return a mean as an input shows it: whole from 1,000 on, else with four digits; never with an exponent.

    >>> short(12035.4), short(342.59), short(0.5)
    ('12035', '342.6', '0.5')
    """
    return f"{value:.0f}" if value >= _WHOLE_FROM else f"{value:.4g}"


def read_asked(inputs: Sequence[Input], texts: Mapping[str, str]) -> Asked:
    """Return what widgets state; texts : by input name, a missing or empty one is the initial.

    >>> rate = Input("rate", "Requests/s", "10", low=0.1, high=1e4)
    >>> read_asked([rate], {"rate": "2k"}).values["rate"], str(read_asked([rate], {"rate": "0"}).faults["rate"])
    (2000.0, "Requests/s is '0': must be at least 0.1. Raise it.")
    """
    values: dict[str, Any] = {}
    faults: dict[str, InputError] = {}
    for each in inputs:
        text = (texts.get(each.name) or "").strip() or each.initial
        try:
            values[each.name] = _value(each, text)
        except InputError as fault:
            faults[each.name] = fault
    return Asked(values, faults)


def _value(each: Input, text: str) -> Any:  # noqa: ANN401 - as the input reads it
    if each.choices is not None:
        if text not in each.choices:
            raise InputError(each.label, text[:_MAX_SHOWN], f"must be one of {', '.join(each.choices)}", "Choose one of these")
        return each.choices[text]
    value = each.read(each.label, text)
    if isinstance(value, int | float):
        if each.low is not None and value < each.low:
            raise InputError(each.label, text, f"must be at least {_written(each, each.low)}", "Raise it")
        if each.high is not None and value > each.high:
            raise InputError(each.label, text, f"must be at most {_written(each, each.high)}", "Lower it")
    return value


def _written(each: Input, bound: float) -> str:
    """Return a bound as its own input takes it: a bare number, or with the unit that the bare number doesn't mean.

    >>> _written(Input("tpot", "TPOT", "30 ms", reading.duration("ms"), low=1e-4), 1e-4)
    '0.1 ms'
    """
    bare = f"{bound:.0f}" if bound == int(bound) else f"{bound:g}"
    for text in (bare, f"{bound:g} s" if bound >= 1.0 else f"{bound / MS:g} ms"):
        with contextlib.suppress(InputError):
            if math.isclose(each.read("", text), bound):
                return text
    return bare

"""A plan as one HTML page to keep, print or send: no script, no font or picture from elsewhere, every name escaped."""

import datetime as dt
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, Template, select_autoescape

from planner.exporters.check import Check, check_of
from planner.exporters.flags import serve_command
from planner.hardware import load_gpu
from planner.models import load_model
from planner.plans import Plan
from planner.ui.charts.base import Row
from planner.ui.views.answer import further_changes, metrics
from planner.ui.views.candidates import met_frame, rejected_frame
from planner.ui.views.rows import curve_rows
from planner.ui.views.why import derivations
from planner.ui.words import DASH, day, figure, percent, plural, rate, seconds, stop
from planner.units import MS

_ASSETS = Path(__file__).parents[1] / "assets"
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 410.0, 10.0, 190.0
_MOST_REJECTED = 15
_LEFT_OUT = ("max_num_seqs", "max_num_batched_tokens", "Binds", "Region")  # a printed page is as wide as the others
_HEIGHT_OVER_TARGET = 1.6  # a curve shows its target and a little above it, not the climb at saturation


@dataclass(frozen=True, slots=True)
class Curve:
    """A latency over the arrival rate as an SVG draws it; places in its user units.

    mean, p99 : points of a polyline; target, target_y : None without a target; most_rate, most : ends of the axes, with units
    """

    title: str
    mean: str
    p99: str
    target: str | None
    target_y: float | None
    planned_x: float
    planned_y: float
    most_rate: str
    most: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table; numbers : columns to align on the right; more : rows that were left out."""

    title: str
    columns: tuple[str, ...]
    numbers: frozenset[str]
    rows: tuple[tuple[tuple[str, str], ...], ...]
    more: int


def report_html(plan: Plan, today: dt.date) -> str:
    """Return the plan as an HTML page: the answer, what was asked, the curves, what to run, what would change it, and why.

    today : marks an old price, and dates the report
    """
    chosen = plan.chosen
    deployment = chosen.deployment if chosen is not None else None
    targets = plan.scenario.targets
    curves = [curve(plan, "TTFT", targets.ttft_p99_s), curve(plan, "TPOT", targets.tpot_p99_s)]
    page = _template().render(
        plan=plan,
        today=day(today),
        stop=stop,
        figures=metrics(plan, today),
        asked=asked(plan),
        curves=[each for each in curves if each is not None],
        command=serve_command(deployment) if deployment is not None else None,
        check=_check(plan),
        changes=further_changes(plan),
        tables=(_met(plan), _rejected(plan)),
        derivations=derivations(plan),
    )
    return page + "\n"


@lru_cache(maxsize=1)
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_ASSETS), autoescape=select_autoescape(("jinja",)), trim_blocks=True, lstrip_blocks=True
    )
    return environment.get_template("report.html.jinja")


def asked(plan: Plan) -> list[tuple[str, str]]:
    """Return the scenario in the words of its fields."""
    scenario, lengths = plan.scenario, plan.lengths
    targets, fleet, hardware = scenario.targets, scenario.fleet, scenario.hardware
    named = [("TTFT", targets.ttft_p99_s), ("TPOT", targets.tpot_p99_s)]
    wanted = [f"{name} ≤ {seconds(target_s)}" for name, target_s in named if target_s is not None]
    gpus = [load_gpu(each).name for each in hardware.gpu_ids]
    means = f"{figure(lengths.prompt_mean_tokens)} prompt and {figure(lengths.output_mean_tokens)} output tokens on average"
    place = [each for each in (hardware.provider, hardware.region) if each]
    return [
        ("Workload", f"{plan.workload.name}: {means}"),
        ("Load", f"{plan.load.stated}; {rate(plan.load.peak_rps)} to plan for"),
        ("Model", f"{load_model(scenario.model.id).name}, {scenario.model.quantization.upper()}"),
        ("GPUs", ", ".join(gpus) or "every priced GPU"),
        ("Prices", " ".join((*place, hardware.price_basis.replace("_", " ")))),
        ("Targets, p99", ", ".join(wanted) or "none: throughput only"),
        ("Fleet", f"{percent(fleet.headroom)} headroom, {plural(fleet.spare_replicas, 'spare')}"),
        ("Engine", f"vLLM {scenario.engine.version}"),
    ]


def curve(plan: Plan, quantity: str, target_s: float | None) -> Curve | None:
    """Return a latency curve of the chosen replica; None where there is none. quantity : "TTFT" or "TPOT"."""
    rows, title = curve_rows(plan, quantity)
    planned = next((row for row in rows if row["planned"]), None)
    if planned is None or len(rows) < 2:
        return None
    most_rps = max(_number(row, "rate_rps") for row in rows)
    highest_ms = max(_number(row, "p99_ms") for row in rows)
    target_ms = None if target_s is None else target_s / MS
    most_ms = highest_ms if target_ms is None else min(highest_ms, _HEIGHT_OVER_TARGET * target_ms)
    most_ms = max(most_ms, _number(planned, "p99_ms"), target_ms or 0.0)

    def place(row: Row, column: str) -> tuple[float, float]:
        share = min(_number(row, column) / most_ms, 1.0)
        return round(_LEFT + (_RIGHT - _LEFT) * _number(row, "rate_rps") / most_rps, 1), round(_height(share), 1)

    def line(column: str) -> str:
        return " ".join(f"{x},{y}" for x, y in (place(row, column) for row in rows))

    x, y = place(planned, "p99_ms")
    return Curve(
        title=title,
        mean=line("mean_ms"),
        p99=line("p99_ms"),
        target=None if target_s is None else seconds(target_s),
        target_y=None if target_ms is None else round(_height(target_ms / most_ms), 1),
        planned_x=x,
        planned_y=y,
        most_rate=rate(most_rps),
        most=seconds(most_ms * MS),
    )


def _height(share: float) -> float:
    return _BOTTOM - (_BOTTOM - _TOP) * share


def _number(row: Row, column: str) -> float:
    value = row[column]
    return float(value) if isinstance(value, int | float) else 0.0


@dataclass(frozen=True, slots=True)
class _Shown:
    line: str
    text: str


def _check(plan: Plan) -> _Shown | None:
    if plan.chosen is None or plan.scenario.targets.offline:
        return None
    check = check_of(plan)
    return _Shown(check.line, check_text(check))


def check_text(check: Check) -> str:
    """Return what a check sends and what should come out, as one paragraph."""
    found = check.expected
    tpot = (
        ""
        if found.tpot_mean_s is None
        else f", TPOT {seconds(found.tpot_mean_s)} on average and {seconds(found.tpot_p99_s)} at p99"
    )
    return (
        f"It sends {check.number:,} requests of the workload at {rate(check.rate_rps)}, the rate of one replica, for "
        f"{seconds(found.lasts_s)}. For these very requests the simulator has TTFT {seconds(found.ttft_mean_s)} on average and "
        f"{seconds(found.ttft_p99_s)} at p99{tpot}. The Accuracy page compares the result; Calibrate fits a record to it."
    )


def _met(plan: Plan) -> Table:
    frame = met_frame(plan).drop(columns=list(_LEFT_OUT))
    return _table("Candidates that serve the scenario, cheapest first", frame.columns, frame.to_dict("records"), None)


def _rejected(plan: Plan) -> Table:
    frame = rejected_frame(plan)
    return _table("Rejected candidates", frame.columns, frame.to_dict("records"), _MOST_REJECTED)


def _table(title: str, columns: Iterable[str], rows: Sequence[Mapping[Hashable, object]], most: int | None) -> Table:
    names = tuple(columns)
    numbers = frozenset(name for name in names if any(_is_number(row[name]) for row in rows))
    shown = tuple(tuple((name, _cell(row[name])) for name in names) for row in rows[:most])
    return Table(title, names, numbers, shown, len(rows) - len(shown))


def _is_number(value: object) -> bool:
    """An absent text is NaN in a frame."""
    return isinstance(value, int | float) and math.isfinite(value)


def _cell(value: object) -> str:
    if isinstance(value, str):
        return value
    return figure(value) if isinstance(value, int | float) and math.isfinite(value) else DASH

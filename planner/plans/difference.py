"""Says what moved between two plans, and why: the inputs that changed, the figures that followed, and what binds now."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from planner.plans.explain import NO_TPOT, NO_TTFT
from planner.plans.results import Candidate, Plan
from planner.units import duration, per_second, percentage, three_figures

_SAME = 0.005


@dataclass(frozen=True, slots=True)
class Moved:
    """One figure before and after, as text; a figure that isn't there is None."""

    name: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed from one plan to the next.

    inputs : fields of the scenario, by dotted name
    figures : figures of the answer that moved by at least half a percent
    reason : one sentence on what binds now, and before if that was something else
    """

    inputs: tuple[Moved, ...]
    figures: tuple[Moved, ...]
    reason: str


def difference(before: Plan, after: Plan) -> Difference:
    """Return what moved from one plan to another."""
    inputs = tuple(_changed_inputs(before.scenario.model_dump(mode="json"), after.scenario.model_dump(mode="json")))
    old, new = _figures(before), _figures(after)
    names = list(dict.fromkeys([*old, *new]))
    moved = tuple(_moved(name, old.get(name), new.get(name)) for name in names if _differs(old.get(name), new.get(name)))
    return Difference(inputs, moved, _reason(before, after))


def _changed_inputs(old: Any, new: Any, path: str = "") -> Iterator[Moved]:  # noqa: ANN401 - a JSON document
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _changed_inputs(old.get(name), new.get(name), f"{path}.{name}" if path else name)
    elif old != new:
        yield Moved(path, _shown(old), _shown(new))


def _shown(value: Any) -> str | None:  # noqa: ANN401 - a JSON value
    if value is None or value == []:
        return None
    if isinstance(value, float):
        return f"{value:g}"
    return ", ".join(str(entry) for entry in value) if isinstance(value, list) else str(value)


_Figure = tuple[float | None, str]


def _figures(plan: Plan) -> dict[str, _Figure]:
    chosen = plan.chosen
    if chosen is None:
        return {}
    found: dict[str, _Figure] = {"GPU": (None, f"{chosen.gpu_name}, TP{chosen.tensor_parallel}")}
    if chosen.replicas is not None:
        gpus = chosen.replicas.total * chosen.tensor_parallel
        found["GPUs"] = (gpus, f"{gpus:,}")
    if chosen.cost is not None:
        found["cost"] = (chosen.cost.usd_per_day, f"${chosen.cost.usd_per_day:,.0f}/day")
    if chosen.latency is not None and not plan.scenario.targets.offline:
        ttft_s = chosen.latency.ttft_p99_s
        found["p99 TTFT"] = (ttft_s, NO_TTFT if ttft_s is None else duration(ttft_s))
        tpot_s = chosen.latency.tpot_p99_s
        found["p99 TPOT"] = (tpot_s, NO_TPOT if tpot_s is None else duration(tpot_s))
    if chosen.capacity_rps is not None:
        found["capacity of a replica"] = (chosen.capacity_rps, per_second(chosen.capacity_rps))
    if chosen.knobs is not None:
        for name in ("max_num_seqs", "max_num_batched_tokens"):
            found[name] = (getattr(chosen.knobs, name), str(getattr(chosen.knobs, name)))
    return found


def _differs(old: _Figure | None, new: _Figure | None) -> bool:
    if old is None or new is None:
        return old is not new
    if old[0] is None or new[0] is None:
        return old[1] != new[1]
    return abs(new[0] - old[0]) > _SAME * max(abs(old[0]), abs(new[0]))


def _moved(name: str, old: _Figure | None, new: _Figure | None) -> Moved:
    return Moved(name, old[1] if old else None, new[1] if new else None)


def _reason(before: Plan, after: Plan) -> str:
    if after.chosen is None:
        return "Nothing serves the scenario any more." if before.chosen is not None else "Still nothing serves the scenario."
    now = _binding(after.chosen)
    if before.chosen is None:
        return f"Now it can be served; {now} binds."
    then = _binding(before.chosen)
    sizes = _sizing(before, after)
    return f"{sizes}{now} binds as before." if now == then else f"{sizes}{now} binds now; before, {then} did."


def _sizing(before: Plan, after: Plan) -> str:
    """Return why the number of replicas moved, where it did: load, capacity of a replica, or both."""
    if before.chosen is None or after.chosen is None or before.chosen.replicas is None or after.chosen.replicas is None:
        return ""
    old, new = before.chosen.replicas, after.chosen.replicas
    if old.needed == new.needed:
        return ""
    causes = []
    if abs(new.rate_rps / old.rate_rps - 1.0) > _SAME:
        causes.append(f"the planned rate went from {three_figures(old.rate_rps)} to {per_second(new.rate_rps)}")
    if abs(new.capacity_rps / old.capacity_rps - 1.0) > _SAME:
        causes.append(f"a replica carries {three_figures(new.capacity_rps)} instead of {per_second(old.capacity_rps)}")
    if old.headroom != new.headroom:
        causes.append(f"headroom is {percentage(new.headroom)} instead of {percentage(old.headroom)}")
    return f"{new.needed} instead of {old.needed} replicas carry the load because {' and '.join(causes)}. " if causes else ""


def _binding(chosen: Candidate) -> str:
    return chosen.binds or "nothing"

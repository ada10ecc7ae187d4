"""The known misses of a source in a table: where, how far off, and why."""

from collections.abc import Mapping, Sequence

import pandas as pd

from planner.accuracy.misses import Miss, misses_of
from planner.accuracy.shipped import GroupPart, ShippedAccuracy
from planner.exporters.table import spreadsheet_safe
from planner.ui.views.accuracy import ENGINES, METRICS
from planner.ui.views.calibrate_fit import signed

UNEXPLAINED = "Not explained. "
_MOST_NAMED = 2


def misses_frame(source: ShippedAccuracy, gpus: Mapping[str, str], models: Mapping[str, str]) -> pd.DataFrame:
    """Return the known misses of a source, the largest first; gpus, models : names by id."""
    return pd.DataFrame([_row(miss, groups, gpus, models) for miss, groups in misses_of(source)])


def _row(miss: Miss, groups: Sequence[GroupPart], gpus: Mapping[str, str], models: Mapping[str, str]) -> dict[str, object]:
    where = (
        _named([models.get(group.model, group.model) for group in groups], "models"),
        ENGINES.get(miss.engine, miss.engine),
        _named([gpus.get(group.gpu, group.gpu) for group in groups], "GPUs"),
    )
    ends = (signed(end([group.errors[miss.metric].bias_pct for group in groups])) for end in (min, max))
    return {
        "Where": spreadsheet_safe("{} under {} on {}".format(*where)),
        "Error": f"{METRICS[miss.metric]} {' to '.join(dict.fromkeys(ends))}",
        "Why": miss.reason if miss.explained else f"{UNEXPLAINED}{miss.reason}",
    }


def _named(names: Sequence[str], several: str) -> str:
    """Return one or two names, or how many there are."""
    found = list(dict.fromkeys(names))
    return " and ".join(found) if len(found) <= _MOST_NAMED else f"{len(found)} {several}"

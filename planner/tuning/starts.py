"""Where a fit begins when its prior is far off: a machine slower in everything, with and without costs for each sequence."""

import math
from collections.abc import Sequence

import numpy as np

from planner.calibration.fit.parameters import FreeParameter
from planner.tuning.observations import Observed
from planner.tuning.served import Floats

NEAR = 0.5
"""A prior whose predictions lie within this of the data in logarithms [1] is where the fit begins."""

_RATES = (
    "memory_efficiency.",
    "compute_efficiency.",
    "expert_compute_efficiency.",
    "attention_efficiency",
    "kv_read_efficiency",
    "all_reduce.",
)
_EACH = "host.exposed_host_s_per_sequence"
_SHARES = (0.0, 0.05, 0.3)


def starts_of(parameters: Sequence[FreeParameter], items: Sequence[Observed], before: Sequence[Floats]) -> tuple[Floats, ...]:
    """Return the logarithms at which to begin.

    before : what the prior predicts for every figure of every run

    Near the data the prior alone. Far from them every rate is lowered and every constant raised by the ratio of measured to
    predicted times; and since a constant that is a thousandth of a step has no slope to follow, the cost of each sequence is also
    tried at 5 and 30 % of the usual time per token, shared by the sequences in flight.
    """
    centre = np.array([free.start for free in parameters])
    ratio = float(np.median(np.concatenate([np.log(item.measured / guess) for item, guess in zip(items, before, strict=True)])))
    if abs(ratio) < NEAR:
        return (centre,)
    moved = np.array([free.start + (-ratio if _is_rate(free.path) else ratio) for free in parameters])
    places = [place for place, free in enumerate(parameters) if free.path == _EACH]
    starts = []
    for share in _SHARES:
        start = moved.copy()
        if share and places:
            start[places[0]] = math.log(share * _usual_s_per_sequence(items))
        starts.append(start)
    return tuple(starts)


def _is_rate(path: str) -> bool:
    return path.startswith(_RATES) and not path.endswith("alpha_s")


def _usual_s_per_sequence(items: Sequence[Observed]) -> float:
    """Return the median over the runs of the time per token divided by the sequences in flight [s/seq]."""
    times = [
        float(value) / max(item.sequences, 1.0)
        for item in items
        for wanted, value in zip(item.wanted, item.measured, strict=True)
        if wanted.metric in {"tpot", "itl"} and wanted.name in {"mean", "p50"}
    ]
    return float(np.median(times)) if times else 1e-4

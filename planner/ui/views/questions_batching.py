"""Inputs that several questions have: the targets, and the textbook's setting."""

from planner.analysis.case import Case
from planner.ui import reading
from planner.ui.views.question_inputs import Input
from planner.ui.words import NBSP, seconds

ASSUMED_TTFT_S = 1.0
ASSUMED_TPOT_S = 0.030
TEXTBOOK_CONTEXT = 2048.0
TEXTBOOK_TPOT_S = 0.012
_SHORTEST_S = 1e-4
_LONGEST_S = 3600.0
_OPEN = "The scenario leaves this target open; this one is assumed here"


def ttft_input(case: Case) -> Input:
    """Return the TTFT target: the scenario's, or an assumed one where it has none; seconds where no unit is written."""
    return _target("TTFT", case.ttft_p99_s, ASSUMED_TTFT_S, "s")


def tpot_input(case: Case, target_s: float | None = None) -> Input:
    """Return the TPOT target: as given [s], else the scenario's, or an assumed one; milliseconds where no unit is written."""
    return _target("TPOT", target_s or case.tpot_p99_s, ASSUMED_TPOT_S, "ms")


def beside_plan(case: Case, budget: int | None, question: str) -> str:
    """Return why a view's budget [token] isn't the replica's own; nothing where it is, or for the textbook, which has no plan.

    question : what the view asks instead, as the end of a sentence
    """
    own = case.limits.max_num_batched_tokens
    if case.textbook or budget in (None, own):
        return ""
    return (
        f"The replica runs {own:,}: unless the scenario states it, a plan takes the pair that carries the most requests/s within "
        f"both p99 targets, as that decides how many GPUs are needed. Here the question is {question}."
    )


def _target(metric: str, target_s: float | None, assumed_s: float, unit: str) -> Input:
    return Input(
        metric.lower(),
        f"{metric} target, assumed" if target_s is None else f"{metric} target",
        seconds(assumed_s if target_s is None else target_s).replace(NBSP, " "),
        reading.duration(unit),
        low=_SHORTEST_S,
        high=_LONGEST_S,
        help=_OPEN if target_s is None else None,
    )

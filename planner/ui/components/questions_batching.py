"""The Batching questions."""

from planner.ui.components import questions_batching_adaptive as adaptive
from planner.ui.components import questions_batching_budget as budget
from planner.ui.components import questions_batching_goodput as goodput
from planner.ui.components import questions_batching_knobs as knobs
from planner.ui.components import questions_batching_static as static
from planner.ui.components import questions_batching_sweep as sweep
from planner.ui.components.questions import View

VIEWS: tuple[View, ...] = (static.VIEW, budget.VIEW, goodput.VIEW, knobs.VIEW, sweep.VIEW, adaptive.VIEW)

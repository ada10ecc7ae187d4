"""The Overload questions."""

from planner.ui.components import questions_overload_watch as watch
from planner.ui.components.questions import View

VIEWS: tuple[View, ...] = (watch.WATCH, watch.DRIFT)

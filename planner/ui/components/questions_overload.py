"""The Overload questions."""

from planner.ui.components import questions_overload_admit as admit
from planner.ui.components import questions_overload_restore as restore
from planner.ui.components import questions_overload_spike as spike
from planner.ui.components import questions_overload_watch as watch
from planner.ui.components.questions import View

VIEWS: tuple[View, ...] = (spike.VIEW, admit.VIEW, restore.VIEW, watch.WATCH, watch.DRIFT)

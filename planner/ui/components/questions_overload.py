"""The Overload questions."""

from planner.ui.components.questions import View

VIEWS: tuple[View, ...] = ()

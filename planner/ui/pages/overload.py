"""The Overload page of the questions."""

from planner.ui.components import questions
from planner.ui.components.questions_overload import VIEWS


def main() -> None:
    """Draw the view that is chosen."""
    questions.group_page("overload", VIEWS)


if __name__ == "__main__":
    main()

"""The Offline page of the questions."""

from planner.ui.components import questions
from planner.ui.components.questions_offline import VIEWS


def main() -> None:
    """Draw the view that is chosen."""
    questions.group_page("offline", VIEWS)


if __name__ == "__main__":
    main()

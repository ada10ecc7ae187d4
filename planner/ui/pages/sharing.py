"""The Sharing page of the questions."""

from planner.ui.components import questions
from planner.ui.components.questions_sharing import VIEWS


def main() -> None:
    """Draw the view that is chosen."""
    questions.group_page("sharing", VIEWS)


if __name__ == "__main__":
    main()

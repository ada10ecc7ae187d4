"""The Speculation page of the questions."""

from planner.ui.components import questions
from planner.ui.components.questions_speculation import VIEWS


def main() -> None:
    """Draw the view that is chosen."""
    questions.group_page("speculation", VIEWS)


if __name__ == "__main__":
    main()

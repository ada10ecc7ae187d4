"""The Accuracy page: how far predictions were off on measured results, the misses first, and on the user's own."""

from planner.accuracy.shipped import shipped_accuracy
from planner.ui.components import accuracy, answer


def main() -> None:
    """Draw the page."""
    answer.notices()
    sources = shipped_accuracy()
    accuracy.answer(sources)
    chosen, metric = accuracy.source_chosen(sources)
    accuracy.source(chosen, metric)
    accuracy.every_source(sources)
    accuracy.steps()


if __name__ == "__main__":
    main()

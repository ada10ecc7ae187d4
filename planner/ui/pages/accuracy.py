"""The Accuracy page: how far predictions were off on measured results, the misses first, and on the user's own."""

from planner.accuracy.shipped import shipped_accuracy
from planner.scenario import Scenario
from planner.ui.components import accuracy, accuracy_own, answer
from planner.ui.inputs import scenario_state
from planner.ui.views.calibrate import in_use


def main() -> None:
    """Draw the page; without a readable scenario, the default one stands in for what a benchmark doesn't state."""
    answer.notices()
    sources = shipped_accuracy()
    accuracy.answer(sources)
    chosen, metric = accuracy.source_chosen(sources)
    accuracy.source(chosen, metric)
    scenario = scenario_state().scenario or Scenario()
    accuracy_own.own(in_use(scenario, None).place, scenario.engine.calibration_id)
    accuracy.every_source(sources)
    accuracy.steps()


if __name__ == "__main__":
    main()

"""The Accuracy page: how far predictions were off on measured results, the misses first, and on the user's own."""

from planner.accuracy.shipped import shipped_accuracy
from planner.errors import InputError
from planner.scenario import Scenario
from planner.ui.components import accuracy, accuracy_misses, accuracy_own, answer
from planner.ui.inputs import scenario_state
from planner.ui.views.calibrate import in_use
from planner.ui.views.calibrate_collect import Place


def main() -> None:
    """Draw the page; without a readable scenario, the default one stands in for what a benchmark doesn't state."""
    answer.notices()
    sources = shipped_accuracy()
    accuracy.answer(sources)
    chosen, metric = accuracy.source_chosen(sources)
    accuracy_misses.known(chosen)
    accuracy.source(chosen, metric)
    accuracy_own.own(*_stated())
    accuracy.every_source(sources)
    accuracy.steps()
    accuracy.recorded_run()


def _stated() -> tuple[Place, str | None]:
    """Return the place and the record that the scenario states, or the default one's where what it names isn't there."""
    scenario = scenario_state().scenario or Scenario()
    try:
        return in_use(scenario, None).place, scenario.engine.calibration_id
    except InputError:
        return in_use(Scenario(), None).place, None


if __name__ == "__main__":
    main()

"""The Calibrate page: what the plan's step times rest on, how to measure one's own, and a fit to what was measured."""

from planner.errors import InputError
from planner.ui.components import answer, calibrate, calibrate_fit
from planner.ui.inputs import scenario_state
from planner.ui.views.calibrate import in_use


def main() -> None:
    """Draw the page."""
    answer.notices()
    state = scenario_state()
    plan = calibrate.planned(state)
    if state.scenario is None:
        return
    try:
        used = in_use(state.scenario, plan)
    except InputError:
        if plan is None:
            return  # the plan was refused for the same reason, which is said already
        raise
    calibrate.in_use(used)
    calibrate.measure(used)
    calibrate_fit.fit(state.scenario, used.place)
    calibrate.records(state.scenario, used.record)


if __name__ == "__main__":
    main()

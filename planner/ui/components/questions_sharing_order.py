"""The view on the order of service in a rush."""

from collections.abc import Sequence

from planner.analysis.case import Case
from planner.analysis.job_order import known_part, rush_waits
from planner.analysis.job_order_simulated import Rush, SimulatedRush, jobs_of_rush, simulated_rush
from planner.ui import reading
from planner.ui.charts.curves import Axis, curves
from planner.ui.charts.sharing import dots
from planner.ui.components.common import show, side_by_side
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views import questions_sharing_order as words
from planner.ui.views.question_inputs import Asked, Input


def _inputs(case: Case) -> Sequence[Input]:
    seqs = words.default_seqs(case)
    bound = "A job goes first once it has waited so many times the longest wait of first come, first served"
    return (
        Input("load", "Arrivals, × capacity", "1.5", low=0.3, high=10.0),
        Input("n", "Requests in the rush", f"{words.default_count(case)}", reading.whole, low=100, high=words.MOST_REQUESTS),
        Input("lengths", "Lengths", words.default_lengths(case), choices=words.LENGTHS),
        Input("sigma", "Predictor's error σ", "0.5", low=0.0, high=5.0, help="Standard deviation of ln(predicted ÷ true output)"),
        Input("patience", "Bound on the wait (× worst)", "1", low=0.05, high=20.0, help=bound),
        Input("seqs", "max_num_seqs", f"{seqs}", reading.whole, low=1, high=case.limits.max_num_batched_tokens),
    )


def _draw(case: Case, asked: Asked) -> None:
    case = case.with_limits(max_num_seqs=asked.whole("seqs"))
    cv2 = asked.values["lengths"]
    rush = Rush(asked.whole("n"), asked.number("load"), cv2, asked.number("sigma"), asked.number("patience"))
    jobs = jobs_of_rush(case, rush)
    fluid = rush_waits(jobs.work, rush.load)
    known = known_part(jobs.requests.prompt_tokens, jobs.output_work)
    say(fluid.explanation)

    def work(tell: Tell) -> SimulatedRush:
        return simulated_rush(case, rush, jobs, tell)

    found = simulated("order", case, asked, work)
    if found is not None:
        _charts(rush, found)
    beside(words.order_rows(fluid, rush, jobs, found), "Waits by formula and simulated")
    why(words.order_formulas(fluid, known, jobs), words.order_notes(case, rush, jobs, found))
    setting(words.order_setting(rush, found), None if found is None else words.order_code(found), "python")


def _charts(rush: Rush, found: SimulatedRush) -> None:
    show(dots(words.order_title(found), "TTFT (s)", words.order_dots(found)), "chart-q-order")
    left, right = side_by_side()
    mean = Axis("Mean TTFT (s)", log=False)
    with left:
        axes = (Axis("Arrivals over capacity", log=False), mean)
        show(
            curves(words.load_title(found), axes, words.load_curves(found), marks=words.load_marks(rush, found)),
            "chart-q-order-load",
        )
    with right:
        axes = (Axis("Predictor's error σ", log=False), mean)
        drawn = words.error_curves(found)
        chart = curves(words.error_title(found), axes, drawn, words.error_rules(found), words.error_marks(rush, found))
        show(chart, "chart-q-order-error")
    axes = (Axis("Wait after which a job goes first (s)", log=False), Axis("TTFT (s)", log=False))
    show(curves(words.ageing_title(found), axes, words.ageing_curves(found), words.ageing_rules(found)), "chart-q-order-ageing")


ORDER = View("order", "Who goes first?", _inputs, _draw)

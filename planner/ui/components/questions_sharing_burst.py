"""The view on head-of-line blocking: one long prompt and short ones."""

from collections.abc import Sequence

from planner.analysis.case import Case
from planner.analysis.head_of_line import head_of_line
from planner.analysis.head_of_line_simulated import Burst, BurstRun, simulated_bursts
from planner.ui import reading
from planner.ui.charts.sharing import dots
from planner.ui.components.common import show
from planner.ui.components.questions import View, beside, say, setting, simulated, why
from planner.ui.components.simulate_jobs import Tell
from planner.ui.views.question_inputs import Asked, Input
from planner.ui.views.questions_sharing_burst import (
    burst_code,
    burst_dots,
    burst_notes,
    burst_rows,
    burst_setting,
    burst_title,
    default_burst,
)


def _inputs(case: Case) -> Sequence[Input]:
    usual, longest = default_burst(case)
    return (
        Input("long", "Tokens of the long prompt", f"{usual.long_tokens}", reading.whole, low=1, high=longest),
        Input("short", "Tokens of a short prompt", f"{usual.short_tokens}", reading.whole, low=1, high=longest),
        Input("n", "Short prompts behind it", f"{usual.shorts}", reading.whole, low=1, high=200),
        Input(
            "cut",
            "Chunk threshold (tokens)",
            f"{usual.threshold_tokens}",
            reading.whole,
            low=16,
            high=longest,
            help="--long-prefill-token-threshold: most prompt tokens of one request in a step",
        ),
    )


def _draw(case: Case, asked: Asked) -> None:
    usual, _ = default_burst(case)
    burst = Burst(asked.whole("long"), asked.whole("short"), asked.whole("n"), usual.output_tokens, asked.whole("cut"))
    found = head_of_line(float(burst.long_tokens), float(burst.short_tokens), burst.shorts, case.coefficients)
    say(found.explanation)

    def work(tell: Tell) -> Sequence[BurstRun]:
        tell("Serving the burst under each order", 0.1)
        return simulated_bursts(case, burst)

    runs = simulated("hol", case, asked, work)
    if runs is not None:
        show(dots(burst_title(runs), "TTFT (s)", burst_dots(runs)), "chart-q-hol")
    beside(burst_rows(found, runs), "Waits by formula and simulated")
    why((found.explanation.formula,), burst_notes(burst, case.limits.max_num_batched_tokens))
    setting(burst_setting(burst, runs), burst_code(burst))


BURST = View("hol", "Behind a long prompt?", _inputs, _draw)

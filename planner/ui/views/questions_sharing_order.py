"""What the view on the order of service shows: its dots, curves and figures beside each other, its sentences."""

from collections.abc import Sequence

from planner.analysis.case import Case
from planner.analysis.head_of_line_simulated import FEEDBACK, FIRST_COME, SHORTEST_PROMPT, Enforced
from planner.analysis.job_order import KnownPart, RushWaits
from planner.analysis.job_order_simulated import (
    AGED,
    SMALLEST_KNOWN,
    SMALLEST_PREDICTED,
    Jobs,
    Rush,
    SimulatedRush,
)
from planner.ui.charts.curves import Curve, Mark, Rule
from planner.ui.charts.sharing import Dot
from planner.ui.colours import ACCENT, GREY, HUES
from planner.ui.views.questions import Beside
from planner.ui.views.questions_sharing_burst import ENFORCED_WORDS
from planner.ui.words import DASH, figure, percent, plural, seconds
from planner.units import MS

OWN_LENGTHS = "As in the workload"
LENGTHS: dict[str, float | None] = {OWN_LENGTHS: None, "Exponential": 1.0, "Heavy (squared CV 4)": 4.0}
_MEAN, _P99, _WORST = "mean", "p99", "worst"
_TEXTBOOK_SEQS = 64
_LEAST_REQUESTS, _FILLS = 800, 4
MOST_REQUESTS = 3000


def default_seqs(case: Case) -> int:
    """Return the sequences that the view opens with: the replica's own; the textbook's so few that a short rush fills them."""
    return min(case.limits.max_num_seqs, _TEXTBOOK_SEQS) if case.textbook else case.limits.max_num_seqs


def default_count(case: Case) -> int:
    """Return the requests that the view opens with: enough to fill the replica's places several times over."""
    return min(max(_LEAST_REQUESTS, _FILLS * default_seqs(case)), MOST_REQUESTS)


def default_lengths(case: Case) -> str:
    """Return the lengths that the view opens with; the textbook's requests are all equal, which no order can improve."""
    return "Exponential" if case.textbook else OWN_LENGTHS


def span_s(rush: Rush, jobs: Jobs) -> float:
    """Return how long the rush lasts [s]."""
    return float(jobs.at(rush.load).arrival_s[-1])


def order_dots(found: SimulatedRush) -> Sequence[Dot]:
    """Return mean, p99 and worst TTFT of each order."""
    dots: list[Dot] = []
    for run in found.orders:
        label = f"{run.name}{_enforced(run.enforced)}"
        again = f", {figure(run.recomputed_tokens)} tokens computed again" if run.recomputed_tokens else ""
        note = f"mean time to the last token {seconds(run.e2e_mean_s)}{again}"
        values = {_MEAN: run.ttft_mean_s, _P99: run.ttft_p99_s, _WORST: run.ttft_worst_s}
        dots += [Dot(label, series, value, seconds(value), note) for series, value in values.items()]
    return dots


def _enforced(how: Enforced) -> str:
    return ENFORCED_WORDS[how]


def order_title(found: SimulatedRush) -> str:
    """Return the finding on the orders."""
    first, small = found.order(FIRST_COME), found.order(SMALLEST_PREDICTED)
    if small.ttft_mean_s > 0.9 * first.ttft_mean_s:
        return (
            f"Order changes little here: mean TTFT {seconds(first.ttft_mean_s)} under first come, {seconds(small.ttft_mean_s)} "
            "with the smallest first"
        )
    return (
        f"Smallest predicted first: mean TTFT {seconds(first.ttft_mean_s)} → {seconds(small.ttft_mean_s)}, "
        f"worst {seconds(first.ttft_worst_s)} → {seconds(small.ttft_worst_s)}"
    )


def load_curves(found: SimulatedRush) -> Sequence[Curve]:
    """Return mean TTFT against load under three orders."""
    points = found.by_load
    return (
        Curve("first come", [(point.load, point.fcfs_s) for point in points], GREY, name_at=0.75),
        Curve(
            "shortest prompt",
            [(point.load, point.shortest_prompt_s) for point in points],
            HUES[1],
            name_at=1.0,
            name_place="above left",
        ),
        Curve(
            "smallest job, known",
            [(point.load, point.smallest_job_s) for point in points],
            ACCENT,
            name_at=0.7,
            name_place="below right",
        ),
    )


def load_marks(rush: Rush, found: SimulatedRush) -> Sequence[Mark]:
    """Return the chosen load on the curve of first come, first served."""
    at = next(point for point in found.by_load if point.load == rush.load)
    return (Mark(at.load, at.fcfs_s, f"chosen: {rush.load:g}×", GREY, place="above left"),)


def load_title(found: SimulatedRush) -> str:
    """Return the finding on load."""
    calm = [point for point in found.by_load if point.load <= 0.85]
    saved_s = max(point.fcfs_s - point.smallest_job_s for point in calm)
    if saved_s < MS:
        return "Below capacity order saves nothing: it matters once a queue has formed"
    return f"Below capacity order saves at most {seconds(saved_s)}: it matters once a queue has formed"


def error_curves(found: SimulatedRush) -> Sequence[Curve]:
    """Return mean TTFT against the predictor's error."""
    return (
        Curve(
            "smallest predicted job",
            [(point.sigma, point.ttft_mean_s) for point in found.by_error],
            ACCENT,
            name_at=0.75,
            name_place="below right",
        ),
    )


def error_rules(found: SimulatedRush) -> Sequence[Rule]:
    """Return what needs no predictor, as rules."""
    first, prompt = found.order(FIRST_COME), found.order(SHORTEST_PROMPT)
    return (
        Rule("y", first.ttft_mean_s, f"first come {seconds(first.ttft_mean_s)}"),
        Rule("y", prompt.ttft_mean_s, f"shortest prompt {seconds(prompt.ttft_mean_s)}"),
    )


def error_marks(rush: Rush, found: SimulatedRush) -> Sequence[Mark]:
    """Return the chosen error, with its agreement of ranks."""
    at = next(point for point in found.by_error if point.sigma == rush.sigma)
    agreement = "" if at.agreement is None else f", τ {at.agreement:.2f}"
    return (Mark(at.sigma, at.ttft_mean_s, f"chosen: σ {rush.sigma:g}{agreement}", place="below right"),)


def error_title(found: SimulatedRush) -> str:
    """Return the error from which on a predictor is worth no more than the prompt's length."""
    prompt = found.order(SHORTEST_PROMPT).ttft_mean_s
    worse = [point for point in found.by_error if point.ttft_mean_s >= prompt]
    if not worse:
        return "At every error tried, a predictor beats the prompt's length alone"
    if worse[0].sigma == 0.0:
        return "The prompt's length alone does as well as knowing all lengths"
    agreement = "" if worse[0].agreement is None else f" (Kendall's τ {worse[0].agreement:.2f})"
    return f"From an error of σ {worse[0].sigma:g}{agreement} on, a predictor does no better than the prompt's length alone"


def ageing_curves(found: SimulatedRush) -> Sequence[Curve]:
    """Return mean and worst TTFT against the bound on the wait; the bound at which nobody ages is left out."""
    points = found.by_ageing
    return (
        Curve("worst TTFT", [(point.ageing_s, point.ttft_worst_s) for point in points], HUES[1], name_at=1.0),
        Curve("mean TTFT", [(point.ageing_s, point.ttft_mean_s) for point in points], ACCENT, name_at=1.0),
    )


def ageing_rules(found: SimulatedRush) -> Sequence[Rule]:
    """Return the worst wait under both extremes."""
    first, small = found.order(FIRST_COME), found.order(SMALLEST_PREDICTED)
    return (
        Rule("y", first.ttft_worst_s, f"worst, first come {seconds(first.ttft_worst_s)}"),
        Rule("y", small.ttft_worst_s, f"worst, no bound {seconds(small.ttft_worst_s)}"),
    )


def ageing_title(found: SimulatedRush) -> str:
    """Return what the bound does to starvation."""
    small, aged = found.order(SMALLEST_PREDICTED), found.order(AGED)
    return (
        f"A bound on the wait cuts starvation from {seconds(small.ttft_worst_s)} to {seconds(aged.ttft_worst_s)} and brings the "
        f"mean from {seconds(small.ttft_mean_s)} to {seconds(aged.ttft_mean_s)}"
    )


def order_rows(fluid: RushWaits, rush: Rush, jobs: Jobs, found: SimulatedRush | None) -> tuple[Beside, ...]:
    """Return the fluid's waits beside the simulated TTFT."""
    lasts_s = span_s(rush, jobs)
    first = None if found is None else found.order(FIRST_COME)
    known = None if found is None else found.order(SMALLEST_KNOWN)
    gain = None if first is None or known is None else f"{figure(first.ttft_mean_s / known.ttft_mean_s)}×"
    return (
        Beside(
            "Mean wait, first come",
            seconds(fluid.fcfs_mean * lasts_s),
            None if first is None else seconds(first.ttft_mean_s),
            (
                "The formula is a fluid: work flows out at a steady rate from the first moment on. The engine first fills its "
                "max_num_seqs places, so that waiting begins later, and below capacity chance alone makes a short queue; TTFT also "
                "has the prefill in it"
            ),
        ),
        Beside(
            "Mean wait, smallest first",
            seconds(fluid.smallest_mean * lasts_s),
            None if known is None else seconds(known.ttft_mean_s),
        ),
        Beside(
            "Gain in the mean",
            DASH if fluid.gain is None else f"{figure(fluid.gain)}×",
            gain,
            "Both orders meet the same departures from the fluid, so that the ratio holds better than the waits",
        ),
        Beside(
            "Longest wait, smallest first",
            seconds(fluid.smallest_worst * lasts_s),
            None if known is None else seconds(known.ttft_worst_s),
            "The largest job is served last: it starves for as long as the queue lasts, and for ever under a load that never falls",
        ),
    )


def order_formulas(fluid: RushWaits, known: KnownPart, jobs: Jobs) -> tuple[str, ...]:
    """Return the derivation, with the numbers put in."""
    agreement = "" if known.rank_agreement is None else f"; ranks of prompt and whole job agree to τ = {known.rank_agreement:.2f}"
    return (
        fluid.explanation.formula,
        (
            f"work of a job = prompt + {jobs.output_weight:.2f} × output tokens; prompts are {percent(known.prompt_share)} of it "
            f"and known on arrival, outputs only when they end{agreement}"
        ),
    )


def order_notes(case: Case, rush: Rush, jobs: Jobs, found: SimulatedRush | None) -> tuple[str, ...]:
    """Return what the figures rest on."""
    notes = [
        (
            f"{len(jobs.requests):,} requests at {rush.load:g} × {figure(jobs.capacity_rps)} req/s, the rate at which this engine "
            f"works through them, {seconds(span_s(rush, jobs))} long; seed {case.seed}; every order serves the same requests."
            f"{_left_out(case, jobs)}"
        ),
        (
            "The predictor says output × exp(σ·Z), Z normal. Fu et al., Efficient LLM Scheduling by Learning to Rank (NeurIPS "
            "2024), rank outputs with a small model and report 2.8 times lower latency for chat than first come, first served."
        ),
    ]
    if found is not None:
        feedback = found.order(FEEDBACK)
        first = found.order(FIRST_COME)
        notes.append(
            f"Multi-level feedback needs no prediction: jobs sink as they consume. It preempts to do so, which costs "
            f"{figure(feedback.recomputed_tokens)} tokens of recomputation here and takes the mean time to the last token from "
            f"{seconds(first.e2e_mean_s)} to {seconds(feedback.e2e_mean_s)}; FastServe (Wu et al., 2023) swaps KV out instead."
        )
    return tuple(notes)


def _left_out(case: Case, jobs: Jobs) -> str:
    """Return how many of the workload's requests the engine never takes, and why."""
    if not jobs.too_long:
        return ""
    share = percent(jobs.too_long / (jobs.too_long + len(jobs.requests)))
    most = case.limits.max_model_len
    whose = "the KV cache" if most is None or most >= case.kv_tokens else f"max_model_len of {most:,} tokens"
    return f" {plural(jobs.too_long, 'request')} of the workload, {share}, left out: too long for {whose}."


def order_setting(rush: Rush, found: SimulatedRush | None) -> str:
    """Return what to set."""
    if rush.load <= 1.0:
        return "Leave the order at fcfs: below capacity there is hardly a queue to order. Size for the rush instead, or shed it."
    text = (
        "Under --scheduling-policy priority, send the job's work as each request's priority, or the prompt's tokens where nothing "
        "predicts the output: that is smallest first. It has no ageing; for a bound on the wait keep the queue in the gateway, and "
        "send a request on whenever fewer than max_num_seqs are in the engine"
    )
    if found is None:
        return text
    first = found.order(FIRST_COME)
    return (
        f"{text}. Set the bound above first come's worst, {seconds(first.ttft_worst_s)} here: below it every job ages, and the "
        "order is first come again."
    )


def order_code(found: SimulatedRush) -> str:
    """Return the gateway's rule to copy."""
    return (
        "import heapq\n"
        "import time\n\n"
        f"OUTPUT_WEIGHT = {found.jobs.output_weight:.3g}  # work of an output token, a prompt token being 1\n"
        f"BOUND_S = {found.bound_s:.3g}  # a request that has waited so long goes first\n"
        "smallest, oldest, gone = [], [], set()\n\n\n"
        "def arrive(request):\n"
        "    work = request.prompt_tokens + OUTPUT_WEIGHT * request.predicted_output_tokens\n"
        "    heapq.heappush(smallest, (work, request.id, request))\n"
        "    heapq.heappush(oldest, (time.monotonic(), request.id, request))\n\n\n"
        "def next_request():\n"
        "    for queue in (smallest, oldest):\n"
        "        while queue and queue[0][1] in gone:\n"
        "            gone.discard(heapq.heappop(queue)[1])\n"
        "    if not oldest:\n"
        "        return None\n"
        "    overdue = time.monotonic() - oldest[0][0] >= BOUND_S\n"
        "    _, request_id, request = heapq.heappop(oldest if overdue else smallest)\n"
        "    gone.add(request_id)\n"
        "    return request\n"
    )

"""What the view on head-of-line blocking shows: its dots, its figures beside each other, its sentences."""

from collections.abc import Sequence

from planner.analysis.case import Case
from planner.analysis.head_of_line import HeadOfLine
from planner.analysis.head_of_line_simulated import ORDERS, Burst, BurstOrder, BurstRun, Enforced
from planner.ui.charts.sharing import Dot
from planner.ui.views.questions import Beside
from planner.ui.words import NBSP, figure, seconds

WAITS, RUNS = "short ones beside it", "short ones behind it"
LONG = "the long prompt"
ENFORCED_WORDS: dict[Enforced, str] = {"by itself": "", "as a priority": " (in vLLM: as priority)", "not at all": " (not in vLLM)"}
FCFS, CUT = ORDERS[0], ORDERS[1]
_LONG_TOKENS, _SHORT_TOKENS, _SHORTS = 32_768, 512, 10
_THRESHOLD_PART = 4
_HELPS = 0.9


def order_label(order: BurstOrder) -> str:
    """Return an order's name, with how vLLM does it where that takes more than its own setting."""
    return f"{order.name}{ENFORCED_WORDS[order.enforced]}"


def burst_dots(runs: Sequence[BurstRun]) -> Sequence[Dot]:
    """Return TTFT of the short prompts in both situations, and of the long one, under each order."""
    found: list[Dot] = []
    for order in ORDERS:
        waiting, running = (run_of(runs, order, running=each) for each in (False, True))
        both = "while it waits with the others"
        found.append(Dot(order_label(order), LONG, waiting.long_s, seconds(waiting.long_s), both))
        for series, run in ((WAITS, waiting), (RUNS, running)):
            note = f"worst short prompt {seconds(max(run.short_s))}, long prompt {seconds(run.long_s)}"
            found.append(Dot(order_label(order), series, run.short_mean_s, seconds(run.short_mean_s), note))
    return found


def run_of(runs: Sequence[BurstRun], order: BurstOrder, *, running: bool) -> BurstRun:
    """Return the run of one order in one situation."""
    return next(run for run in runs if run.order == order and run.running == running)


def burst_title(runs: Sequence[BurstRun]) -> str:
    """Return the finding of both situations."""
    first = run_of(runs, FCFS, running=False)
    best = min((run for run in runs if not run.running), key=lambda run: run.short_mean_s)
    ordered = min(run.short_mean_s for run in runs if run.running and not run.order.cut)
    cut = run_of(runs, CUT, running=True)
    waits = (
        f"While the long prompt waits, order takes short ones from {seconds(first.short_mean_s)} to {seconds(best.short_mean_s)}"
    )
    if cut.short_mean_s < _HELPS * ordered:
        return f"{waits}; once it runs, only cutting its chunks helps: {seconds(ordered)} to {seconds(cut.short_mean_s)}"
    return f"{waits}; once it runs, no order helps and the threshold doesn't either: {seconds(cut.short_mean_s)}"


def burst_rows(found: HeadOfLine, runs: Sequence[BurstRun] | None) -> tuple[Beside, ...]:
    """Return the closed form beside the simulated burst."""
    first = None if runs is None else run_of(runs, FCFS, running=False)
    shortest = None if runs is None else next(run for run in runs if run.order.policy == "shortest-prompt" and not run.running)
    short_s = found.fcfs.ttft_s[1:]
    return (
        Beside(
            "First short prompt's TTFT, first come",
            seconds(short_s[0]),
            None if first is None else seconds(min(first.short_s)),
            (
                "The formula prefills one prompt a step; the engine fills a step with several short ones, which then end together. "
                "With one prompt a step the two agree exactly"
            ),
        ),
        Beside("Mean TTFT, first come", seconds(found.fcfs.mean_s), None if first is None else seconds(first.mean_s)),
        Beside(
            "Mean TTFT, shortest first",
            seconds(found.shortest_first.mean_s),
            None if shortest is None else seconds(shortest.mean_s),
        ),
        Beside(
            "Long prompt, shortest first",
            seconds(found.shortest_first.ttft_s[0]),
            None if shortest is None else seconds(shortest.long_s),
            "Its delay is the work of the short ones, whatever their order: a burst starves nobody, a stream can",
        ),
    )


def burst_notes(burst: Burst, budget_tokens: int) -> tuple[str, ...]:
    """Return what the figures rest on."""
    return (
        (
            f"Simulated: one long and {burst.shorts} short prompts on an idle engine, {figure(burst.output_tokens)} output tokens "
            f"each, steps of {budget_tokens:,} tokens, chunks cut at {burst.threshold_tokens:,}, nothing at random. In the "
            f"second situation the short ones come 1{NBSP}ms after the long one's first step has begun."
        ),
        (
            "Running requests are served first in vLLM, and a prompt in progress takes all that is left of the token budget: a "
            "policy orders who enters, never who goes on. It has fcfs and priority; SGLang 0.5.23 has shortest-prefill-first too."
        ),
    )


def burst_setting(burst: Burst, runs: Sequence[BurstRun] | None) -> str:
    """Return what to set."""
    text = (
        "Two settings, for the two situations: priority with the prompt's length as each request's priority orders those who wait, "
        "and a threshold lets short prompts in between the chunks of one that runs."
    )
    if runs is None:
        return text
    first, cut = (run_of(runs, order, running=True) for order in (FCFS, CUT))
    if cut.long_s <= first.long_s * 1.001:
        return f"{text} Below the step's token budget the threshold takes effect; at {burst.threshold_tokens:,} it doesn't."
    return f"{text} The threshold costs the long prompt {seconds(cut.long_s - first.long_s)} here."


def burst_code(burst: Burst) -> str:
    """Return the flags and the request's field to copy."""
    return (
        f"vllm serve MODEL --long-prefill-token-threshold {burst.threshold_tokens} --scheduling-policy priority\n"
        '# in each request\'s body, lowest first: {"priority": <tokens of the prompt>}'
    )


def default_burst(case: Case) -> tuple[Burst, int]:
    """Return the burst that a case opens with, and the longest prompt that its engine takes [token]."""
    output = max(round(case.lengths.output_mean_tokens), 1)
    most = min(case.kv_tokens, case.limits.max_model_len or case.kv_tokens) - output
    long_tokens = min(_LONG_TOKENS, most)
    short_tokens = min(_SHORT_TOKENS if case.textbook else int(case.lengths.prompt_p50_tokens), most)
    threshold = max(case.limits.max_num_batched_tokens // _THRESHOLD_PART, case.limits.block_size)
    return Burst(long_tokens, short_tokens, _SHORTS, output, min(threshold, most)), most

"""What the Simulate page says of a replay: the figures, the tables, what was run, and how the figures are made."""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd

from planner.replay import Difference, Outcome, Replay, differences
from planner.replay.setup import knows_prefixes
from planner.simulator import Distribution, Estimate
from planner.ui.views.answer import MetricView
from planner.ui.words import DASH, figure, percent, plural, rate, seconds, span, stop
from planner.workloads import RowsLengths, load_trace

METRIC_NAMES = {
    "ttft": "TTFT",
    "tpot": "TPOT",
    "itl": "ITL",
    "e2e": "E2E",
    "queue": "Queue time",
}
_WRITE: dict[str, Callable[[float], str]] = {"s": seconds, "request/s": rate}
_VERDICTS = {"better": "better", "worse": "worse", "same": "about the same"}


@dataclass(frozen=True, slots=True)
class Definition:
    """A name with its meaning, for the fold of definitions."""

    name: str
    text: str


def metrics(replay: Replay) -> tuple[MetricView, ...]:
    """Return the four figures of the run that was asked for."""
    run = replay.shown
    targets = {check.target.metric: check for check in run.checks}
    return (
        _latency("p99 TTFT", run.summary.ttft, targets.get("ttft"), "from a request's arrival to its first token"),
        _latency("p99 TPOT", run.summary.tpot, targets.get("tpot"), "per output token after the first"),
        _goodput(run),
        _batch(run),
    )


def _latency(label: str, found: Distribution, check: object, meaning: str) -> MetricView:
    target = getattr(check, "target", None)
    estimate = found.percentiles[99.0]
    parts = [interval(estimate)] if estimate.low is not None else []
    parts.append(f"target {seconds(target.limit_s)}" if target is not None else "no target")
    count = plural(found.count, "request")
    return MetricView(
        label,
        seconds(estimate.value),
        " · ".join(parts),
        f"99 of 100 requests see less, {meaning}. Exact over {count}; 95 % interval from consecutive batches of them.",
    )


def _goodput(run: Outcome) -> MetricView:
    summary = run.summary
    served = f"{rate(summary.requests_per_s)} served, {figure(summary.output_tokens_per_s)} output tokens/s"
    if run.goodput is None:
        return MetricView("Output", f"{figure(summary.output_tokens_per_s)}/s", f"tokens · {rate(summary.requests_per_s)}", served)
    return MetricView(
        "Goodput",
        percent_of_all(run.goodput.share),
        f"{rate(run.goodput.requests_per_s)} within all targets",
        f"Requests that met every target, each taken as a bound on each request; rejected ones met none. {stop(served)}",
    )


def _batch(run: Outcome) -> MetricView:
    averages, limits = run.result.averages, run.setup.limits
    return MetricView(
        "Running",
        figure(averages.running),
        f"at most {averages.peak_running:,} of {limits.max_num_seqs:,} · KV {percent(averages.kv_share)}",
        f"Mean sequences in the batch over the whole run. KV cache in use: mean {percent(averages.kv_share)}, at most "
        f"{percent(averages.peak_kv_share)} of {figure(limits.num_blocks * limits.block_size)} tokens. "
        f"Waiting: {figure(averages.waiting)} on average.",
    )


def _order(replay: Replay) -> str:
    """Return which of the workload's requests were served: drawn, or the first ones in their order."""
    lengths = replay.plan.workload.lengths
    if replay.settings.order == "recorded":
        return "in recorded order"
    if not isinstance(lengths, RowsLengths) or lengths.draw != "in_order":
        return "drawn from the workload"
    recorded = len(load_trace(lengths.trace))
    which = "its first ones in their order" if len(replay.requests) <= recorded else f"all {recorded:,} in their order, then again"
    return f"{which} (their prompts share prefixes)"


def what_was_run(replay: Replay) -> tuple[str, ...]:
    """Return what the figures rest on, a sentence each; the first is always there."""
    run, settings = replay.shown, replay.settings
    limits = run.setup.limits
    order = _order(replay)
    scheduling = "async scheduling" if limits.async_scheduling else "scheduling between steps"
    caching = "on" if limits.enable_prefix_caching else "off"
    knobs = f"max_num_seqs {limits.max_num_seqs:,}, max_num_batched_tokens {limits.max_num_batched_tokens:,}"
    count = f"{plural(len(replay.requests), 'request')} of {replay.plan.workload.name}, {order}"
    sample = f"{count}, at {rate(replay.rate_rps)}, seed {replay.seed}; the first tenth warms up."
    said = [f"{sample} {knobs}, {scheduling}, prefix caching {caching}."]
    if limits.enable_prefix_caching and not knows_prefixes(replay.plan.workload, settings):
        said.append("Prefix caching finds nothing here: the workload doesn't say which prompts share a prefix.")
    if replay.plan.chosen is None:
        said.append("The plan has no answer: this is its nearest candidate, alone under the whole planned load.")
    rejected = int(run.result.rejected.sum())
    if rejected:
        longest = f"max_model_len ({figure(limits.max_model_len)} tokens)"
        said.append(f"{plural(rejected, 'request')} rejected: longer than {longest} or than the whole KV cache.")
    return tuple(said)


def latency_frame(run: Outcome) -> pd.DataFrame:
    """Return mean and percentiles of every latency, as text."""
    rows = []
    for key, name in METRIC_NAMES.items():
        found: Distribution = getattr(run.summary, key)
        tail = found.percentiles[99.0]
        rows.append(
            {
                "Latency": name,
                "Mean": seconds(found.mean.value),
                "p50": seconds(found.percentiles[50.0].value),
                "p90": seconds(found.percentiles[90.0].value),
                "p99": seconds(tail.value),
                "95 % interval of p99": interval(tail) if tail.low is not None else DASH,
            }
        )
    return pd.DataFrame(rows)


def event_frame(run: Outcome) -> pd.DataFrame:
    """Return what happened in the run besides serving, as text; empty when nothing did."""
    totals, rejected = run.result.totals, run.result.rejected
    computed = totals.computed_tokens
    rows = [
        ("Rejected requests", int(rejected.sum()), len(rejected), "of all requests"),
        ("Preemptions", totals.preemptions, len(rejected), "a request"),
        ("Recomputed tokens", totals.recomputed_tokens, computed, "of all computed tokens"),
        ("Wasted rows", totals.wasted_rows, computed, "of all computed tokens"),
        ("Prefix hits, tokens", totals.prefix_hit_tokens, totals.prefix_query_tokens, "of the prompt tokens looked up"),
    ]
    return pd.DataFrame(
        [
            {"Event": name, "Count": f"{count:,}", "Share": f"{_ratio(count / whole, of)} {of}"}
            for name, count, whole, of in rows
            if count
        ]
    )


def _ratio(value: float, of: str) -> str:
    return percent(value) if of.startswith("of") else figure(value)


def steps_sentence(run: Outcome) -> str:
    """Return how many steps there were, how long they took, and that nothing else happened where nothing did."""
    totals, averages = run.result.totals, run.result.averages
    steps = f"{plural(totals.steps, 'step')}, {seconds(averages.step_s)} on average and {seconds(averages.longest_step_s)} at most."
    quiet = event_frame(run).empty
    return f"{steps} No request was rejected or preempted, and no token recomputed or wasted." if quiet else steps


def difference_frame(replay: Replay) -> pd.DataFrame:
    """Return the planned and the changed run side by side, as text; figures that are nought in both are left out."""
    rows = [
        {
            "Figure": _capital(each.name),
            "Planned": _value(each.planned, each),
            "Changed": _value(each.changed, each),
            "Difference": _signed(each),
            "Verdict": _VERDICTS["same" if each.better is None else "better" if each.better else "worse"]
            if each.difference.low is not None or each.better is not None
            else "",
        }
        for each in differences(replay)
        if each.planned or each.changed
    ]
    return pd.DataFrame(rows)


def difference_title(replay: Replay) -> str:
    """Return what the changed settings do to the two tails, in a sentence."""
    by_name = {each.name: each for each in differences(replay)}
    parts = [_change_words(by_name[name]) for name in ("p99 TTFT", "p99 TPOT")]
    return f"Against the plan, on the same requests: {' and '.join(parts)}"


def _change_words(each: Difference) -> str:
    if each.better is None:
        return f"{each.name} doesn't clearly change"
    return (
        f"{each.name} {'falls' if each.difference.value < 0.0 else 'rises'} from {seconds(each.planned)} to {seconds(each.changed)}"
    )


def interval(estimate: Estimate) -> str:
    """Return the confidence interval of a latency as text; empty where there is none."""
    if estimate.low is None or estimate.high is None:
        return ""
    return span(seconds(max(estimate.low, 0.0)), seconds(estimate.high))


def percent_of_all(share: float) -> str:
    r"""Return a share as per cent so that 100 % is said only of all.

    >>> percent_of_all(0.98765), percent_of_all(0.99997), percent_of_all(1.0)
    ('98.8\xa0%', '99.99\xa0%', '100\xa0%')
    """
    if 0.999 < share < 1.0:
        return f"{min(100.0 * share, 99.99):.2f}\N{NO-BREAK SPACE}%"
    return percent(share)


def definitions(replay: Replay) -> tuple[Definition, ...]:
    """Return how each figure is made."""
    run, record = replay.shown, replay.candidate.record
    basis = f"Step times come from the calibration record {record.id} ({record.basis})." if record is not None else ""
    outside = seconds(run.setup.request_s)
    return (
        Definition(
            "TTFT", f"First token − arrival, of each request. {outside} of it pass outside the engine, before the first token."
        ),
        Definition("TPOT", "(Last token − first token) ÷ (output tokens − 1), of each request; one-token outputs have none."),
        Definition("ITL", "Time since the token before, of each token of the run, to within 0.05 %."),
        Definition("E2E", "Last token − arrival, of each request."),
        Definition("Queue time", "From arrival to the decision that first gave the request tokens."),
        Definition(
            "Intervals",
            "95 %: Student's t over the same percentile of up to 20 consecutive batches of requests; none where a batch "
            "would be too short. They say how well this run knows its percentile, not how well the model knows the machine.",
        ),
        Definition(
            "Verdict",
            "Overloaded: more requests are in the system at the last arrival than at half of the time, by over 3 % of the arrivals "
            "between and over three standard deviations of a Poisson count. Backlogged: no growth, but someone waits in at "
            "least half of the busy time. Stable: neither.",
        ),
        Definition(
            "What binds",
            "While a request waits for a place: what keeps it waiting (max_num_seqs, the token budget, KV blocks). Else what most "
            "of the step's time is spent on (memory bandwidth, compute, communication, launches, the host).",
        ),
        Definition(
            "Differences",
            "Both runs serve the same requests at the same times; the interval is Student's t over the differences of "
            "consecutive batches, so that what the requests do to both alike cancels.",
        ),
        Definition(
            "Step times", f"{basis} The scheduler's decisions are vLLM's, step by step; its schedule is exact for these times."
        ),
    )


def _value(value: float, each: Difference) -> str:
    if each.unit == "token/s":
        return f"{figure(value)}/s"
    if each.unit == "1":
        return percent_of_all(value)
    return _WRITE.get(each.unit, figure)(value)


def _signed(each: Difference) -> str:
    """Return a difference with its sign and its interval."""
    low, high = each.difference.low, each.difference.high
    if low is None and each.small:
        return "under 0.5 %"
    main = _with_sign(each.difference.value, each)
    if low is None or high is None:
        return main
    return f"{main} ({_with_sign(low, each)} to {_with_sign(high, each)})"


def _with_sign(value: float, each: Difference) -> str:
    if not abs(value) > 0.0:
        return _value(0.0, each)
    size = f"{figure(100.0 * abs(value))} points" if each.unit == "1" else _value(abs(value), each)
    return f"{'−' if value < 0.0 else '+'}{size}"


def _capital(text: str) -> str:
    return text if text[1:2].isdigit() else f"{text[:1].upper()}{text[1:]}"

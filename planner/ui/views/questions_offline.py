"""What "Batch work by the day" shows: rows of its chart and tables, and its sentences."""

import shlex
from collections.abc import Sequence

import pandas as pd

from planner.analysis.offline_levers import CERTAINTY, INTERRUPTION_MINUTES, ApiBill, Bill, Lever, Saving, Terms, over_windows
from planner.analysis.offline_simulated import SimulatedOffline
from planner.exporters.flags import served_name
from planner.offline_case import OfflineCase
from planner.ui.charts.base import Row
from planner.ui.views.questions import Beside
from planner.ui.words import DASH, day, figure, percent, plural, seconds, usd
from planner.units import BILLION, MILLION

_SHOWN_APIS = 3
_WINDOWS = (24.0, 16.0, 12.0, 8.0, 4.0)
_NOW = "Now"
LEVER_NAMES: dict[Lever, str] = {
    "prefix caching": "Prefix caching",
    "FP8 weights": "FP8 weights",
    "FP8 KV cache": "FP8 KV cache",
    "larger batch": "Larger batch",
    "spot": "Spot machines",
    "another GPU": "Another GPU",
    "idle GPUs off-peak": "Idle GPUs off-peak",
    "length sorting": "Length sorting",
}


def machine_of(bill: Bill) -> str:
    """Return the machine of a bill in words."""
    machine = bill.way.machine
    return f"{machine.gpu_name} × {machine.gpus}" if machine.gpus > 1 else machine.gpu_name


def reuse_mark(asked: OfflineCase) -> str:
    """Return what marks the bar of prefix caching: the share of repeated tokens, where it is only assumed."""
    return f", {percent(asked.terms.cached_share)} reuse assumed" if asked.cached_assumed else ""


def bar_rows(base: Bill, savings: Sequence[Saving], apis: Sequence[ApiBill], reuse: str = "") -> tuple[list[Row], list[Row]]:
    """Return the bars' parts and their totals: now, each lever that saves on top of those before it, then others' APIs.

    reuse : what marks prefix caching, see `reuse_mark`
    """
    parts: list[Row] = []
    totals: list[Row] = []
    bills = [(_NOW, base, 0.0)]
    bills += [
        (f"+ {_named(each, base)}{reuse if each.lever == 'prefix caching' else ''}", each.bill, each.added_usd)
        for each in savings
        if each.added_usd > 0.0
    ]
    for bar, bill, saved in bills:
        ends = (("prompts", 0.0, bill.prefill_usd), ("decode", bill.prefill_usd, bill.usd_per_day))
        parts += [{"bar": bar, "part": part, "start": low, "end": high, "usd": usd(high - low)} for part, low, high in ends]
        less = f", {usd(-saved)}" if saved else ""
        totals.append({"bar": bar, "end": bill.usd_per_day, "label": f"{usd(bill.usd_per_day)}{less}"})
    for api in apis[:_SHOWN_APIS]:
        batch = api.batch_usd_per_day is not None
        asked = api.batch_usd_per_day if api.batch_usd_per_day is not None else api.usd_per_day
        bar = f"API: {api.price.provider}{', batch' if batch else ''}"
        parts.append({"bar": bar, "part": "API", "start": 0.0, "end": asked, "usd": usd(asked)})
        totals.append({"bar": bar, "end": asked, "label": usd(asked)})
    return parts, totals


def _named(saving: Saving, base: Bill) -> str:
    name = LEVER_NAMES[saving.lever]
    if saving.lever == "another GPU" and saving.bill.way.machine != base.way.machine:
        return machine_of(saving.bill)
    return name


def bars_title(base: Bill, savings: Sequence[Saving], apis: Sequence[ApiBill]) -> str:
    """Return the finding of the chart."""
    last = savings[-1].bill
    finding = f"{usd(base.usd_per_day)} a day now, {usd(last.usd_per_day)} with every lever that saves"
    if not apis:
        return f"{finding}; no API price of this model is known"
    cheapest = min(api.usd_per_day for api in apis)
    return f"{finding}; APIs ask {usd(cheapest)} and more for the same tokens"


def lever_frame(base: Bill, savings: Sequence[Saving]) -> pd.DataFrame:
    """Return the levers as a table, in the order of the dollars that each saves on top of those before it."""
    return pd.DataFrame(
        {
            "Lever": [LEVER_NAMES[each.lever] for each in savings],
            "Alone": [DASH if each.alone is None else _saved(each.alone_usd) for each in savings],
            "On top of those above": [_saved(each.added_usd) if each.added_usd > 0.0 else "not pulled" for each in savings],
            "Bill then": [f"{usd(each.bill.usd_per_day)}/day" for each in savings],
            "What changes": [_change(each, base) for each in savings],
        }
    )


def _saved(saved_usd: float) -> str:
    if abs(saved_usd) < 0.005:
        return "$0"
    return f"{usd(saved_usd)}/day" if saved_usd > 0.0 else f"costs {usd(-saved_usd)}/day more"


def _change(saving: Saving, base: Bill) -> str:
    alone = saving.alone
    if alone is None:
        return base.way.machine.spot_source if saving.lever == "spot" else "can't be pulled here: precision or memory is lacking"
    if saving.lever == "another GPU":
        return f"{machine_of(alone)} alone; {machine_of(saving.bill)} with those above"
    if saving.lever == "length sorting":
        return "nothing: continuous batching refills at once"
    if saving.lever == "spot":
        machine = alone.way.machine
        offer = machine.spot_source.partition(":")[0]
        return f"{usd(machine.spot_usd_per_gpu_hour)} a GPU-hour ({offer}) instead of {usd(machine.usd_per_gpu_hour)}"
    if saving.lever == "idle GPUs off-peak":
        return f"{figure(alone.idle_hours)} GPU-hours a day that are paid for already"
    return (
        f"prompts {figure(base.fleet.prefill_gpu_days)} → {figure(alone.fleet.prefill_gpu_days)}, decode "
        f"{figure(base.fleet.decode_gpu_days)} → {figure(alone.fleet.decode_gpu_days)} GPU-days, batch "
        f"{figure(base.fleet.batch)} → {figure(alone.fleet.batch)}"
    )


def window_frame(bill: Bill, terms: Terms) -> pd.DataFrame:
    """Return the replicas that finish the day's work in windows of several lengths, the asked one among them."""
    found = over_windows(bill, sorted({*_WINDOWS, terms.hours}, reverse=True), terms)
    return pd.DataFrame(
        {
            "Hours a day": [figure(each.hours) for each in found],
            "Replicas": [f"{each.replicas:,}" for each in found],
            f"On spot, {percent(CERTAINTY)} sure to be done": [f"{each.on_spot:,}" for each in found],
        }
    )


def window_caption(terms: Terms) -> str:
    """Return what the table of windows rests on."""
    return (
        f"Interruptions of spot machines are taken as Poisson and independent, {figure(terms.interruptions_per_day)} a machine and "
        f"day, each costing {INTERRUPTION_MINUTES:.0f} min of lost work and restart (both assumed). A zone that runs dry is "
        "not in it: spread machines over zones, or keep on-demand ones in reach for the last hours."
    )


def window_title(base: Bill, terms: Terms) -> str:
    """Return the finding of the table of windows."""
    return (
        f"In {figure(terms.hours)} hours a day {plural(base.replicas, 'replica')} of {machine_of(base)} "
        f"{'finishes' if base.replicas == 1 else 'finish'} the work: a shorter "
        "window needs more of them for the same GPU-hours"
    )


def api_frame(apis: Sequence[ApiBill]) -> pd.DataFrame:
    """Return others' prices for the same tokens as a table."""
    return pd.DataFrame(
        {
            "Provider": [api.price.provider for api in apis],
            "Prompt, $/M tokens": [usd(api.price.input_usd_per_million_tokens) for api in apis],
            "Output, $/M tokens": [usd(api.price.output_usd_per_million_tokens) for api in apis],
            "For the day": [usd(api.usd_per_day) for api in apis],
            "By batch API": [usd(api.batch_usd_per_day) for api in apis],
            "Read": [day(api.price.as_of) for api in apis],
        }
    )


def api_caption(apis: Sequence[ApiBill]) -> str:
    """Return where the prices come from."""
    discounts = {api.discount.provider: api.discount for api in apis if api.discount is not None}
    said = " ".join(f"{each.source.ref}." for each in discounts.values())
    return (
        "Token prices: litellm 1.110.2, model_prices_and_context_window_backup.json (MIT), list prices without commitments; "
        f"quantization and speed differ between providers. {said} Where no batch price is shown none is known here."
    )


def typed(tokens: float) -> str:
    """Return tokens of a day as people type them.

    >>> typed(8e9), typed(997_628_572.0), typed(52_000.0)
    ('8B', '998M', '52000')
    """
    for size, letter in ((BILLION, "B"), (MILLION, "M")):
        if tokens >= size:
            return f"{tokens / size:.3g}{letter}"
    return f"{tokens:.0f}"


def textbook_line(asked: OfflineCase) -> str:
    """Return whose question the textbook's is: a batch service with a larger model than the other questions' replica."""
    machine = asked.way.machine
    return (
        f"Asked of the textbook's batch service: {asked.model.name} in {asked.way.weights} on replicas of {machine.gpu_name} × "
        f"{machine.gpus}, with max_num_seqs {asked.way.max_num_seqs:,.0f}."
    )


def work_line(asked: OfflineCase) -> str:
    """Return what a day's work is."""
    work = asked.work
    return (
        f"{asked.model.name}, {asked.way.weights} weights: {figure(work.requests)} requests a day of "
        f"{figure(work.prompt_tokens)} prompt and {figure(work.output_tokens)} output tokens, on replicas of "
        f"{asked.way.machine.gpu_name} × {asked.way.machine.gpus}."
    )


def offline_rows(base: Bill, last: Bill, run: SimulatedOffline | None) -> tuple[Beside, ...]:
    """Return the closed forms beside the simulated runs."""
    now, then, waste = (None, None, None) if run is None else (run.now, run.then, run.waste)
    return (
        Beside(
            "GPU-days now",
            figure(base.fleet.gpu_days),
            None if now is None else figure(now.gpu_days),
            "The formula takes requests for equal, prompts for packed into full steps, and decode for steps of its own. In the "
            "engine long prompts cost more than their share (attention grows with the square), decode reads its weights beside "
            "prompts, which hides some of it, and equal requests end together and leave the batch at once.",
        ),
        Beside(
            "Sequences in the engine",
            figure(base.fleet.batch),
            None if now is None else figure(now.running),
            "By formula the KV cache is full of sequences at their mean context.",
        ),
        Beside(
            "GPU-days with every lever that saves", figure(last.fleet.gpu_days), None if then is None else figure(then.gpu_days)
        ),
        Beside(
            "Decode step",
            seconds(base.fleet.decode_step_s),
            None,
            f"Reading alone takes {seconds(base.fleet.read_step_s)}: counted so, decode needs {figure(base.fleet.read_gpu_days)} "
            f"GPU-days and prompts are {percent(base.fleet.read_prefill_share)} of the bill. Past the knee FLOPs take longer.",
        ),
        Beside(
            "GPU time of static batches ÷ continuous batching",
            None if waste is None else f"{waste.formula:.2f}× in decode rows",
            None if waste is None else f"{waste.unsorted_cost:.2f}× as they come",
            "The formula counts rows: E[longest of B] / E[output]. The run also pads prompts, and its steps grow with the batch."
            if waste is not None
            else "",
        ),
        Beside(
            "The same, requests sorted by length",
            None if waste is None else "1× in decode rows",
            None if waste is None else f"{waste.sorted_cost:.2f}×",
            "Sorting needs outputs known before they are made; with continuous batching it gains nothing."
            if waste is not None
            else "",
        ),
    )


def offline_caption(run: SimulatedOffline, seed: int) -> str:
    """Return what was simulated."""
    now, then, waste = run.now, run.then, run.waste
    too_long = now.too_long + then.too_long
    left_out = f" {plural(too_long, 'request')} longer than the KV cache left out." if too_long else ""
    return (
        f"Simulated: {now.requests:,} requests on the present engine and {then.requests:,} on the last one, all waiting from the "
        f"start, seed {seed}, the workload's lengths stretched to these means; measured while the engine is refilled "
        f"({now.preemptions:,} and {then.preemptions:,} preemptions). Static batches: {waste.requests:,} requests in batches of "
        f"{waste.batch}, padded, as large as the KV cache holds on average and 64 at most.{left_out}"
    )


def offline_why(base: Bill, asked: OfflineCase) -> tuple[list[str], list[str]]:
    """Return the derivation with the numbers put in, and what it rests on."""
    fleet, work, terms = base.fleet, asked.work, asked.terms
    formulas = [
        (
            f"prompts: {figure(work.prompts_total)} tokens/day, {figure(work.prompt_tokens)} each → "
            f"{figure(fleet.prefill_gpu_days)} GPU-days"
        ),
        (
            f"decode: {figure(work.outputs_total)} tokens/day ÷ {figure(fleet.batch)} × {seconds(fleet.decode_step_s)} × "
            f"{plural(base.way.machine.gpus, 'GPU')} ÷ 86,400 s = {figure(fleet.decode_gpu_days)} GPU-days"
        ),
        f"batch = min(max_num_seqs, KV tokens / {figure(work.running_context_tokens)}) = {figure(fleet.batch)}",
        f"{figure(base.gpu_hours)} GPU-hours × {usd(base.way.machine.usd_per_gpu_hour)} = {usd(base.usd_per_day)} a day",
    ]
    last = base.way.machine
    notes = [
        f"Price: {last.price_source}. Spot: {last.spot_source}; interruptions cost {percent(terms.spot_loss)} of a machine's time.",
        f"Repeated prompt tokens: {percent(terms.cached_share)} ({asked.cached_source}).",
        (
            "GPU-hours are billed, whole machines are not: rented by the second and given back when the work is done. Each lever "
            "is a fleet of its own: weights, memory, KV cache, batch and step times are computed again."
        ),
        "FP8 weights and an FP8 KV cache change answers a little: check quality on your own task before you count on them.",
    ]
    return formulas, notes


def offline_code(last: Bill, asked: OfflineCase) -> str:
    """Return how to run the work with every lever that saves."""
    way = last.way
    flags = [f"--tensor-parallel-size {way.machine.gpus}"]
    if way.weights == "fp8":
        flags.append("--quantization fp8")
    if way.kv_dtype == "fp8":
        flags.append("--kv-cache-dtype fp8")
    flags.append("--enable-prefix-caching" if way.cached else "--no-enable-prefix-caching")
    flags.append(f"--max-num-seqs {max(int(last.fleet.batch), 1)}")
    return f"vllm run-batch -i requests.jsonl -o answers.jsonl --model {shlex.quote(served_name(asked.model))} " + " ".join(flags)

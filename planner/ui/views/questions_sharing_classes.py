"""What the view on batch work beside interactive work shows: its curves, its figures beside each other, its sentences."""

from collections.abc import Sequence
from typing import NamedTuple

from planner.analysis.case import Case
from planner.analysis.class_sharing import BatchShare, CountedShare, SharedEngine, decoding, shared_tpot_s, steady_stream
from planner.analysis.class_sharing_simulated import ClassRun, Sharing, SimulatedSharing
from planner.analysis.explanation import Explanation
from planner.analysis.littles_law import Stream
from planner.analysis.steps import Decoders
from planner.ui.charts.curves import Curve, Mark, Rule
from planner.ui.charts.sharing import Spot
from planner.ui.colours import ACCENT, GREY, HUES
from planner.ui.views.questions import Beside
from planner.ui.words import figure, percent, plural, seconds
from planner.units import MS

TEXTBOOK = Decoders(32.0, 2048.0)
TEXTBOOK_OUTPUT, TEXTBOOK_TPOT_S = 500.0, 15 * MS
OPEN_TPOT_S = 50 * MS
_POINTS = 24


class Start(NamedTuple):
    """What the view opens with: interactive sequences with their mean context, output of each [token], TPOT target [s]."""

    decoders: Decoders
    output_tokens: float
    tpot_s: float

    @property
    def stream(self) -> Stream:
        """The requests that keep these sequences running at the target."""
        return steady_stream(self.decoders, self.output_tokens, self.tpot_s)


def start_of(case: Case) -> Start:
    """Return what the view opens with: the case's own load, at as many sequences as run at the TPOT target."""
    if case.textbook:
        return Start(TEXTBOOK, TEXTBOOK_OUTPUT, TEXTBOOK_TPOT_S)
    tpot_s = case.tpot_p99_s or OPEN_TPOT_S
    running = decoding(Stream(case.rate_rps, case.lengths.prompt_mean_tokens, case.lengths.output_mean_tokens), tpot_s)
    return Start(case.decoders(min(running, float(case.limits.max_num_seqs))), case.lengths.output_mean_tokens, tpot_s)


def cap_curves(case: Case, sharing: Sharing, shared: SharedEngine, found: SimulatedSharing | None) -> Sequence[Curve]:
    """Return TPOT of the interactive class against the batch class's cap: by formula, and simulated."""
    context = shared.batch.running_context_tokens
    last = case.kv_tokens if found is None else found.capped[-1].cap_tokens or case.kv_tokens
    highest_s = _highest_s(sharing, found)
    formula: list[tuple[float, float]] = []
    for index in range(_POINTS + 1):
        tokens = last * index / _POINTS
        tpot_s = shared_tpot_s(tokens / context, shared, case.coefficients)
        if tpot_s is None or tpot_s > highest_s:
            break
        formula.append((tokens, tpot_s / MS))
    curves = [Curve("mean by formula", formula, GREY, dashed=True, name_at=0.6, name_place="below right")]
    if found is not None:
        means = [(float(run.cap_tokens or 0), run.tpot_mean_s / MS) for run in found.capped if run.tpot_mean_s is not None]
        tails = [(float(run.cap_tokens or 0), run.tpot_p99_s / MS) for run in found.capped if run.tpot_p99_s is not None]
        curves.append(Curve("mean", means, ACCENT, name_at=1.0, name_place="below left"))
        curves.append(Curve("p99", tails, HUES[1], name_at=1.0))
    return curves


def _highest_s(sharing: Sharing, found: SimulatedSharing | None) -> float:
    runs = () if found is None else (*found.capped, found.priority)
    return max((run.tpot_p99_s for run in runs if run.tpot_p99_s is not None), default=3.0 * sharing.tpot_s)


def cap_rules(sharing: Sharing, found: SimulatedSharing | None) -> Sequence[Rule]:
    """Return the target, and the TPOT that priority alone leaves."""
    rules = [Rule("y", sharing.tpot_s / MS, f"target {seconds(sharing.tpot_s)}")]
    alone_s = None if found is None else found.priority.tpot_p99_s
    if alone_s is not None:
        rules.append(Rule("y", alone_s / MS, f"priority alone: p99 {seconds(alone_s)}"))
    return rules


def cap_marks(found: SimulatedSharing | None) -> Sequence[Mark]:
    """Return the cap that holds."""
    best = None if found is None else found.best
    if best is None or best.tpot_p99_s is None:
        return ()
    name = f"cap {figure(best.cap_tokens)}"
    return (Mark(float(best.cap_tokens or 0), best.tpot_p99_s / MS, name, HUES[2], "below left"),)


def cap_title(sharing: Sharing, counted: CountedShare, found: SimulatedSharing | None) -> str:
    """Return the finding on the cap."""
    target = seconds(sharing.tpot_s)
    if found is None:
        return f"By formula mean TPOT stays within {target} up to {figure(counted.kv_tokens)} tokens of batch KV"
    if found.best is None:
        return f"At no cap simulated does p99 TPOT stay within {target}"
    return f"p99 TPOT stays within {target} up to {figure(found.best.cap_tokens)} tokens of batch KV; the mean up to more"


def trade_line(found: SimulatedSharing) -> Sequence[Spot]:
    """Return what each cap gives to both classes, from the smallest to the largest."""
    spots = [spot for run in found.capped for spot in _spot("priority and a cap, smaller to larger", run)]
    return sorted(spots, key=lambda spot: spot.x)


def trade_spots(found: SimulatedSharing) -> Sequence[Spot]:
    """Return the ways to share, each with the wait that it leaves."""
    best = None if found.best is None else (f"cap of {figure(found.best.cap_tokens)} tokens", found.best)
    ways = [(run.name.lower(), run) for run in (found.one_queue, found.priority, found.pools) if run is not None]
    named = (*([best] if best else []), *ways)
    return [spot for name, run in named for spot in _spot(f"{name}: p99 TTFT {seconds(run.ttft_p99_s)}", run)]


def _spot(name: str, run: ClassRun) -> Sequence[Spot]:
    """Return a run's spot; none where no interactive request ended."""
    if run.tpot_p99_s is None:
        return ()
    cap = "" if run.cap_tokens is None else f" at {figure(run.cap_tokens)} tokens"
    said = f"{seconds(run.tpot_p99_s)}{cap}"
    return (Spot(name, run.tpot_p99_s / MS, run.batch_tokens_per_s, said, figure(run.batch_tokens_per_s)),)


def trade_rule(sharing: Sharing) -> tuple[float, str]:
    """Return the target as a rule."""
    return sharing.tpot_s / MS, f"target {seconds(sharing.tpot_s)}"


def trade_title(sharing: Sharing, found: SimulatedSharing) -> str:
    """Return what priority mends, what it leaves, and what the cap costs."""
    one, priority, best = found.one_queue, found.priority, found.best
    leaves = (
        f"Priority alone cuts p99 TTFT from {seconds(one.ttft_p99_s)} to {seconds(priority.ttft_p99_s)} and leaves p99 TPOT at "
        f"{seconds(priority.tpot_p99_s)}"
    )
    if priority.keeps(sharing.tpot_s):
        return f"{leaves}, within the target: this engine's own limits are cap enough"
    if best is None:
        return f"{leaves}, and no cap repairs it"
    return (
        f"{leaves}; the cap brings {seconds(best.tpot_p99_s)}, for {figure(best.batch_tokens_per_s)} instead of "
        f"{figure(priority.batch_tokens_per_s)} batch tokens/s"
    )


def class_rows(pure: BatchShare, counted: CountedShare, found: SimulatedSharing | None) -> tuple[Beside, ...]:
    """Return the caps by formula beside the simulated one, and the ways to share."""
    best = None if found is None else found.best
    near = None if found is None else _nearest(found, counted.kv_tokens)
    at_pure = None if found is None else _nearest(found, pure.kv_tokens)
    rows = [
        Beside(
            "Cap, reading KV alone",
            f"{pure.kv_tokens:,.0f} tokens",
            None if at_pure is None else f"mean TPOT {seconds(at_pure.tpot_mean_s)} there",
            (
                "Holds where no prompt is computed beside the decoders: prefill elsewhere, or outputs so long that prompts don't "
                "count"
            ),
        ),
        Beside(
            "Cap, prefills of both classes counted",
            f"{counted.kv_tokens:,.0f} tokens",
            None if best is None else f"{best.cap_tokens:,} tokens",
            (
                "The formula holds the mean TPOT, the simulation its p99, which lies above it as arrivals and prefills cluster"
                + (f"; at the formula's cap the simulated mean is {seconds(near.tpot_mean_s)}" if near is not None else "")
            ),
        ),
        Beside(
            "Batch tokens/s at that cap",
            figure(counted.batch_tokens_per_s),
            None if best is None else figure(best.batch_tokens_per_s),
        ),
    ]
    return tuple(rows)


def _nearest(found: SimulatedSharing, cap_tokens: float) -> ClassRun | None:
    if cap_tokens <= 0.0:
        return None
    return min(found.capped, key=lambda run: abs((run.cap_tokens or 0) - cap_tokens))


def class_notes(case: Case, sharing: Sharing, found: SimulatedSharing | None) -> tuple[str, ...]:
    """Return what the figures rest on."""
    stream, batch = sharing.interactive, sharing.batch
    notes = [
        (
            f"Interactive: {figure(stream.rate_rps)} req/s of {figure(stream.prompt_tokens)} + {figure(stream.output_tokens)} "
            f"tokens, the rate that keeps the sequences asked running at the target. Batch: always more, "
            f"{figure(batch.prompt_tokens)} tokens in, half to one and a half times {figure(batch.output_tokens)} out. Priority "
            "orders who enters; once in, every sequence is in every step, and lengthens it for all."
        )
    ]
    if found is not None:
        measured = found.priority.interactive
        notes.append(
            f"Simulated over {seconds(found.span_s)}, of which the first third is left out; {measured} interactive requests "
            f"measured a run, so that p99 is nearly the worst of them; seed {case.seed}; the same requests at every cap. In one "
            "queue they wait behind all the batch work that came before them, here that of one span: a longer pile, a longer wait."
        )
    if found is not None and found.pools is not None and found.pool_share is not None:
        notes.append(
            f"Separate pools: the interactive class alone keeps the target on {percent(found.pool_share)} as many engines, and the "
            f"rest do batch work undisturbed: {figure(found.pools.batch_tokens_per_s)} batch tokens/s per engine of the whole. It "
            "takes as many engines as that share needs to come out whole."
        )
    return tuple(notes)


def class_setting(found: SimulatedSharing | None) -> str:
    """Return what to set."""
    text = (
        "No engine caps KV by class: vLLM has priority, and nothing that holds a class back. Hold it in front: let only as many "
        "batch requests in as the cap holds, and give interactive requests the lower priority number"
    )
    if found is None:
        return f"{text}."
    if found.best is None:
        return "Give batch work engines of its own: beside it, at no cap simulated does the interactive class keep its target."
    pools = found.pools
    if pools is None:
        return f"{text}."
    return (
        f"{text}. Separate pools do {figure(pools.batch_tokens_per_s)} batch tokens/s per engine against "
        f"{figure(found.best.batch_tokens_per_s)}, once there are engines enough to split."
    )


def batch_slots(sharing: Sharing, counted: CountedShare, found: SimulatedSharing | None) -> int:
    """Return how many batch requests to let in at once [request]: those that the cap holds; 0 where none holds."""
    if found is not None and found.best is None:
        return 0
    tokens = counted.kv_tokens if found is None or found.best is None else float(found.best.cap_tokens or 0)
    return sharing.batch.slots_within(tokens)


def class_code(slots: int) -> str | None:
    """Return the flags and the gate to copy; None where no batch request may enter."""
    if slots < 1:
        return None
    return (
        "# vllm serve MODEL --scheduling-policy priority\n"
        "import asyncio\n\n"
        f"BATCH_SLOTS = asyncio.Semaphore({slots})  # per engine\n\n\n"
        "async def complete(client, request: dict, interactive: bool):\n"
        "    if interactive:\n"
        '        return await client.completions.create(**request, extra_body={"priority": 0})\n'
        "    async with BATCH_SLOTS:\n"
        '        return await client.completions.create(**request, extra_body={"priority": 1})\n'
    )


def class_answer(sharing: Sharing, pure: BatchShare, counted: CountedShare, found: SimulatedSharing | None = None) -> Explanation:
    """Return the answer: the simulated cap once it is known, before that the caps of the formulas."""
    return Explanation(
        _by_formula(pure, counted) if found is None else _simulated(sharing, pure, counted, found),
        pure.explanation.formula,
        counted.explanation.setting,
    )


def _by_formula(pure: BatchShare, counted: CountedShare) -> str:
    held = f"By formula batch work may hold {pure.kv_tokens:,.0f} tokens of KV"
    whole = ", all that the cache leaves," if pure.kv_tokens < pure.read_tokens else ""
    if pure.kv_tokens < 1.0:
        return counted.explanation.answer
    if counted.sequences <= 0.0:
        return f"{held}{whole} if only their reading counts, and none with prefills counted. {counted.explanation.answer}"
    return (
        f"{held}{whole} if only their reading counts, and {counted.kv_tokens:,.0f} with the prefills of both classes counted: "
        f"{plural(round(counted.sequences), 'sequence')}"
    )


def _simulated(sharing: Sharing, pure: BatchShare, counted: CountedShare, found: SimulatedSharing) -> str:
    target = seconds(sharing.tpot_s)
    formulas = f"formulas of the mean say {counted.kv_tokens:,.0f} with prefills, {pure.kv_tokens:,.0f} without"
    if found.best is None:
        return f"Leave batch work out: at no cap simulated does interactive p99 TPOT stay within {target}; {formulas}"
    tokens = found.best.cap_tokens or 0
    slots = plural(sharing.batch.slots_within(float(tokens)), "request")
    return f"Batch work may hold {tokens:,} tokens of KV, {slots} at once, for a p99 TPOT within {target}; {formulas}"

"""Where a token budget should lie: knees of the roofline, the cap that TPOT sets, the floor that TTFT and the load set."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from planner.analysis.admission import largest_chunk
from planner.analysis.batching import BudgetKnee, budget_knee, ridge_tokens
from planner.analysis.case import Case
from planner.analysis.explanation import Explanation
from planner.analysis.served import Served, serve, stretch_prompts, targets_of, with_knobs
from planner.analysis.steps import (
    Chunk,
    Decoders,
    decode_step_s,
    filled_step_s,
    mixed_step,
    mixed_step_s,
    require_positive,
    require_tokens,
)
from planner.errors import InputError
from planner.parallel import in_parallel
from planner.step_coefficients import compute_dtype_on
from planner.step_model import StepCoefficients
from planner.units import duration, percentage

_LARGEST_BUDGET = 2**16
_MOST_CHUNKS = 512
_IN_SECONDS_FROM = 10.0
_ALIKE = 0.05
_USUAL = (256, 512, 1024, 2048, 4096, 8192)


class Beside(NamedTuple):
    """What a prompt shares its steps with, and what must hold.

    decoders : sequences that decode meanwhile; prompt_tokens : of the prompt [token]; rate_rps : of such prompts [request/s]
    ttft_s, tpot_s : targets [s]
    """

    decoders: Decoders
    prompt_tokens: float
    rate_rps: float
    ttft_s: float
    tpot_s: float


def paper_knee_tokens(case: Case) -> float | None:
    """Return the knee from the data sheet alone [token]; None where it has no rate for the deployment's matrix products."""
    deployment = case.deployment
    gpu, quantization = deployment.gpu, deployment.quantization
    dtype = compute_dtype_on(gpu, quantization, deployment.engine.engine)
    if dtype not in gpu.dense_flops_per_s:
        return None
    return ridge_tokens(gpu.peak_flops_per_s(dtype), gpu.memory_bytes_per_s, quantization.weight_bits / 8.0)


def prompt_ttft_s(budget_tokens: int, beside: Beside, c: StepCoefficients) -> float | None:
    """Return how long a prompt takes to its first token in chunks of what decoders leave of the budget [s]; None: they leave none.

    The prompt is alone in its queue. A chunk has budget - decoders tokens, and each step decodes every decoder too. More than 512
    chunks count as none: no such budget is worth setting.
    """
    chunk = budget_tokens - int(beside.decoders.sequences)
    if chunk < 1 or beside.prompt_tokens / chunk > _MOST_CHUNKS:
        return None
    done, total_s = 0.0, 0.0
    while done < beside.prompt_tokens:
        new = min(float(chunk), beside.prompt_tokens - done)
        total_s += mixed_step_s(beside.decoders, Chunk(new, done, ends_prompt=done + new >= beside.prompt_tokens), c)
        done += new
    return total_s


def ttft_floor_tokens(beside: Beside, c: StepCoefficients) -> int | None:
    """Return the least budget with which the prompt meets the TTFT target [token]; None when no budget does.

    By bisection: more budget means fewer steps, each of which reads weights and keys anew.
    """

    def met(budget: int) -> bool:
        found = prompt_ttft_s(budget, beside, c)
        return found is not None and found <= beside.ttft_s

    return _least(met, int(beside.decoders.sequences) + max(int(beside.prompt_tokens), 1))


def load_floor_tokens(beside: Beside, c: StepCoefficients) -> int | None:
    """Return the least budget that prefills prompts as fast as they arrive [token]; None when no budget does.

    (budget - decoders) / step ≥ rate × prompt tokens: below it the queue grows without end.
    """
    needed = beside.rate_rps * beside.prompt_tokens

    def met(budget: int) -> bool:
        chunk = budget - int(beside.decoders.sequences)
        if chunk < 1:
            return False
        return chunk / filled_step_s(beside.decoders, float(chunk), beside.prompt_tokens, c) >= needed

    return _least(met, _LARGEST_BUDGET)


def _least(met: Callable[[int], bool], largest: int) -> int | None:
    if not met(largest):
        return None
    low, high = 0, largest
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if met(middle) else (middle, high)
    return high


@dataclass(frozen=True, slots=True)
class BudgetBounds:
    """What closed forms say of the token budget; all in tokens, None where no budget does.

    knee : of the linear layers, on the data sheet's figures and with decoders
    cap : decoders and the largest mid-prompt chunk within the TPOT target, 0 when decode alone misses it
    ttft_floor, load_floor : see the functions
    cap_step_s, decode_s : step at the cap and of decode alone [s]
    """

    knee: BudgetKnee
    cap: int
    ttft_floor: int | None
    load_floor: int | None
    cap_step_s: float
    decode_s: float

    @property
    def floor(self) -> int | None:
        """The higher of both floors; None when one of them can't be met."""
        if self.ttft_floor is None or self.load_floor is None:
            return None
        return max(self.ttft_floor, self.load_floor)


def budget_bounds(case: Case, beside: Beside) -> BudgetBounds:
    """Return the knees, the cap and the floors of the token budget."""
    c = case.coefficients
    require_tokens("prompt_tokens", beside.prompt_tokens)
    require_positive("rate_rps", beside.rate_rps, "requests a second")
    require_positive("ttft_s", beside.ttft_s, "seconds")
    paper = paper_knee_tokens(case)
    if paper is None:
        raise InputError("gpu", case.deployment.gpu.id, "has no peak rate for this precision", "Choose another precision")
    chunk = largest_chunk(beside.decoders, beside.tpot_s, c, past_tokens=beside.prompt_tokens / 2.0)
    sequences = beside.decoders.sequences
    return BudgetBounds(
        knee=budget_knee(paper, beside.decoders, c),
        cap=int(sequences) + chunk.chunk_tokens if chunk.chunk_tokens else 0,
        ttft_floor=ttft_floor_tokens(beside, c),
        load_floor=load_floor_tokens(beside, c),
        cap_step_s=chunk.step_s,
        decode_s=float(decode_step_s(sequences, beside.decoders.context_tokens, c)),
    )


class KneeParts(NamedTuple):
    """The step at the linear layers' knee, and what keeps it from being a corner; all in seconds.

    bound_s : weights and FLOPs of the linear layers, equal at the knee; ramp_s : what the linear layers take above that, as kernels
    reach neither rate in full near it
    attention_s : of decoders and of the chunk; fixed_s : launches, head, activations, all-reduces; host_s : of the host
    """

    tokens: int
    bound_s: float
    ramp_s: float
    attention_s: float
    fixed_s: float
    host_s: float
    total_s: float


def knee_parts(case: Case, decoders: Decoders, knee: float) -> KneeParts:
    """Return what a step of the knee's tokens consists of; the decoders are fewer where they alone exceed it."""
    tokens = max(round(knee), 2)
    rows = decoders._replace(sequences=min(decoders.sequences, float(tokens - 1)))
    step = mixed_step(rows, Chunk(tokens - rows.sequences), case.coefficients)
    bound = max(step.linear_weights_s, step.linear_compute_s)
    return KneeParts(
        tokens=tokens,
        bound_s=bound,
        ramp_s=step.linear_s - bound,
        attention_s=step.decode_attention_s + step.prefill_attention_s,
        fixed_s=step.layers_s + step.head_s + step.activation_s + step.all_reduce_s,
        host_s=step.host_s,
        total_s=step.total_s,
    )


class FrontierPoint(NamedTuple):
    """One simulated budget [token]; miss : the worse of p99 TTFT and p99 TPOT over its target [1]."""

    budget: int
    run: Served
    miss: float


@dataclass(frozen=True, slots=True)
class Frontier:
    """Simulated budgets on the same requests, by budget.

    best : the one with the most room: of those whose worse ratio of p99 to target lies within 0.05 of the smallest, the one
        with the shortest p99 TTFT, as the smallest budgets of a flat stretch break first when the load grows; None when nothing ran
    refused : budgets with which the engine would not start; requests : served in each run
    """

    points: tuple[FrontierPoint, ...]
    best: FrontierPoint | None
    refused: tuple[int, ...]
    requests: int

    @property
    def holding(self) -> tuple[int, ...]:
        """The budgets that meet both targets, by budget [token]."""
        return tuple(point.budget for point in self.points if point.miss <= 1.0)

    def at(self, budget: int) -> FrontierPoint | None:
        """Return one budget's point."""
        return next((point for point in self.points if point.budget == budget), None)


def frontier_budgets(case: Case, bounds: BudgetBounds) -> tuple[int, ...]:
    """Return the budgets to simulate: published ones, the case's own, and those that closed forms single out [token]."""
    formulas = (round(bounds.knee.linear_tokens), bounds.knee.with_decoders_tokens, bounds.cap, bounds.floor)
    found = {case.limits.max_num_batched_tokens, *_USUAL, *(each for each in formulas if each is not None and each >= 1)}
    return tuple(sorted(each for each in found if each <= _LARGEST_BUDGET))


def frontier(case: Case, beside: Beside, budgets: tuple[int, ...], count: int) -> Frontier:
    """Serve the same `count` requests of the workload under each budget, at the stated rate."""
    requests = stretch_prompts(case.requests(count, beside.rate_rps), beside.prompt_tokens / case.lengths.prompt_mean_tokens)
    targets = targets_of(beside.ttft_s, beside.tpot_s)

    def one(budget: int) -> FrontierPoint | None:
        engine = with_knobs(case, case.limits.max_num_seqs, budget)
        run = None if engine is None else serve(engine, requests, targets)
        if run is None:
            return None
        return FrontierPoint(budget, run, max(run.ttft_p99_s / beside.ttft_s, run.tpot_p99_s / beside.tpot_s))

    found = in_parallel(one, budgets)
    points = tuple(point for point in found if point is not None)
    refused = tuple(budget for budget, point in zip(budgets, found, strict=True) if point is None)
    return Frontier(points, _most_room(points), refused, count)


def _most_room(points: Sequence[FrontierPoint]) -> FrontierPoint | None:
    if not points:
        return None
    smallest = min(point.miss for point in points)
    near = [point for point in points if point.miss <= smallest + _ALIKE]
    return min(near, key=lambda point: (point.run.ttft_p99_s, point.budget))


def _decoding(decoders: Decoders) -> str:
    return f"{decoders.sequences:g} decoder{'' if decoders.sequences == 1.0 else 's'}"


def bounds_explanation(bounds: BudgetBounds, beside: Beside) -> Explanation:
    """Return between which budgets both targets hold by formula."""
    floor, decoders = bounds.floor, beside.decoders
    knee = bounds.knee
    if bounds.cap == 0 and bounds.decode_s <= beside.tpot_s:
        answer = (
            f"No budget holds the TPOT target: beside {_decoding(decoders)} no chunk of such a prompt fits within "
            f"{beside.tpot_s * 1e3:g} ms a step"
        )
    elif bounds.cap == 0:
        takes = "takes" if decoders.sequences == 1.0 else "take"
        answer = (
            f"No budget holds the TPOT target: {_decoding(decoders)} alone {takes} {bounds.decode_s * 1e3:.3g} ms a step, "
            f"over {beside.tpot_s * 1e3:g} ms"
        )
    elif floor is None:
        answer = f"No budget holds the TTFT target and keeps up with {beside.rate_rps:.3g} such prompts a second"
    elif floor > bounds.cap:
        answer = f"No budget holds both targets: TTFT and load ask for at least {floor:,} tokens, TPOT allows {bounds.cap:,}"
    else:
        answer = (
            f"By formula both targets hold from {floor:,} tokens a step, which TTFT and load ask for, to {bounds.cap:,}, which "
            "TPOT allows"
        )
    return Explanation(
        answer,
        f"cap: {_decoding(decoders)} at {decoders.context_tokens:,.0f} tokens + largest chunk = {bounds.cap:,} tokens in "
        f"{bounds.cap_step_s * 1e3:.3f} ms ≤ {beside.tpot_s * 1e3:g} ms",
        f"--max-num-batched-tokens {bounds.cap}" if bounds.cap else f"knee with decoders: {knee.with_decoders_tokens} tokens",
    )


def frontier_explanation(found: Frontier, beside: Beside) -> Explanation | None:
    """Return which simulated budgets hold both targets and which leaves the most room; None when nothing ran."""
    best = found.best
    if best is None:
        return None
    ttft_s = best.run.ttft_p99_s
    ttft = f"{ttft_s * 1e3:,.0f} ms" if ttft_s < _IN_SECONDS_FROM else f"{ttft_s:.3g} s"
    reached = f"p99 TTFT {ttft}, p99 TPOT {best.run.tpot_p99_s * 1e3:.3g} ms"
    holding = found.holding
    if not holding:
        answer = f"No simulated budget holds both targets; {best.budget:,} comes nearest: {reached}"
    elif len(holding) == 1:
        answer = f"Of the budgets tried only {best.budget:,} holds both targets: {reached}"
    else:
        answer = (
            f"Budgets from {holding[0]:,} to {holding[-1]:,} hold both targets; {best.budget:,} leaves the most room: {reached}"
        )
    return Explanation(
        answer,
        f"worse ratio at {best.budget:,}: max({best.run.ttft_p99_s:.3g} s / {beside.ttft_s:g} s, "
        f"{best.run.tpot_p99_s * 1e3:.3g} ms / {beside.tpot_s * 1e3:g} ms) = {best.miss:.2f}; the smallest is "
        f"{min(point.miss for point in found.points):.2f}, and within {_ALIKE:g} of it this p99 TTFT is the shortest",
        f"--max-num-batched-tokens {best.budget}",
    )


def why_elsewhere(bounds: BudgetBounds, parts: KneeParts, best: int | None) -> str:
    """Return why the measured knee is not the data sheet's, with this engine's figures."""
    knee = bounds.knee
    ramp = percentage(parts.ramp_s / parts.bound_s)
    more = f" and {ramp} more because efficiency ramps up rather than turns a corner" if parts.ramp_s else ""
    host = f", host {duration(parts.host_s)}" if parts.host_s else ""
    found = "" if best is None else f" The simulated budget with the most room is {best:,}."
    return (
        f"The data sheet's peak and bandwidth put the knee at {knee.paper_tokens:.0f} tokens, the rates that kernels reach at "
        f"{knee.linear_tokens:.0f}. A step of {parts.tokens} tokens takes {duration(parts.total_s)}: linear layers "
        f"{duration(parts.bound_s)}{more}, attention {duration(parts.attention_s)}, launches, head, activations and all-reduces "
        f"{duration(parts.fixed_s)}{host}. Those parts don't shrink with a smaller budget, so a measured curve bends elsewhere, "
        f"and what a budget does to waiting prompts isn't in the roofline at all.{found}"
    )


def usual_decoders(case: Case) -> Decoders:
    """Return the sequences that decode at once at the case's rate, by Little's law, or as many as may where it settles nowhere.

    The textbook's figures are those of 64 at 2,048 tokens.
    """
    if case.textbook:
        return Decoders(64.0, 2048.0)
    return case.decoders(float(case.in_flight(case.limits.max_num_seqs)))

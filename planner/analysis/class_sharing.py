"""Interactive and batch work on one engine: how much KV cache and prefill the batch class may hold."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from planner.analysis.admission import largest_chunk
from planner.analysis.explanation import Explanation
from planner.analysis.goodput import largest_within
from planner.analysis.littles_law import Stream
from planner.analysis.steps import Chunk, Decoders, decode_step_s, mixed_step_s, require_positive, require_tokens
from planner.errors import InputError
from planner.step_model import StepCoefficients, StepShape, step_s
from planner.units import plural

_MOST_SEQUENCES = 2.0**16
_FEWEST_SEQUENCES = 2.0**-10
_FINER = 1.25
_HALVINGS = 40


@dataclass(frozen=True, slots=True)
class BatchShare:
    """What the batch class may take beside interactive sequences.

    kv_tokens : tokens of KV that it may hold if only their reading counts, within the cache [token]; 0 when none
    read_tokens : the same whatever the cache holds [token]
    sequences : sequences at its own context, with all that they add to a step counted [seq]
    prefill_tokens : tokens of its prompts in one step, with no batch sequence decoding [token]
    interactive_step_s : step of the interactive class alone [s]
    """

    kv_tokens: float
    read_tokens: float
    sequences: int
    prefill_tokens: int
    interactive_step_s: float
    explanation: Explanation


def beside_tokens(cache_tokens: float | None, interactive: Decoders) -> float | None:
    """Return what a KV cache leaves beside interactive sequences [token]; None, for no bound, where no cache is given.

    >>> beside_tokens(1000.0, Decoders(4.0, 200.0)), beside_tokens(1000.0, Decoders(8.0, 200.0))
    (200.0, 0.0)
    """
    if cache_tokens is None:
        return None
    require_positive("cache_tokens", cache_tokens, "tokens")
    return max(cache_tokens - interactive.sequences * interactive.context_tokens, 0.0)


def batch_share(
    interactive: Decoders, tpot_s: float, batch_context_tokens: float, c: StepCoefficients, cache_tokens: float | None = None
) -> BatchShare:
    """Return the caps that keep the interactive class within its TPOT target.

    interactive : its sequences; tpot_s : its target [s]; batch_context_tokens : mean context of batch sequences [token]
    cache_tokens : that the KV cache holds for both classes [token]; None: taken to hold all

    Every sequence in a step lengthens it for all, whatever its priority: priority orders admission, not the step. The KV cap is
    (target - interactive step) / time to read one cached token, and no more than the cache leaves beside the interactive class.
    """
    require_positive("tpot_s", tpot_s, "seconds")
    alone_s = float(decode_step_s(interactive.sequences, interactive.context_tokens, c))
    read_s = c.decode_s_per_context_token
    room = beside_tokens(cache_tokens, interactive)
    read_tokens = max(tpot_s - alone_s, 0.0) / read_s
    kv_tokens = read_tokens if room is None else min(read_tokens, room)
    sequences = largest_within(lambda n: _joint_step_s(interactive, Decoders(float(n), batch_context_tokens), c), tpot_s, 2**20)
    bound = ""
    if room is not None:
        sequences = min(sequences, int(room / batch_context_tokens))
        bound = f", of which the cache leaves room for {room:,.0f}" if room < read_tokens else ""
    prefill = largest_chunk(interactive, tpot_s, c).chunk_tokens
    return BatchShare(
        kv_tokens,
        read_tokens,
        sequences,
        prefill,
        alone_s,
        Explanation(
            f"Beside {interactive.sequences:g} interactive sequences batch work may hold {kv_tokens:,.0f} tokens of KV, "
            f"{plural(sequences, 'sequence')} at {plural(batch_context_tokens, 'token', f'{batch_context_tokens:g}')}.",
            f"({tpot_s * 1e3:g} ms - {alone_s * 1e3:.3f} ms) / {read_s * 1e9:.2f} ns per cached token = "
            f"{read_tokens:,.0f} tokens{bound}",
            "Cap the batch class by KV tokens in front of the engine (a router or gateway), or give it an engine of its own; "
            "priority "
            "alone leaves its tokens in every step.",
        ),
    )


def _joint_step_s(one: Decoders, other: Decoders, c: StepCoefficients) -> float:
    """Return the time of a step that decodes both classes [s]."""
    sequences = one.sequences + other.sequences
    window = [min(each.context_tokens, c.window_tokens or 0.0) * each.sequences for each in (one, other)]
    shape = StepShape(
        scheduled_tokens=sequences,
        sampled_tokens=sequences,
        sequences=sequences,
        decode_sequences=sequences,
        decode_context_tokens=one.sequences * one.context_tokens + other.sequences * other.context_tokens,
        decode_window_tokens=sum(window),
    )
    return float(step_s(shape, c))


class BatchWork(NamedTuple):
    """Batch requests, of which there are always more: prompt and output of each [token]."""

    prompt_tokens: float
    output_tokens: float

    @property
    def running_context_tokens(self) -> float:
        """Mean tokens that a running sequence has cached [token]."""
        return self.prompt_tokens + self.output_tokens / 2.0

    def slots_within(self, kv_tokens: float) -> int:
        """Return how many of them a cap on their KV holds at once [request]; kv_tokens : the cap [token]."""
        return max(int(kv_tokens / self.running_context_tokens), 0)


@dataclass(frozen=True, slots=True)
class CountedShare:
    """What the batch class may hold when the prefills of both classes count too.

    sequences : of the batch class [seq]; kv_tokens : that they hold [token]; both 0 when interactive work alone misses the target
    alone_tpot_s : mean TPOT of the interactive class alone, its prefills counted [s]; None where it can't keep up
    prefill_share : share of the time that prefills of both classes take at the cap [1]
    batch_tokens_per_s : output of the batch class at the cap [token/s]
    chunk_tokens : largest batch chunk beside all decoders in one step within the target [token]
    """

    sequences: float
    kv_tokens: float
    alone_tpot_s: float | None
    prefill_share: float
    batch_tokens_per_s: float
    chunk_tokens: int
    explanation: Explanation


def steady_stream(decoders: Decoders, output_tokens: float, tpot_s: float) -> Stream:
    """Return equal requests that keep so many sequences decoding, by Little's law.

    decoders : sequences with their mean context; output_tokens : of each request [token]; tpot_s : time of each token [s]
    """
    require_positive("sequences", decoders.sequences, "sequences")
    require_positive("tpot_s", tpot_s, "seconds")
    require_tokens("output_tokens", output_tokens)
    prompt_tokens = max(decoders.context_tokens - output_tokens / 2.0, 1.0)
    return Stream(decoders.sequences / (output_tokens * tpot_s), prompt_tokens, output_tokens)


def decoding(stream: Stream, tpot_s: float) -> float:
    """Return how many sequences of a stream decode at once, rate · output · TPOT, by Little's law [seq]; tpot_s : [s]."""
    return stream.rate_rps * stream.output_tokens * tpot_s


class SharedEngine(NamedTuple):
    """An interactive class and batch work on one engine.

    budget_tokens : most tokens in a step, max_num_batched_tokens [token]
    cache_tokens : that the KV cache holds for both classes [token]; None: taken to hold all
    """

    interactive: Stream
    batch: BatchWork
    budget_tokens: float
    cache_tokens: float | None = None

    def beside(self, interactive_sequences: float, batch_sequences: float) -> Decoders:
        """Return both classes' sequences with their mean context."""
        both = interactive_sequences + batch_sequences
        held = interactive_sequences * self.interactive.running_context_tokens
        held += batch_sequences * self.batch.running_context_tokens
        return Decoders(both, held / both if both > 0.0 else 0.0)


def prefill_added_s(prompt_tokens: float, beside: Decoders, budget_tokens: float, c: StepCoefficients) -> float | None:
    """Return what a prompt's prefill adds to steps that decode anyway [s]; None where decoders leave no token of the budget.

    The prompt goes in as few chunks as the budget allows, taken to be equal.
    """
    room = budget_tokens - beside.sequences
    if room < 1.0:
        return None
    chunks = math.ceil(prompt_tokens / room)
    chunk = Chunk(prompt_tokens / chunks, prompt_tokens / 2.0 * (1.0 - 1.0 / chunks), ends_prompt=chunks == 1)
    decode_s = float(decode_step_s(beside.sequences, beside.context_tokens, c)) if beside.sequences > 0.0 else 0.0
    return chunks * (mixed_step_s(beside, chunk, c) - decode_s)


def shared_tpot_s(sequences: float, shared: SharedEngine, c: StepCoefficients) -> float | None:
    """Return the mean TPOT of both classes on one engine [s]; None where the interactive class can't keep up.

    sequences : of the batch class, at least 0; a new one enters for each that ends [seq]

    TPOT T solves T = decode step + what prefills add to a step: rate · output · T interactive sequences decode, rate · T of their
    prompts come a step, and each batch sequence brings a prompt every `output_tokens` steps. KV is taken to hold all.
    """
    _check_shared(sequences, shared)
    per_tpot = decoding(shared.interactive, 1.0)
    low, high = 0.0, _FEWEST_SEQUENCES
    while not _within(_mean_step_s(high, sequences, shared, c), high / per_tpot):
        low, high = high, high * _FINER
        if high > _MOST_SEQUENCES:
            return None
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        enough = _within(_mean_step_s(middle, sequences, shared, c), middle / per_tpot)
        low, high = (low, middle) if enough else (middle, high)
    return high / per_tpot


def _mean_step_s(interactive: float, sequences: float, shared: SharedEngine, c: StepCoefficients) -> float | None:
    """Return decode of both classes and what prompts add to a step, on average [s]; None where the budget is too small."""
    beside = shared.beside(interactive, sequences)
    own, batch = shared.interactive, shared.batch
    own_s = prefill_added_s(own.prompt_tokens, beside, shared.budget_tokens, c)
    theirs_s = prefill_added_s(batch.prompt_tokens, beside, shared.budget_tokens, c)
    if own_s is None or theirs_s is None:
        return None
    decode_s = float(decode_step_s(beside.sequences, beside.context_tokens, c))
    return decode_s + interactive / own.output_tokens * own_s + sequences / batch.output_tokens * theirs_s


def _within(step_s: float | None, most_s: float) -> bool:
    return step_s is not None and step_s <= most_s


def counted_share(shared: SharedEngine, tpot_s: float, c: StepCoefficients) -> CountedShare:
    """Return the cap on the batch class at which the interactive class's mean TPOT is the target [s], prefills counted.

    Where the KV cache leaves less beside the interactive class, that is the cap, and the mean TPOT lies below the target.
    A percentile lies above the mean, so that the cap for p99 is smaller: simulation finds it.
    """
    _check_shared(0.0, shared)
    require_positive("tpot_s", tpot_s, "seconds")
    alone_s = shared_tpot_s(0.0, shared, c)
    ours = decoding(shared.interactive, tpot_s)
    low, high = 0.0, 1.0
    while _within(_mean_step_s(ours, high, shared, c), tpot_s) and high < _MOST_SEQUENCES:
        low, high = high, high * 2.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _within(_mean_step_s(ours, middle, shared, c), tpot_s) else (low, middle)
    meets = alone_s is not None and alone_s < tpot_s
    room = beside_tokens(shared.cache_tokens, Decoders(ours, shared.interactive.running_context_tokens))
    held = low if room is None else min(low, room / shared.batch.running_context_tokens)
    return _counted(shared, tpot_s, c, (held if meets else 0.0, alone_s, held < low))


def _counted(shared: SharedEngine, tpot_s: float, c: StepCoefficients, found: tuple[float, float | None, bool]) -> CountedShare:
    sequences, alone_s, cache_binds = found
    reached_s = tpot_s if sequences > 0.0 else alone_s
    if cache_binds and sequences > 0.0:
        reached_s = shared_tpot_s(sequences, shared, c)
    ours = decoding(shared.interactive, reached_s or 0.0)
    beside = shared.beside(ours, sequences)
    decode_s = float(decode_step_s(beside.sequences, beside.context_tokens, c)) if beside.sequences > 0.0 else 0.0
    prefill_share = 1.0 if reached_s is None else 1.0 - decode_s / reached_s
    kv_tokens = sequences * shared.batch.running_context_tokens
    chunk = largest_chunk(beside, tpot_s, c).chunk_tokens if sequences > 0.0 else 0
    target = f"{tpot_s * 1e3:g} ms"
    if sequences <= 0.0 and cache_binds and alone_s is not None and alone_s < tpot_s:
        answer = "Nothing is left for batch work: the interactive class alone fills the KV cache."
    elif sequences <= 0.0:
        alone = "can't keep up" if alone_s is None else f"takes {alone_s * 1e3:.1f} ms a token"
        answer = f"Nothing is left for batch work: the interactive class alone {alone} with its prefills, against {target}."
    else:
        answer = (
            f"With the prefills of both classes counted, batch work may hold {kv_tokens:,.0f} tokens of KV, "
            f"{plural(round(sequences), 'sequence')}, for a mean TPOT of {target}."
        )
    return CountedShare(
        sequences,
        kv_tokens,
        alone_s,
        prefill_share,
        sequences / (reached_s or tpot_s),
        chunk,
        Explanation(
            answer,
            f"decode of {ours:.1f} + {sequences:.1f} sequences {decode_s * 1e3:.2f} ms + prefills "
            f"{(reached_s - decode_s) * 1e3:.2f} ms a step = {reached_s * 1e3:.2f} ms"
            if reached_s is not None
            else "the steps that bring a token take longer than new requests leave between them, at every batch",
            f"Let at most {int(sequences)} batch requests in at once"
            if sequences >= 1.0
            else "Give batch work an engine of its own",
        ),
    )


def _check_shared(sequences: float, shared: SharedEngine) -> None:
    require_positive("rate_rps", shared.interactive.rate_rps, "requests a second")
    require_positive("budget_tokens", shared.budget_tokens, "tokens")
    if not (math.isfinite(sequences) and sequences >= 0.0):
        raise InputError("sequences", sequences, "must be finite and at least 0", "Give batch sequences")
    for field, tokens in (
        ("interactive.prompt_tokens", shared.interactive.prompt_tokens),
        ("interactive.output_tokens", shared.interactive.output_tokens),
        ("batch.prompt_tokens", shared.batch.prompt_tokens),
        ("batch.output_tokens", shared.batch.output_tokens),
    ):
        require_tokens(field, tokens)

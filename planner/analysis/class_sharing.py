"""Interactive and batch work on one engine: how much KV cache and prefill the batch class may hold."""

from dataclasses import dataclass

from planner.analysis.admission import largest_chunk
from planner.analysis.explanation import Explanation
from planner.analysis.goodput import largest_within
from planner.analysis.steps import Decoders, decode_step_s, require_positive
from planner.step_model import StepCoefficients, StepShape, step_s


@dataclass(frozen=True, slots=True)
class BatchShare:
    """What the batch class may take beside interactive sequences.

    kv_tokens : tokens of KV that it may hold if only their reading counts [token]; 0 when none
    sequences : sequences at its own context, with all that they add to a step counted [seq]
    prefill_tokens : tokens of its prompts in one step, with no batch sequence decoding [token]
    interactive_step_s : step of the interactive class alone [s]
    """

    kv_tokens: float
    sequences: int
    prefill_tokens: int
    interactive_step_s: float
    explanation: Explanation


def batch_share(interactive: Decoders, tpot_s: float, batch_context_tokens: float, c: StepCoefficients) -> BatchShare:
    """Return the caps that keep the interactive class within its TPOT target.

    interactive : its sequences; tpot_s : its target [s]; batch_context_tokens : mean context of batch sequences [token]

    Every sequence in a step lengthens it for all, whatever its priority: priority orders admission, not the step. The KV cap is
    (target - interactive step) / time to read one cached token.
    """
    require_positive("tpot_s", tpot_s, "seconds")
    alone_s = float(decode_step_s(interactive.sequences, interactive.context_tokens, c))
    read_s = c.decode_s_per_context_token
    kv_tokens = max(tpot_s - alone_s, 0.0) / read_s
    sequences = largest_within(lambda n: _joint_step_s(interactive, Decoders(float(n), batch_context_tokens), c), tpot_s, 2**20)
    prefill = largest_chunk(interactive, tpot_s, c).chunk_tokens
    return BatchShare(
        kv_tokens,
        sequences,
        prefill,
        alone_s,
        Explanation(
            f"Beside {interactive.sequences:g} interactive sequences batch work may hold {kv_tokens:,.0f} tokens of KV, "
            f"{sequences} sequences at {batch_context_tokens:g} tokens.",
            f"({tpot_s * 1e3:g} ms - {alone_s * 1e3:.3f} ms) / {read_s * 1e9:.2f} ns per cached token",
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

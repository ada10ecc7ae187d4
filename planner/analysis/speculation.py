"""Speculative decoding in a batch: tokens a step, what verification costs, and where it starts to lose."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.analysis.explanation import Explanation
from planner.analysis.steps import decode_step_s, require_tokens
from planner.errors import InputError
from planner.step_model import Number, StepCoefficients, StepShape, step_s

Floats = npt.NDArray[np.float64]

_LARGEST_BATCH = 2**16


def expected_tokens(draft_tokens: int, acceptance: float) -> float:
    """Return the tokens that a verification step yields on average [token].

    draft_tokens : K drafts a step; acceptance : chance that a draft is accepted, given the ones before [1]

    Drafts are accepted until the first rejection and the model adds one token: (1 - a^(K+1)) / (1 - a). Leviathan et al. (2023),
    Fast Inference from Transformers via Speculative Decoding, arXiv 2211.17192, equation 1.

    >>> round(expected_tokens(4, 0.7), 4), expected_tokens(3, 1.0), expected_tokens(0, 0.5)
    (2.7731, 4.0, 1.0)
    """
    if draft_tokens < 0:
        raise InputError("draft_tokens", draft_tokens, "must be at least 0", "Give K, the drafts of a step")
    if not 0.0 <= acceptance <= 1.0:
        raise InputError("acceptance", acceptance, "must be between 0 and 1", "Give the share of drafts that are accepted")
    return float(sum(acceptance**k for k in range(draft_tokens + 1)))


def verify_step_s(sequences: Number, context_tokens: float, draft_tokens: int, c: StepCoefficients) -> Number:
    """Return the time of a step that verifies K drafts of each sequence [s].

    sequences : in the batch [seq]; context_tokens : cached for each [token]

    Each sequence costs 1 + K tokens of linear layers, head and token budget; its KV cache is read once for all of them.
    """
    rows = sequences * (1.0 + draft_tokens)
    window = min(context_tokens, c.window_tokens) if c.window_tokens else 0.0
    shape = StepShape(
        scheduled_tokens=rows,
        sampled_tokens=rows,
        sequences=sequences,
        decode_sequences=sequences,
        decode_context_tokens=sequences * context_tokens,
        decode_window_tokens=sequences * window,
    )
    return step_s(shape, c._replace(mix_factor=1.0))


def speedup(sequences: Number, context_tokens: float, draft: "Draft", c: StepCoefficients) -> Number:
    """Return decode throughput with speculation over without [1]; below 1 it loses. sequences : in the batch [seq]."""
    plain_s = decode_step_s(sequences, context_tokens, c)
    verify_s = verify_step_s(sequences, context_tokens, draft.draft_tokens, c)
    return draft.expected_tokens * plain_s / (verify_s + draft.draft_s)


@dataclass(frozen=True, slots=True)
class Draft:
    """How drafts are made.

    draft_tokens : K; acceptance : of one draft [1]; draft_s : time to make the drafts of a step [s], 0 for free ones (n-gram)
    """

    draft_tokens: int
    acceptance: float
    draft_s: float = 0.0

    @property
    def expected_tokens(self) -> float:
        """Tokens that a verification step yields on average [token]."""
        return expected_tokens(self.draft_tokens, self.acceptance)


@dataclass(frozen=True, slots=True)
class Speculation:
    """Speculation at one context length.

    expected_tokens : a step yields [token]; speedup_at_one : at batch 1 [1]
    losing_batch : least batch at which it is slower than plain decode [seq]; None: at none up to the largest
    """

    expected_tokens: float
    speedup_at_one: float
    losing_batch: int | None
    explanation: Explanation


def speculation(context_tokens: float, draft: Draft, c: StepCoefficients, largest_batch: int = _LARGEST_BATCH) -> Speculation:
    """Return what speculation yields and from which batch it loses; largest_batch : to search up to [seq]."""
    require_tokens("context_tokens", context_tokens, least=0.0)
    if not draft.draft_s >= 0.0:
        raise InputError("draft_s", draft.draft_s, "must be at least 0", "Give seconds a step, 0 for free drafts")
    if not 1 <= largest_batch <= 2**24:
        raise InputError("largest_batch", largest_batch, "must be from 1 to 16,777,216", "Give max_num_seqs")
    batches = np.arange(1, largest_batch + 1, dtype=np.float64)
    ratio = np.asarray(speedup(batches, context_tokens, draft, c))
    losing = np.flatnonzero(ratio < 1.0)
    batch = int(batches[losing[0]]) if len(losing) else None
    k, tokens = draft.draft_tokens, draft.expected_tokens
    until = "at every batch" if batch is None else f"up to batch {batch - 1}"
    return Speculation(
        tokens,
        float(ratio[0]),
        batch,
        Explanation(
            f"{k} drafts at {draft.acceptance:g} acceptance yield {tokens:.3f} tokens a step: ×{ratio[0]:.2f} at batch 1, a gain "
            f"{until}.",
            f"(1 + {draft.acceptance:g} + … + {draft.acceptance:g}^{k}) × plain step / (verify step + {draft.draft_s * 1e3:g} ms)",
            "Each request takes 1 + K of the token budget a step; lower K with the batch (num_speculative_tokens_per_batch_size).",
        ),
    )

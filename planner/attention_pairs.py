"""Query-key pairs of causal attention, the measure of a prefill's FLOPs: one formula for floats, arrays and the compiled loop."""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Tokens = TypeVar("Tokens", float, Floats)


def causal_pairs(past_tokens: float | Tokens, new_tokens: Tokens) -> Tokens:
    """Return the pairs of a causal chunk: each query sees what is cached and, on average, half of the chunk [token²].

    past_tokens : computed or cached before the chunk, at least 0 [token]
    new_tokens : of the chunk, at least 0 [token]

    q·(p + q/2), the continuous form: that a token also sees itself adds q/2. Computed as written; checks nothing.

    >>> causal_pairs(100, 10)
    1050.0
    """
    return new_tokens * (past_tokens + new_tokens / 2.0)


def window_pairs(past_tokens: float | Tokens, new_tokens: Tokens, window_tokens: float) -> Tokens:
    """Return the same where a query sees at most `window_tokens` [token²].

    Queries see ever more until the window is full, then the whole of it.

    >>> [float(window_pairs(*chunk)) for chunk in ((100, 10, 1000), (100, 10, 50), (0, 10, 4))]
    [1050.0, 500.0, 32.0]
    """
    growing: Tokens = np.minimum(np.maximum(window_tokens - past_tokens, 0.0), new_tokens)
    return growing * (past_tokens + growing / 2.0) + (new_tokens - growing) * window_tokens

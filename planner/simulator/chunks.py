"""Query-key pairs of prefill chunks, the measure of their attention's FLOPs; plain Python and part of the compiled loop."""

from numba.extending import register_jitable


@register_jitable  # type: ignore[untyped-decorator,unused-ignore]
def chunk_pairs(context: int, tokens: int) -> float:
    """Query-key pairs of a causal chunk: each query sees the context and, on average, half of the chunk [token²].

    context : tokens computed before the chunk [token]
    tokens : of the chunk [token]

    >>> chunk_pairs(100, 10)
    1050.0
    """
    return tokens * (context + 0.5 * tokens)


@register_jitable  # type: ignore[untyped-decorator,unused-ignore]
def chunk_window_pairs(context: int, tokens: int, window: int) -> float:
    """The same where a query sees at most `window` tokens [token²].

    >>> chunk_window_pairs(100, 10, 1000), chunk_window_pairs(100, 10, 50), chunk_window_pairs(0, 10, 4)
    (1050.0, 500.0, 32.0)
    """
    if context + tokens <= window:
        return chunk_pairs(context, tokens)
    if context >= window:
        return 1.0 * tokens * window
    below = window - context
    return chunk_pairs(context, below) + 1.0 * (tokens - below) * window

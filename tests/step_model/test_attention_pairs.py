"""One formula of query-key pairs: against the sum over queries, for arrays, and the same in the compiled loop."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.steps import Decoders, filled_step_s, prefill_s
from planner.attention_pairs import causal_pairs, window_pairs
from planner.simulator import compiled
from planner.step_model import StepCoefficients
from planner.token_costs import token_costs_s

TOKENS = st.integers(0, 20_000)


@settings(max_examples=60, deadline=None)
@given(past=TOKENS, new=TOKENS)
def test_they_are_what_queries_see_less_half_of_each_queries_own_key(past: int, new: int) -> None:
    """Query i of a chunk sees past + i + 1 keys; the continuous form leaves out half a key of each."""
    seen = float(np.sum(past + np.arange(new) + 0.5))
    assert causal_pairs(past, new) == pytest.approx(seen, rel=1e-12, abs=1e-9)


@settings(max_examples=60, deadline=None)
@given(past=TOKENS, new=TOKENS, window=st.integers(1, 20_000))
def test_a_window_cuts_what_each_query_sees(past: int, new: int, window: int) -> None:
    seen = float(np.sum(np.minimum(past + np.arange(new) + 0.5, window)))
    assert window_pairs(past, new, window) == pytest.approx(seen, rel=1e-12, abs=1e-9)
    assert window_pairs(past, new, window) <= causal_pairs(past, new) * (1 + 1e-12)
    assert window_pairs(past, new, past + new) == causal_pairs(past, new)


@settings(max_examples=60, deadline=None)
@given(past=TOKENS, new=TOKENS, cut=st.floats(0.0, 1.0), window=st.integers(1, 20_000))
def test_cutting_a_chunk_changes_nothing(past: int, new: int, cut: float, window: int) -> None:
    first = int(cut * new)
    assert causal_pairs(past, first) + causal_pairs(past + first, new - first) == pytest.approx(causal_pairs(past, new))
    parts = window_pairs(past, first, window) + window_pairs(past + first, new - first, window)
    assert parts == pytest.approx(window_pairs(past, new, window))


def test_arrays_give_what_their_elements_give() -> None:
    past, new = np.array([0.0, 100.0, 5000.0]), np.array([10.0, 10.0, 2048.0])
    assert causal_pairs(past, new).tolist() == [causal_pairs(*each) for each in zip(past, new, strict=True)]
    assert window_pairs(past, new, 105.0).tolist() == [window_pairs(*each, 105.0) for each in zip(past, new, strict=True)]


def test_the_compiled_loop_gives_the_same_bits() -> None:
    assert causal_pairs in compiled._FORMULAS

    @numba.njit
    def both(past, new, window):  # noqa: ANN001, ANN202
        return causal_pairs(past, new), window_pairs(past, new, window)

    for chunk in ((0, 1, 4096), (100, 10, 105), (8192, 2048, 4096), (3, 7, 1)):
        assert both(*chunk) == (causal_pairs(*chunk[:2]), window_pairs(*chunk))


def windowed(window_tokens: float) -> StepCoefficients:
    """A step that costs nothing but pairs in a window."""
    none = dict.fromkeys(StepCoefficients._fields, 0.0)
    return StepCoefficients(**none | {"prefill_s_per_window_pair": 1.0, "window_tokens": window_tokens, "mix_factor": 1.0})


@pytest.mark.parametrize("prompt_tokens", [100.0, 1000.0, 5000.0])
def test_tokens_prompts_and_filled_steps_count_the_same_pairs(prompt_tokens: float) -> None:
    c = windowed(1024.0)
    pairs = window_pairs(0.0, prompt_tokens, 1024.0)
    assert prefill_s(prompt_tokens, c) == pytest.approx(pairs)
    assert token_costs_s(c, 1.0, 1.0, prompt_tokens)[0] * prompt_tokens == pytest.approx(pairs)
    steps = 4
    filled = filled_step_s(Decoders(0.0, 0.0), prompt_tokens / steps, prompt_tokens, c)
    assert filled * steps == pytest.approx(pairs)

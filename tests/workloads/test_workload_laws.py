"""Laws of token counts: closed forms, laws over random input, and the figures published for public traces."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.workloads import TokenLaw, expected_max_ratio, load_trace, running_context_mean
from planner.workloads.laws import Tokens, independent_pair_law, mixed_pair_law, rows_pair_law

rows = st.lists(st.tuples(st.integers(1, 400), st.integers(1, 300)), min_size=1, max_size=25)


def columns(pairs: list[tuple[int, int]]) -> tuple[Tokens, Tokens]:
    array = np.array(pairs, dtype=np.int64)
    return array[:, 0], array[:, 1]


def test_law_of_a_die() -> None:
    law = TokenLaw.from_weights([1, 2, 3, 4, 5, 6], np.ones(6))
    assert law.mean == pytest.approx(3.5)
    assert law.moment(2) == pytest.approx(91 / 6)
    assert law.cv == pytest.approx(np.sqrt(35 / 12) / 3.5)
    assert [law.quantile(p) for p in (0.01, 1 / 6, 0.17, 0.5, 1.0)] == [1, 1, 2, 3, 6]


def test_draw_is_the_inverse_of_the_cdf() -> None:
    law = TokenLaw.from_weights([10, 30], [1, 3])
    assert law.draw(np.array([0.0, 0.2499, 0.25, 0.999999])).tolist() == [10, 10, 30, 30]


def test_equal_values_are_merged_and_empty_ones_left_out() -> None:
    law = TokenLaw.from_weights([5, 5, 7, 9], [1, 1, 2, 0])
    assert law.values.tolist() == [5, 7]
    assert law.cdf.tolist() == [0.5, 1.0]


@given(rows)
@settings(max_examples=60, deadline=None)
def test_law_of_rows_has_the_moments_of_the_rows(pairs: list[tuple[int, int]]) -> None:
    prompts, outputs = columns(pairs)
    stats = rows_pair_law(prompts, outputs).stats()
    assert stats.prompt_mean_tokens == pytest.approx(prompts.mean())
    assert stats.output_mean_tokens == pytest.approx(outputs.mean())
    assert stats.prompt_pairs_mean == pytest.approx((prompts**2).mean() / 2)
    assert stats.running_context_mean_tokens == pytest.approx(running_context_mean(prompts, outputs))
    assert stats.output_p95_tokens == np.quantile(outputs, 0.95, method="inverted_cdf")
    assert stats.total_p99_tokens == np.quantile(prompts + outputs, 0.99, method="inverted_cdf")


@given(rows)
@settings(max_examples=40, deadline=None)
def test_independent_law_equals_every_pairing(pairs: list[tuple[int, int]]) -> None:
    prompts, outputs = columns(pairs)
    law = independent_pair_law(TokenLaw.from_rows(prompts), TokenLaw.from_rows(outputs))
    every = np.array(list(itertools.product(prompts.tolist(), outputs.tolist())))
    truth = rows_pair_law(every[:, 0], every[:, 1])
    assert law.context_work_mean == pytest.approx(truth.context_work_mean)
    assert law.total.mean == pytest.approx(truth.total.mean)
    assert law.total.quantile(0.99) == truth.total.quantile(0.99)


@given(rows, rows)
@settings(max_examples=30, deadline=None)
def test_mixture_of_two_sets_equals_their_union(first: list[tuple[int, int]], second: list[tuple[int, int]]) -> None:
    size = min(len(first), len(second))
    first, second = first[:size], second[:size]
    mixed = mixed_pair_law([(0.5, rows_pair_law(*columns(first))), (0.5, rows_pair_law(*columns(second)))]).stats()
    union = rows_pair_law(*columns(first + second)).stats()
    assert mixed[:-1] == pytest.approx(union[:-1])


def test_context_is_weighted_by_the_steps_that_see_it() -> None:
    # One request of 1 step with 100 tokens, one of 9 steps with 0: the mean step sees far less than the mean prompt.
    assert running_context_mean(np.array([100, 1]), np.array([1, 9])) == pytest.approx((100.5 + 9 * 5.5) / 10)


@given(st.lists(st.integers(1, 500), min_size=1, max_size=30))
@settings(max_examples=50, deadline=None)
def test_longest_of_a_batch_grows_from_the_mean_to_the_maximum(outputs: list[int]) -> None:
    array = np.array(outputs, dtype=np.int64)
    ratios = [expected_max_ratio(batch, array) for batch in (1, 2, 8, 64, 10**6)]
    assert ratios[0] == pytest.approx(1.0)
    assert all(b >= a - 1e-12 for a, b in itertools.pairwise(ratios))
    assert ratios[-1] == pytest.approx(array.max() / array.mean(), rel=1e-6)


def test_longest_of_two_by_enumeration() -> None:
    outputs = np.array([1, 4, 10])
    every = np.mean([max(a, b) for a in outputs for b in outputs])
    assert expected_max_ratio(2, outputs) == pytest.approx(every / outputs.mean())


def test_batch_must_be_positive() -> None:
    with pytest.raises(InputError, match="batch is 0: must be at least 1"):
        expected_max_ratio(0, np.array([1]))


PUBLISHED_MAX_RATIO = {
    "azure-conversation-2023": (2.16, 2.40, 2.66, 2.97, 3.32, 3.71),
    "azure-code-2023": (3.77, 5.67, 8.29, 11.8, 16.4, 22.0),
    "mooncake-conversation": (2.08, 2.50, 3.03, 3.68, 4.44, 5.17),
    "mooncake-synthetic": (3.06, 3.75, 4.37, 4.87, 5.19, 5.37),
    "lmsys-first-turn": (2.56, 3.01, 3.48, 4.03, 4.63, 5.23),
    "sharegpt-first-turn": (2.27, 2.66, 3.00, 3.32, 3.69, 4.27),
    "sharegpt-8k": (1.90, 2.08, 2.19, 2.25, 2.29, 2.31),
    "arxiv-summarisation": (3.65, 5.57, 7.99, 10.3, 11.8, 12.6),
    "bwb-translation": (1.35, 1.44, 1.52, 1.57, 1.60, 1.63),
}


@pytest.mark.parametrize("trace_id", PUBLISHED_MAX_RATIO)
def test_static_batching_waste_of_public_traces(trace_id: str) -> None:
    """E[max of B outputs]/E[O] computed independently from the same rows; 3 digits."""
    outputs = load_trace(trace_id).output_tokens
    ratios = [expected_max_ratio(batch, outputs) for batch in (8, 16, 32, 64, 128, 256)]
    assert ratios == pytest.approx(PUBLISHED_MAX_RATIO[trace_id], rel=0.005)

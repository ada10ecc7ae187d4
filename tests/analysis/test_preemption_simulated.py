"""Preemption: copies by link and model, and runs on a tight cache against what the formula says of one recompute."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.analysis.case import Case
from planner.analysis.preemption import Copies, copy_bytes_per_s, recompute_s
from planner.analysis.preemption_simulated import (
    HOST_PATHS,
    TightRun,
    block_copy_bytes,
    layout_points,
    least_copy_bytes,
    own_path,
    peak_kv_tokens,
    recompute_measured_s,
    restore_curve,
    tight_runs,
    tight_sizes,
)
from planner.cases import textbook_case
from planner.errors import InputError
from planner.units import KIB

RATE_RPS = 20.0


@pytest.fixture(scope="module")
def case() -> Case:
    return textbook_case()


@pytest.fixture(scope="module")
def runs(case: Case) -> list[TightRun]:
    return tight_runs(case, 1500, RATE_RPS, tight_sizes(peak_kv_tokens(case, 1500, RATE_RPS)))


@pytest.mark.parametrize("context", [512, 2048, 8192])
def test_an_idle_engine_computes_a_context_as_fast_as_the_formula_says(case: Case, context: int) -> None:
    measured = recompute_measured_s(case, context)
    assert measured == pytest.approx(recompute_s(float(context), case.coefficients), rel=0.03)


def test_a_context_that_the_cache_never_holds_has_no_time(case: Case) -> None:
    assert recompute_measured_s(case, 500_000) is None


def test_a_preemption_loses_about_a_running_context_and_far_less_with_prefix_caching(case: Case, runs: list[TightRun]) -> None:
    plain, cached = (
        next(run for run in runs if run.prefix_caching == caching and run.preemptions > 20) for caching in (False, True)
    )
    assert plain.lost_tokens / plain.preemptions == pytest.approx(case.context_tokens, rel=0.35)
    assert cached.lost_tokens / cached.preemptions < 0.7 * plain.lost_tokens / plain.preemptions


def test_a_smaller_cache_preempts_more_until_it_holds_few(runs: list[TightRun]) -> None:
    plain = sorted((run for run in runs if not run.prefix_caching), key=lambda run: -run.kv_tokens)
    assert plain[0].preemptions == 0
    assert plain[0].lost_share == 0.0
    assert plain[3].preemptions > plain[1].preemptions
    assert plain[-1].ttft_p99_s is not None
    assert plain[0].ttft_p99_s is not None
    assert plain[-1].ttft_p99_s > 10.0 * plain[0].ttft_p99_s


def test_one_blocks_keys_of_one_layer_are_the_textbooks_copy(case: Case) -> None:
    assert block_copy_bytes(case) == 32 * KIB


@settings(max_examples=40, deadline=None)
@given(rate=st.floats(1e9, 5e11), latency_us=st.floats(0.1, 500.0), share=st.floats(0.01, 0.99))
def test_the_least_copy_reaches_the_rate_that_was_wanted(rate: float, latency_us: float, share: float) -> None:
    copies = Copies(rate, latency_s=latency_us * 1e-6)
    size = least_copy_bytes(copies, share * rate)
    assert size is not None
    assert copy_bytes_per_s(copies._replace(copy_bytes=size)) == pytest.approx(share * rate, rel=1e-9)


def test_no_copy_reaches_more_than_the_link() -> None:
    assert least_copy_bytes(Copies(12e9, latency_s=1e-5), 12e9) is None


def test_attention_makes_long_contexts_dearer_to_compute_than_to_copy(case: Case) -> None:
    points = restore_curve(case, Copies(55e9), 0.0, 100_000.0)
    ratios = np.array([point.recompute_s / point.swap_s for point in points])
    assert (np.diff(ratios) > 0.0).all()
    assert ratios[0] == pytest.approx(6.23, rel=0.02)


@settings(max_examples=20, deadline=None)
@given(cached=st.floats(0.0, 0.95))
def test_what_the_prefix_cache_holds_is_neither_computed_nor_copied(cached: float) -> None:
    case = textbook_case()
    whole, part = (restore_curve(case, Copies(55e9), share, 8192.0)[-1] for share in (0.0, cached))
    assert part.swap_s == pytest.approx((1.0 - cached) * whole.swap_s)
    assert part.recompute_s <= whole.recompute_s


def test_grouped_and_latent_attention_need_less_of_the_link(case: Case) -> None:
    found = {point.name: point for point in layout_points(case)}
    ours = found["Llama-3.1-8B-Instruct"]
    assert ours.break_even_bytes_per_s == pytest.approx(4.411e9, rel=0.01)
    assert ours.attention == "GQA, 4 heads share one"
    assert found["Llama-2-7b-hf"].attention == "MHA"
    assert found["Llama-2-7b-hf"].break_even_bytes_per_s > 4.0 * ours.break_even_bytes_per_s
    assert found["DeepSeek-V3"].attention == "MLA"
    assert found["DeepSeek-V3"].break_even_bytes_per_s < 0.2 * ours.break_even_bytes_per_s


def test_every_path_to_the_host_states_where_its_rate_is_from(case: Case) -> None:
    assert all(path.source.ref for path in HOST_PATHS)
    assert [path.bytes_per_s for path in HOST_PATHS] == sorted(path.bytes_per_s for path in HOST_PATHS)
    assert own_path(case).bytes_per_s == 55e9


@pytest.mark.parametrize(("cached", "most"), [(1.0, 4096.0), (float("nan"), 4096.0), (0.0, 0.0), (0.0, float("nan"))])
def test_a_curve_of_nonsense_is_refused(case: Case, cached: float, most: float) -> None:
    with pytest.raises(InputError):
        restore_curve(case, Copies(55e9), cached, most)

"""Length specs: sampled moments equal the stated law, dependence is kept, wrong documents are refused by name."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from scipy import stats as scipy_stats

from planner.errors import InputError
from planner.workloads import (
    Constant,
    ConstantLengths,
    Gamma,
    GammaLengths,
    HistogramLengths,
    HistogramSide,
    Lengths,
    Lognormal,
    LognormalLengths,
    MixedLengths,
    Mixture,
    MixtureLengths,
    RowFilter,
    RowsLengths,
    Weibull,
    WeibullLengths,
    constant_lengths,
    load_trace,
    with_means,
)
from planner.workloads.lengths import LengthLaw, running_context_mean

ADAPTER = TypeAdapter(Lengths)

# Maximum-likelihood fits of three lognormals to the rows of the BWB translation set; ranks correlate by 0.805.
BWB = MixtureLengths(
    prompt=Mixture(weights=(0.0226, 0.3434, 0.634), mu=(5.9811, 6.9255, 6.9731), sigma=(1.0849, 0.0985, 0.2757), cap_tokens=3504),
    output=Mixture(weights=(0.0343, 0.3288, 0.6369), mu=(6.3778, 7.3799, 7.3828), sigma=(1.0328, 0.0749, 0.2499), cap_tokens=2858),
    rank_correlation=0.805,
)
GAMMA = GammaLengths(
    prompt=Gamma(mean_tokens=1155, cv=0.96, cap_tokens=8192), output=Gamma(mean_tokens=211, cv=0.77, cap_tokens=2048)
)
EVERY_KIND = [
    RowsLengths(trace="azure-conversation-2023"),
    RowsLengths(trace="azure-code-2023", prompt_factor=0.5, output_factor=3.0),
    BWB,
    GAMMA,
    WeibullLengths(
        prompt=Weibull(p50_tokens=1000, p95_tokens=4000, cap_tokens=16384),
        output=Weibull(mean_tokens=200, p95_tokens=600, cap_tokens=4096),
    ),
    LognormalLengths(
        prompt=Lognormal(p50_tokens=300, p95_tokens=2000, cap_tokens=8192),
        output=Lognormal(p50_tokens=100, p95_tokens=500, cap_tokens=1024),
    ),
    constant_lengths(1024, 128),
    HistogramLengths(
        prompt=HistogramSide(table="servegen-deepseek-r1", field="prompt_tokens"),
        output=HistogramSide(table="servegen-deepseek-r1", field="output_tokens"),
    ),
    MixedLengths(prompt=Gamma(mean_tokens=500, cv=1.5, cap_tokens=4096), output=Constant(tokens=256)),
]


@pytest.mark.parametrize("lengths", EVERY_KIND, ids=lambda each: each.kind)
def test_sampled_moments_equal_the_law(lengths: LengthLaw) -> None:
    n = 200_000
    prompts, outputs = lengths.sample(n, np.random.default_rng(7))
    law = lengths.pair_law()
    stats = lengths.stats()
    for sample, side in ((prompts, law.prompt), (outputs, law.output)):
        assert sample.min() >= 1
        assert sample.max() <= side.values[-1]
        error = 5 * side.cv * side.mean / np.sqrt(n) + 1e-9
        assert sample.mean() == pytest.approx(side.mean, abs=error)
    assert running_context_mean(prompts, outputs) == pytest.approx(stats.running_context_mean_tokens, rel=0.03)
    assert np.quantile(outputs, 0.95) == pytest.approx(stats.output_p95_tokens, rel=0.03, abs=1)
    assert np.quantile(prompts + outputs, 0.99) == pytest.approx(stats.total_p99_tokens, rel=0.03)


@pytest.mark.parametrize("lengths", EVERY_KIND, ids=lambda each: each.kind)
def test_same_seed_same_bytes_and_json_round_trip(lengths: LengthLaw) -> None:
    first = lengths.sample(1000, np.random.default_rng(3))
    second = lengths.sample(1000, np.random.default_rng(3))
    other = lengths.sample(1000, np.random.default_rng(4))
    assert [side.tobytes() for side in first] == [side.tobytes() for side in second]
    assert [side.dtype for side in first] == [np.int64, np.int64]
    if lengths.kind != "constant":
        assert first[0].tobytes() != other[0].tobytes()
    assert ADAPTER.validate_json(lengths.model_dump_json()) == lengths


@pytest.mark.parametrize("lengths", EVERY_KIND, ids=lambda each: each.kind)
def test_scaled_to_stated_means(lengths: LengthLaw) -> None:
    scaled = with_means(lengths, 800.0, 120.0).stats()
    assert scaled.prompt_mean_tokens == pytest.approx(800, rel=0.01)
    assert scaled.output_mean_tokens == pytest.approx(120, rel=0.01)


def test_whole_rows_keep_dependence_that_sides_drawn_apart_lose() -> None:
    """Mean running context of whole rows ÷ that of independent sides: 1.08, 0.94, 1.33 and 2.1 times off on these traces."""
    published = {
        "azure-conversation-2023": 1.08,
        "mooncake-conversation": 0.94,
        "arxiv-summarisation": 1.33,
        "mooncake-synthetic": 2.1,
    }
    for trace_id, factor in published.items():
        law = RowsLengths(trace=trace_id).pair_law()
        apart = law.prompt.mean + law.output.moment(2) / 2 / law.output.mean
        assert apart / law.stats().running_context_mean_tokens == pytest.approx(factor, abs=0.03)
    trace = load_trace("bwb-translation")
    prompts, outputs = RowsLengths(trace="bwb-translation").sample(50_000, np.random.default_rng(0))
    recorded = np.corrcoef(trace.prompt_tokens, trace.output_tokens)[0, 1]
    assert np.corrcoef(prompts, outputs)[0, 1] == pytest.approx(recorded, abs=0.02)
    assert recorded == pytest.approx(0.785, abs=0.001)


def test_rows_are_only_rows_of_the_trace() -> None:
    trace = load_trace("azure-code-2023")
    recorded = set(zip(trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))
    prompts, outputs = RowsLengths(trace="azure-code-2023").sample(5000, np.random.default_rng(1))
    assert set(zip(prompts.tolist(), outputs.tolist(), strict=True)) <= recorded


def test_rows_in_order_start_again_at_the_first() -> None:
    trace = load_trace("azure-code-2023")
    prompts, _ = RowsLengths(trace="azure-code-2023", draw="in_order").sample(len(trace) + 3, np.random.default_rng(1))
    assert prompts[:-3].tolist() == trace.prompt_tokens.tolist()
    assert prompts[-3:].tolist() == trace.prompt_tokens[:3].tolist()


def test_filter_of_vllm_benchmarks_on_sharegpt() -> None:
    """The sampler of vLLM (prompt 4..1,024, output ≥ 4, total ≤ 2,048) cuts the mean prompt to 111 and its p95 to 562."""
    keep = RowFilter(min_prompt_tokens=4, min_output_tokens=4, max_prompt_tokens=1024, max_total_tokens=2048)
    stats = RowsLengths(trace="sharegpt-first-turn", keep=keep).stats()
    assert stats.prompt_mean_tokens == pytest.approx(111, abs=0.5)
    assert stats.prompt_p95_tokens == pytest.approx(562, abs=1)


def test_copula_gives_the_rank_correlation_and_the_rows_context() -> None:
    prompts, outputs = BWB.sample(100_000, np.random.default_rng(2))
    assert scipy_stats.spearmanr(prompts, outputs).statistic == pytest.approx(0.805, abs=0.01)
    rows = RowsLengths(trace="bwb-translation").stats()
    assert BWB.stats().running_context_mean_tokens == pytest.approx(rows.running_context_mean_tokens, rel=0.02)
    assert "seed" in BWB.stats().method
    assert rows.method == "exact"


@given(st.floats(5, 4000), st.floats(0.2, 3.0))
@settings(max_examples=25, deadline=None)
def test_gamma_mean_holds_after_the_cap(mean: float, cv: float) -> None:
    law = Gamma(mean_tokens=mean, cv=cv, cap_tokens=5000).law()
    assert law.mean == pytest.approx(mean, rel=0.01, abs=0.1)
    assert law.values[-1] <= 5000


def test_gamma_far_from_its_cap_has_the_stated_cv() -> None:
    law = Gamma(mean_tokens=1000, cv=0.8, cap_tokens=100_000).law()
    assert law.cv == pytest.approx(0.8, rel=0.005)
    assert law.quantile(0.99) == pytest.approx(scipy_stats.gamma(1 / 0.64, scale=640).ppf(0.99), abs=1)


@given(st.floats(20, 2000), st.floats(1.2, 12))
@settings(max_examples=25, deadline=None)
def test_weibull_keeps_median_and_p95(median: float, ratio: float) -> None:
    law = Weibull(p50_tokens=median, p95_tokens=median * ratio, cap_tokens=65536).law()
    assert law.quantile(0.5) == pytest.approx(median, abs=1)
    assert law.quantile(0.95) == pytest.approx(median * ratio, abs=1)


@given(st.floats(50, 2000), st.floats(1.3, 4.0))
@settings(max_examples=25, deadline=None)
def test_weibull_keeps_mean_and_p95(mean: float, ratio: float) -> None:
    law = Weibull(mean_tokens=mean, p95_tokens=mean * ratio, cap_tokens=65536).law()
    assert law.mean == pytest.approx(mean, rel=0.01)
    assert law.quantile(0.95) == pytest.approx(mean * ratio, abs=1)


def test_weibull_of_an_exponential() -> None:
    law = Weibull(mean_tokens=1000, p95_tokens=1000 * np.log(20), cap_tokens=50_000).law()
    assert law.cv == pytest.approx(1.0, rel=0.005)


def test_mixture_fit_of_azure_conversation_has_its_published_errors() -> None:
    """Three lognormals fitted to the outputs, before the cap: KS 0.030, p99 18.0 % high."""
    fit = Mixture(
        weights=(0.4233, 0.2967, 0.28), mu=(4.5728, 4.7237, 6.0063), sigma=(0.3557, 1.0063, 0.05), cap_tokens=1_000_000
    ).law()
    rows = RowsLengths(trace="azure-conversation-2023").pair_law().output
    fitted = np.interp(rows.values, fit.values, fit.cdf)
    assert np.abs(fitted - rows.cdf).max() == pytest.approx(0.030, abs=0.01)
    assert fit.quantile(0.99) / rows.quantile(0.99) - 1 == pytest.approx(0.180, abs=0.01)


def test_cap_makes_a_spike_not_a_thinner_tail() -> None:
    law = Gamma(mean_tokens=1000, cv=1.5, cap_tokens=2000).law()
    assert law.values[-1] == 2000
    assert law.probabilities[-1] > 0.1


@pytest.mark.parametrize(
    ("build", "field"),
    [
        (lambda: Gamma(mean_tokens=-1, cv=1, cap_tokens=10), "mean_tokens"),
        (lambda: Gamma(mean_tokens=float("nan"), cv=1, cap_tokens=10), "mean_tokens"),
        (lambda: Gamma(mean_tokens=5, cv=float("inf"), cap_tokens=10), "cv"),
        (lambda: Gamma(mean_tokens=10, cv=1, cap_tokens=10), "mean_tokens"),
        (lambda: Gamma(mean_tokens=10, cv=1), "cap_tokens"),
        (lambda: Gamma(mean_tokens=10, cv=1, cap_tokens=10**12), "cap_tokens"),
        (lambda: Constant(tokens=0), "tokens"),
        (lambda: Constant(tokens=1.5), "tokens"),
        (lambda: Weibull(p50_tokens=10, mean_tokens=10, p95_tokens=20, cap_tokens=30), "p50_tokens"),
        (lambda: Weibull(p50_tokens=20, p95_tokens=10, cap_tokens=30), "p50_tokens"),
        (lambda: Weibull(p50_tokens=10, p95_tokens=20, cap_tokens=15), "p50_tokens"),
        (lambda: Weibull(mean_tokens=10, p95_tokens=100, cap_tokens=10_000), "mean_tokens"),
        (lambda: Lognormal(p50_tokens=10, p95_tokens=5, cap_tokens=100), "p50_tokens"),
        (lambda: Mixture(weights=(0.5, 0.4), mu=(1, 2), sigma=(1, 1), cap_tokens=9), "weights"),
        (lambda: Mixture(weights=(1.0,), mu=(1, 2), sigma=(1,), cap_tokens=9), "weights"),
        (lambda: RowsLengths(trace="../../etc/passwd"), "trace"),
        (lambda: RowsLengths(trace="azure-code-2023", draw="in_order", prompt_factor=2), "in_order"),
        (lambda: ConstantLengths(prompt=Constant(tokens=1), output=Constant(tokens=1), rank_correlation=2), "rank_correlation"),
        (lambda: ADAPTER.validate_python({"kind": "zipf"}), "zipf"),
        (lambda: ADAPTER.validate_python({"kind": "constant", "prompt": {"tokens": 1}, "output": {"tokens": 1}, "x": 1}), "x"),
    ],
)
def test_wrong_documents_name_the_field(build: Callable[[], object], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        build()


def test_unknown_trace_and_wrong_kind_are_told() -> None:
    with pytest.raises(InputError, match="azure-conversation-2023"):
        RowsLengths(trace="nowhere").sample(1, np.random.default_rng(0))
    with pytest.raises(InputError, match="histogram"):
        RowsLengths(trace="servegen-deepseek-r1").stats()
    with pytest.raises(InputError, match="rows"):
        HistogramSide(table="azure-code-2023", field="prompt_tokens").law()


def test_empty_filter_and_absurd_scale_are_told() -> None:
    with pytest.raises(InputError, match="at least one row"):
        RowsLengths(trace="azure-code-2023", keep=RowFilter(min_prompt_tokens=100_000)).stats()
    with pytest.raises(InputError, match="prompt_factor is 1000"):
        RowsLengths(trace="mooncake-conversation", prompt_factor=1000).stats()
    with pytest.raises(InputError, match="prompt_mean_tokens is 0"):
        with_means(GAMMA, prompt_mean_tokens=0)

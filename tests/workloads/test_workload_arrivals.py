"""Arrival laws: rate, variation, order, determinism and the shapes they follow."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError
from scipy import stats as scipy_stats

from planner.errors import InputError
from planner.workloads import (
    CLIENT_CVS,
    Arrivals,
    ConstantArrivals,
    GammaArrivals,
    PoissonArrivals,
    ProfileArrivals,
    TraceArrivals,
    WeibullArrivals,
    list_profiles,
    load_profile,
    load_trace,
)
from planner.workloads.arrivals import ArrivalLaw
from planner.workloads.profiles import hourly_factors

ADAPTER: TypeAdapter[ArrivalLaw] = TypeAdapter(Arrivals)

EVERY_KIND = [
    PoissonArrivals(),
    GammaArrivals(cv=2.0),
    WeibullArrivals(cv=2.0),
    ConstantArrivals(),
    TraceArrivals(trace="azure-conversation-2023"),
    TraceArrivals(trace="mooncake-conversation", window="first"),
    ProfileArrivals(profile="azure-code-2024"),
    ProfileArrivals(factors=tuple(range(1, 25)), base=GammaArrivals(cv=0.5), start_hour=9.0),
]


def rng(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def gap_cv(arrival_s: np.ndarray) -> float:
    gaps = np.diff(arrival_s)
    return float(gaps.std() / gaps.mean())


@pytest.mark.parametrize("arrivals", EVERY_KIND, ids=lambda each: each.kind)
def test_sorted_finite_and_same_seed_same_bytes(arrivals: ArrivalLaw) -> None:
    first = arrivals.sample(5000, 7.0, rng())
    assert first.shape == (5000,)
    assert first.dtype == np.float64
    assert np.isfinite(first).all()
    assert first[0] >= 0
    assert (np.diff(first) >= 0).all()
    assert first.tobytes() == arrivals.sample(5000, 7.0, rng()).tobytes()
    assert ADAPTER.validate_json(arrivals.model_dump_json()) == arrivals


@pytest.mark.parametrize("arrivals", EVERY_KIND[:6], ids=lambda each: each.kind)
@pytest.mark.parametrize("rate_rps", [0.01, 3.0, 2500.0])
def test_mean_rate_is_the_asked_one(arrivals: ArrivalLaw, rate_rps: float) -> None:
    times = arrivals.sample(40_000, rate_rps, rng())
    assert len(times) / times[-1] == pytest.approx(rate_rps, rel=0.05)


@pytest.mark.parametrize(("arrivals", "cv"), [(PoissonArrivals(), 1.0), (ConstantArrivals(), 0.0)])
def test_cv_of_the_simple_laws(arrivals: ArrivalLaw, cv: float) -> None:
    assert gap_cv(arrivals.sample(200_000, 5.0, rng())) == pytest.approx(cv, abs=0.01)


@given(st.floats(0.1, 6.0))
@settings(max_examples=20, deadline=None)
def test_cv_of_renewal_laws(cv: float) -> None:
    for arrivals in (GammaArrivals(cv=cv), WeibullArrivals(cv=cv)):
        assert gap_cv(arrivals.sample(200_000, 5.0, rng())) == pytest.approx(cv, rel=0.12)


def test_poisson_gaps_are_exponential_and_counts_poisson() -> None:
    times = PoissonArrivals().sample(100_000, 4.0, rng())
    assert scipy_stats.kstest(np.diff(times), "expon", args=(0, 0.25)).pvalue > 0.01
    counts = np.bincount((times // 10).astype(int))[:-1]
    assert counts.mean() == pytest.approx(40, rel=0.02)
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=0.08)


@pytest.mark.parametrize("client", CLIENT_CVS)
def test_named_clients_have_their_cv(client: str) -> None:
    times = GammaArrivals(cv=CLIENT_CVS[client]).sample(200_000, 5.0, rng())
    assert gap_cv(times) == pytest.approx(CLIENT_CVS[client], rel=0.03)


def test_renewal_with_cv_one_is_poisson() -> None:
    for arrivals in (GammaArrivals(cv=1.0), WeibullArrivals(cv=1.0)):
        gaps = np.diff(arrivals.sample(50_000, 2.0, rng()))
        assert scipy_stats.kstest(gaps, "expon", args=(0, 0.5)).pvalue > 0.01


def test_rate_only_stretches_time() -> None:
    for arrivals in EVERY_KIND[:6]:
        slow, fast = arrivals.sample(1000, 1.0, rng()), arrivals.sample(1000, 8.0, rng())
        assert fast * 8 == pytest.approx(slow)


def test_whole_trace_keeps_its_gaps() -> None:
    """The gaps of the Azure 2023 conversation trace have CV 1.09."""
    trace = load_trace("azure-conversation-2023")
    times = TraceArrivals(trace="azure-conversation-2023").sample(len(trace), 100.0, rng())
    assert gap_cv(times) == pytest.approx(1.09, abs=0.005)
    assert trace.arrival_s is not None
    assert np.diff(times) / np.diff(trace.arrival_s) == pytest.approx(np.diff(times)[0] / np.diff(trace.arrival_s)[0])


def test_coarse_ticks_are_spread_in_order() -> None:
    """Mooncake's 3-second ticks make a raw CV of 3.0; spread inside the tick it is 1.01."""
    trace = load_trace("mooncake-conversation")
    assert trace.arrival_s is not None
    assert gap_cv(trace.arrival_s) == pytest.approx(3.0, abs=0.05)
    natural_rps = len(trace) / trace.arrival_s[-1]
    times = TraceArrivals(trace="mooncake-conversation", window="first").sample(len(trace), natural_rps, rng())
    assert gap_cv(times) == pytest.approx(1.01, abs=0.03)
    assert np.abs(times - trace.arrival_s).max() < 2 * 3.0


def test_window_first_starts_at_row_one_and_random_elsewhere() -> None:
    trace = load_trace("azure-code-2023")
    assert trace.arrival_s is not None
    times = TraceArrivals(trace="azure-code-2023", window="first").sample(500, 2.0, rng())
    assert np.corrcoef(times, trace.arrival_s[:500])[0, 1] == pytest.approx(1.0)
    random = [TraceArrivals(trace="azure-code-2023").sample(500, 2.0, rng(seed)).tobytes() for seed in range(4)]
    assert len(set(random)) == 4


def test_trace_is_repeated_for_more_requests_than_rows() -> None:
    n = len(load_trace("azure-code-2023"))
    times = TraceArrivals(trace="azure-code-2023").sample(2 * n, 1.0, rng())
    assert np.diff(times[:n]) == pytest.approx(np.diff(times[n:]))


def test_profile_follows_the_hours() -> None:
    factors = (*([1.0] * 12), *([3.0] * 12))
    arrivals = ProfileArrivals(factors=factors)
    times = arrivals.sample(200_000, 200_000 / 86400, rng())
    hours = np.bincount((times // 3600).astype(int), minlength=24)[:24]
    assert hours[12:].sum() / hours[:12].sum() == pytest.approx(3.0, rel=0.03)
    assert times[-1] == pytest.approx(86400, rel=0.02)
    assert arrivals.peak_factor == pytest.approx(1.5)


def test_profile_starts_at_its_hour_and_goes_round() -> None:
    factors = (*([1.0] * 12), *([3.0] * 12))
    times = ProfileArrivals(factors=factors, start_hour=12).sample(320_000, 100_000 / 86400, rng())
    hours = np.bincount((times // 3600).astype(int), minlength=72)[:72]
    assert hours[:12].sum() / hours[12:24].sum() == pytest.approx(3.0, rel=0.05)
    assert hours[48:60].sum() / hours[60:72].sum() == pytest.approx(3.0, rel=0.05)


def test_flat_profile_is_its_base() -> None:
    flat = ProfileArrivals(factors=(1.0,) * 24).sample(10_000, 3.0, rng())
    assert flat == pytest.approx(PoissonArrivals().sample(10_000, 3.0, rng()))


def test_hour_without_rate_has_no_arrivals() -> None:
    times = ProfileArrivals(factors=(*([0.0] * 6), *([1.0] * 18))).sample(50_000, 1.0, rng())
    assert not ((times % 86400 > 1) & (times % 86400 < 6 * 3600 - 1)).any()


def test_weekday_and_weekend_profile() -> None:
    hourly = hourly_factors((*([2.0] * 24), *([1.0] * 24)))
    assert len(hourly) == 168
    assert hourly.mean() == pytest.approx(1.0)
    assert hourly[0] / hourly[-1] == pytest.approx(2.0)


# Busiest hour ÷ mean and quietest hour ÷ mean of the sources' hourly rates.
PUBLISHED_PEAKS = {
    "azure-code-2024": (3.01, 0.10),
    "azure-conversation-2024": (1.66, 0.47),
    "campus-burstgpt": (1.84, 0.16),
    "servegen-m-large": (1.86, 0.30),
    "servegen-m-mid": (1.83, 0.0),
    "servegen-m-small": (2.06, 0.0),
    "servegen-deepseek-r1": (2.19, 0.45),
}


def test_shipped_profiles_have_their_published_peaks() -> None:
    assert {profile.id for profile in list_profiles()} == set(PUBLISHED_PEAKS)
    for profile_id, (peak, trough) in PUBLISHED_PEAKS.items():
        profile = load_profile(profile_id)
        assert profile.peak_factor == pytest.approx(peak, abs=0.01)
        assert profile.hourly.min() == pytest.approx(trough, abs=0.01)
        assert profile.hourly.mean() == pytest.approx(1.0)
        assert profile.licence
        assert profile.attribution


def test_code_assistant_keeps_office_hours() -> None:
    """Azure 2024 code: weekday at 18:00 UTC 2.7 × the week's mean, weekend 0.11 to 0.60; weekday ÷ weekend 3.1."""
    week = load_profile("azure-code-2024").hourly.reshape(7, 24)
    assert week[:5, 18].mean() == pytest.approx(2.71, abs=0.05)
    assert week[:5].mean() / week[5:].mean() == pytest.approx(3.1, abs=0.2)


@pytest.mark.parametrize(
    ("n", "rate", "field"),
    [
        (0, 1.0, "n is 0"),
        (-5, 1.0, "n is -5"),
        (10**12, 1.0, "n is 1000000000000"),
        (5, 0.0, "rate_rps is 0"),
        (5, -1.0, "rate_rps is -1"),
        (5, float("nan"), "rate_rps is nan"),
        (5, float("inf"), "rate_rps is inf"),
    ],
)
def test_wrong_amounts_are_refused(n: int, rate: float, field: str) -> None:
    with pytest.raises(InputError, match=field):
        PoissonArrivals().sample(n, rate, rng())


@pytest.mark.parametrize(
    ("document", "field"),
    [
        ({"kind": "gamma"}, "cv"),
        ({"kind": "gamma", "cv": 0}, "cv"),
        ({"kind": "weibull", "cv": float("nan")}, "cv"),
        ({"kind": "weibull", "cv": 1e9}, "cv"),
        ({"kind": "trace", "trace": "../x"}, "trace"),
        ({"kind": "trace", "trace": "<b>"}, "trace"),
        ({"kind": "profile"}, "profile"),
        ({"kind": "profile", "factors": [1.0] * 23}, "factors"),
        ({"kind": "profile", "factors": [0.0] * 24}, "factors"),
        ({"kind": "profile", "factors": [-1.0] * 24}, "factors"),
        ({"kind": "profile", "factors": [1.0] * 24, "profile": "azure-code-2024"}, "profile"),
        ({"kind": "bursty"}, "bursty"),
    ],
)
def test_wrong_documents_are_refused(document: dict[str, object], field: str) -> None:
    with pytest.raises(ValidationError, match=field):
        ADAPTER.validate_python(document)


def test_missing_times_and_profiles_are_told() -> None:
    with pytest.raises(InputError, match="must have arrival times"):
        TraceArrivals(trace="lmsys-first-turn").sample(10, 1.0, rng())
    with pytest.raises(InputError, match="must be one of azure-code-2024"):
        ProfileArrivals(profile="nowhere").sample(10, 1.0, rng())

"""Closed-form queues: textbook values, limits of one formula in another, laws, bad input."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.queueing import (
    erlang_c,
    gg1_wait_s,
    ggc_wait_s,
    in_system,
    md1_wait_s,
    mg1_sojourn_quantile_s,
    mg1_wait_quantile_s,
    mg1_wait_s,
    mm1_wait_s,
    mmc_wait_s,
    utilisation,
    utilisation_for_quantile,
)

SERVICE_S = 0.1
rates = st.floats(0.01, 9.99)
squares = st.floats(0.0, 20.0)


def test_mm1_wait_is_rho_over_one_minus_rho_services() -> None:
    assert mm1_wait_s(8.0, SERVICE_S) == pytest.approx(0.4)
    assert mm1_wait_s(5.0, SERVICE_S) == pytest.approx(0.1)


def test_constant_service_halves_the_wait() -> None:
    assert md1_wait_s(8.0, SERVICE_S) == pytest.approx(0.2)


def test_pollaczek_khinchine_by_second_moment() -> None:
    # W = rate · E[S²] / (2 · (1 - rho)), written the other way round.
    second_moment = SERVICE_S**2 * (1.0 + 2.2)
    assert mg1_wait_s(7.0, SERVICE_S, 2.2) == pytest.approx(7.0 * second_moment / (2.0 * 0.3))


def test_erlang_c_against_published_table() -> None:
    # Erlang C for 10 servers offered 8 Erlang is 0.4092, for 5 offered 4 it is 0.5541 (standard tables, four places).
    assert erlang_c(10, 8.0) == pytest.approx(0.4092, abs=5e-5)
    assert erlang_c(5, 4.0) == pytest.approx(0.5541, abs=5e-5)


def test_erlang_c_by_its_sum() -> None:
    servers, load = 7, 5.3
    terms = [load**n / math.factorial(n) for n in range(servers)]
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    assert erlang_c(servers, load) == pytest.approx(last / (sum(terms) + last), rel=1e-12)


def test_erlang_c_of_many_servers_does_not_overflow() -> None:
    assert 0.0 < erlang_c(20_000, 19_900.0) < 1.0


@settings(deadline=None)
@given(rates)
def test_one_server_of_many_is_mm1(rate: float) -> None:
    assert erlang_c(1, rate * SERVICE_S) == pytest.approx(rate * SERVICE_S)
    assert mmc_wait_s(rate, SERVICE_S, 1) == pytest.approx(mm1_wait_s(rate, SERVICE_S))
    assert ggc_wait_s(rate, SERVICE_S, 1, 2.0, 3.0) == pytest.approx(gg1_wait_s(rate, SERVICE_S, 2.0, 3.0))


@settings(deadline=None)
@given(rates, st.floats(1.001, 2.0), squares)
def test_wait_grows_with_utilisation(rate: float, factor: float, cv2: float) -> None:
    lower, higher = mg1_wait_s(rate, SERVICE_S, cv2), mg1_wait_s(min(rate * factor, 9.995), SERVICE_S, cv2)
    assert lower is not None
    assert higher is not None
    assert higher > lower


@settings(deadline=None)
@given(st.integers(1, 60), st.floats(0.05, 0.99))
def test_pooling_shortens_the_wait(servers: int, rho: float) -> None:
    alone, pooled = mmc_wait_s(rho / SERVICE_S, SERVICE_S, 1), mmc_wait_s(rho * servers / SERVICE_S, SERVICE_S, servers)
    assert alone is not None
    assert pooled is not None
    assert pooled <= alone * (1 + 1e-9)


def test_mm1_quantiles_are_exponential() -> None:
    mean_s = SERVICE_S / (1.0 - 0.8)
    assert mg1_sojourn_quantile_s(8.0, SERVICE_S, 1.0, 0.99) == pytest.approx(mean_s * math.log(100.0))
    assert mg1_wait_quantile_s(8.0, SERVICE_S, 1.0, 0.99) == pytest.approx(mean_s * math.log(80.0))
    assert mg1_wait_quantile_s(0.05, SERVICE_S, 1.0, 0.99) == 0.0


@settings(deadline=None)
@given(rates, squares)
def test_wait_quantile_has_the_mean_of_pollaczek_khinchine(rate: float, cv2: float) -> None:
    # Integrating the survival function over time gives back the mean wait.
    mean = mg1_wait_s(rate, SERVICE_S, cv2)
    at_half = mg1_wait_quantile_s(rate, SERVICE_S, cv2, 1.0 - rate * SERVICE_S / math.e)
    assert mean is not None
    assert at_half == pytest.approx(mean / (rate * SERVICE_S))


@pytest.mark.parametrize(("cv2", "published"), [(1.0, 0.7074773599013844), (2.2, 0.531963775842215)])
def test_utilisation_for_p99_of_one_second_as_published(cv2: float, published: float) -> None:
    # Textbook question 7: prefill of 2,048 tokens takes 63.520484 ms.
    assert utilisation_for_quantile(1.0, 0.063520484213299824, cv2) == pytest.approx(published, rel=1e-12)


@settings(deadline=None)
@given(st.floats(0.2, 50.0), squares, st.floats(0.5, 0.9999))
def test_utilisation_for_quantile_inverts_the_quantile(target_s: float, cv2: float, probability: float) -> None:
    rho = utilisation_for_quantile(target_s, SERVICE_S, cv2, probability)
    if rho is None:
        assert -math.log(1 - probability) * SERVICE_S * (1 + cv2) / 2 >= target_s * (1 - 1e-12)
    else:
        assert mg1_sojourn_quantile_s(rho / SERVICE_S, SERVICE_S, cv2, probability) == pytest.approx(target_s)


def test_no_steady_state_is_an_answer() -> None:
    assert mm1_wait_s(10.0, SERVICE_S) is None
    assert mmc_wait_s(20.0, SERVICE_S, 2) is None
    assert mg1_sojourn_quantile_s(11.0, SERVICE_S, 1.0, 0.99) is None
    assert mg1_wait_quantile_s(11.0, SERVICE_S, 1.0, 0.99) is None
    assert erlang_c(2, 2.0) == 1.0
    assert utilisation_for_quantile(0.01, 1.0, 1.0) is None


def test_littles_law_and_utilisation() -> None:
    assert in_system(10.0, 1.25) == 12.5
    assert utilisation(30.0, SERVICE_S, servers=4) == pytest.approx(0.75)


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([math.nan, math.inf, -math.inf, -1.0]))
def test_bad_figures_are_refused(bad: float) -> None:
    for call in (
        lambda: mm1_wait_s(bad, 1.0),
        lambda: mm1_wait_s(1.0, bad),
        lambda: gg1_wait_s(0.5, 1.0, bad, 1.0),
        lambda: erlang_c(2, bad),
        lambda: in_system(bad, 1.0),
        lambda: utilisation_for_quantile(bad, 1.0, 1.0),
        lambda: mg1_wait_quantile_s(0.5, 1.0, 1.0, bad),
    ):
        with pytest.raises(InputError):
            call()


def test_servers_below_one_are_refused() -> None:
    with pytest.raises(InputError, match="servers is 0"):
        erlang_c(0, 1.0)
    with pytest.raises(InputError, match="servers is 0"):
        utilisation(1.0, 1.0, servers=0)

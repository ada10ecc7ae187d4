"""Tenants on one engine: request-fair as its formula says, the counter's even shares, no banked credit, floods, weights."""

import pytest

from planner.analysis.fairness import Request, TokenWeights, request_fair_shares, token_weights
from planner.analysis.fairness_simulated import (
    BY_REQUESTS,
    BY_TOKENS,
    COUNTER,
    NO_LIFT,
    Behaviour,
    SimulatedTenants,
    Tenants,
    service_bound_s,
    simulated_tenants,
)
from planner.analysis.head_of_line_simulated import FIRST_COME
from planner.analysis.steps import Decoders
from planner.cases import textbook_case
from planner.errors import InputError

DECODERS = Decoders(64.0, 2048.0)
DOCUMENTS, CHAT = Request(16_384.0, 200.0), Request(200.0, 100.0)


def weights() -> TokenWeights:
    return token_weights(DECODERS, textbook_case().coefficients)


def serve(behaviour: Behaviour, owed: tuple[float, float] = (1.0, 1.0)) -> SimulatedTenants:
    tenants = Tenants((DOCUMENTS, CHAT), owed, behaviour)
    return simulated_tenants(textbook_case(), tenants, weights(), lambda _text, _share: None)


@pytest.fixture(scope="module")
def both_wait() -> SimulatedTenants:
    return serve("both wait")


@pytest.fixture(scope="module")
def returns() -> SimulatedTenants:
    return serve("second returns")


@pytest.fixture(scope="module")
def floods() -> SimulatedTenants:
    return serve("first floods")


def test_request_fair_gives_the_document_tenant_over_nine_tenths(both_wait: SimulatedTenants) -> None:
    closed = request_fair_shares([DOCUMENTS, CHAT], DECODERS, textbook_case().coefficients)
    found = both_wait.run(BY_REQUESTS)
    assert found.shares[0] > 0.9
    assert found.shares[0] == pytest.approx(closed.linear[0], abs=0.02)
    assert found.jain == pytest.approx(closed.jain_index, abs=0.03)


def test_the_counter_shares_evenly_and_plain_tokens_favour_who_decodes(both_wait: SimulatedTenants) -> None:
    counter, plain = both_wait.run(COUNTER), both_wait.run(BY_TOKENS)
    assert counter.shares[0] == pytest.approx(0.5, abs=0.06)
    assert counter.jain > 0.98
    assert plain.shares[1] > 0.6  # an output token costs five prompt tokens and is counted as one
    assert plain.jain < counter.jain


def test_service_stays_within_the_papers_bound(both_wait: SimulatedTenants, returns: SimulatedTenants) -> None:
    case = textbook_case()
    bound_s = service_bound_s(case, Tenants((DOCUMENTS, CHAT), (1.0, 1.0), "both wait"), weights())
    assert bound_s == pytest.approx(2.0 * case.kv_tokens * weights().decode_token_s)
    for found in (both_wait, returns):
        assert found.run(COUNTER).gap_s <= bound_s
    assert both_wait.run(COUNTER).gap_s < 0.3 * both_wait.run(BY_REQUESTS).gap_s


def test_idle_time_banks_no_credit(returns: SimulatedTenants) -> None:
    assert returns.run(COUNTER).shares[1] == pytest.approx(0.5, abs=0.08)
    assert returns.run(NO_LIFT).shares[1] > 0.7
    assert returns.run(NO_LIFT).jain < returns.run(COUNTER).jain


def test_the_counter_without_its_lift_is_served_only_where_a_tenant_returns(
    both_wait: SimulatedTenants, returns: SimulatedTenants, floods: SimulatedTenants
) -> None:
    assert NO_LIFT in {run.name for run in returns.runs}
    for found in (both_wait, floods):
        assert [run.name for run in found.runs] == [run.name for run in returns.runs if run.name != NO_LIFT]


def test_a_flood_hurts_the_modest_tenant_only_where_nothing_counts_tokens(floods: SimulatedTenants) -> None:
    chat = {name: floods.run(name).waits[1] for name in (FIRST_COME, BY_REQUESTS, COUNTER)}
    assert chat[COUNTER].worst_s < 0.25 * chat[FIRST_COME].worst_s
    assert chat[COUNTER].median_s < 0.1 * chat[FIRST_COME].median_s
    assert chat[BY_REQUESTS].median_s > 5.0 * chat[COUNTER].median_s
    assert floods.run(COUNTER).jain > 0.95


def test_a_weighted_tenant_gets_what_it_is_owed() -> None:
    found = serve("both wait", (1.0, 3.0))
    assert found.run(COUNTER).shares[1] == pytest.approx(0.75, abs=0.06)
    assert found.run(COUNTER).jain > 0.97


def test_service_only_grows_and_shares_add_up(both_wait: SimulatedTenants) -> None:
    for run in both_wait.runs:
        assert sum(run.shares) == pytest.approx(1.0)
        assert (run.service_s[1:] >= run.service_s[:-1] - 1e-9).all()
        assert run.times_s[-1] == pytest.approx(both_wait.span_s)


def test_the_same_seed_gives_the_same_shares(floods: SimulatedTenants) -> None:
    assert [run.shares for run in serve("first floods").runs] == [run.shares for run in floods.runs]


def test_a_request_beyond_the_cache_is_refused() -> None:
    with pytest.raises(InputError, match="KV cache"):
        simulated_tenants(
            textbook_case(),
            Tenants((Request(500_000.0, 10.0), CHAT), (1.0, 1.0), "both wait"),
            weights(),
            lambda _text, _share: None,
        )

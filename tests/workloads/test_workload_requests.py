"""Requests: checked arrays, round trips, block identities."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.provenance import Source
from planner.workloads import BlockHashes, PrefixHitCurve, Requests, load_trace, load_workload, prefix_hit_curve, prefix_hit_rate

ROWS = st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), min_size=1, max_size=20)
SOURCE = Source(kind="assumed", ref="test")


def three(**changes: object) -> Requests:
    columns: dict[str, object] = {
        "arrival_s": np.array([0.0, 0.5, 0.5]),
        "prompt_tokens": np.array([5, 6, 7]),
        "output_tokens": np.array([1, 2, 3]),
        "class_index": np.zeros(3, dtype=np.int64),
    }
    return Requests(**(columns | changes))  # type: ignore[arg-type]


@given(rows=st.lists(st.sampled_from([0, 1, 2]), min_size=1, unique=True).map(sorted))
@settings(max_examples=20, deadline=None)
def test_rows_keep_all_that_is_known_of_them(rows: list[int]) -> None:
    lists = [[1, 2], [1], [3, 4, 5]]
    requests = three(cached_prompt_tokens=np.array([0, 5, 6]), block_hashes=BlockHashes.from_lists(lists, 16))
    taken = requests.take(np.array(rows, np.int64))
    pd.testing.assert_frame_equal(taken.to_frame(), requests.to_frame().iloc[rows].reset_index(drop=True))
    assert three().take(np.array(rows, np.int64)).block_hashes is None


def test_rows_out_of_order_are_refused() -> None:
    with pytest.raises(InputError, match="arrival_s"):
        three().take(np.array([2, 0]))


def test_frame_round_trip() -> None:
    hashes = BlockHashes.from_lists([[1, 2], [1], [3, 4, 5]], 16)
    requests = three(cached_prompt_tokens=np.array([0, 5, 6]), block_hashes=hashes)
    again = Requests.from_frame(requests.to_frame())
    assert again.to_frame().equals(requests.to_frame())
    assert again.block_hashes is not None
    assert again.block_hashes.block_tokens == 16
    assert Requests.from_frame(three().to_frame()).block_hashes is None


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"arrival_s": np.array([0.0, 2.0, 1.0])}, r"arrival_s\[2\] is 1.0: must not fall"),
        ({"arrival_s": np.array([0.0, np.nan, 1.0])}, r"arrival_s\[1\] is nan"),
        ({"arrival_s": np.array([-1.0, 0.0, 1.0])}, r"arrival_s\[0\] is -1.0"),
        ({"arrival_s": np.array([0.0, 1.0])}, "must hold one number"),
        ({"prompt_tokens": np.array([5, 0, 7])}, r"prompt_tokens\[1\] is 0"),
        ({"prompt_tokens": np.array([5, 10**12, 7])}, r"prompt_tokens\[1\] is 1000000000000"),
        ({"output_tokens": np.array([1, 2, -3])}, r"output_tokens\[2\] is -3"),
        ({"output_tokens": np.array([1.0, 2.0, 3.0])}, "must be int64"),
        ({"class_index": np.array([0, -1, 0])}, r"class_index\[1\]"),
        ({"cached_prompt_tokens": np.array([0, 6, 0])}, r"cached_prompt_tokens\[1\] is 6"),
        ({"block_hashes": BlockHashes.from_lists([[1]], 16)}, "must cover 3 requests"),
    ],
)
def test_wrong_arrays_name_field_and_row(changes: dict[str, object], field: str) -> None:
    with pytest.raises(InputError, match=field):
        three(**changes)


def test_frame_without_columns_or_with_fractions_is_refused() -> None:
    with pytest.raises(InputError, match="must have a column output_tokens"):
        Requests.from_frame(pd.DataFrame({"arrival_s": [0.0], "prompt_tokens": [1]}))
    with pytest.raises(InputError, match=r"prompt_tokens\[0\] is 1.5"):
        Requests.from_frame(pd.DataFrame({"arrival_s": [0.0], "prompt_tokens": [1.5], "output_tokens": [1]}))
    frame = three(block_hashes=BlockHashes.from_lists([[1], [2], [3]], 16)).to_frame()
    frame.attrs = {}
    with pytest.raises(InputError, match="block_tokens"):
        Requests.from_frame(frame)


def test_block_hashes_refuse_broken_offsets() -> None:
    with pytest.raises(InputError, match="offsets"):
        BlockHashes(np.array([1, 2]), np.array([0, 3]), 16)


@given(ROWS, st.integers(1, 60))
@settings(max_examples=40, deadline=None)
def test_cycled_rows_repeat_but_never_meet_an_earlier_pass(rows: list[list[int]], n: int) -> None:
    hashes = BlockHashes.from_lists(rows, 16)
    cycled = hashes.cycled(n)
    step = max(max(row) for row in rows) + 1
    for index in range(n):
        expected = [value + (index // len(rows)) * step for value in rows[index % len(rows)]]
        assert cycled.row(index).tolist() == expected


def brute_force_hits(rows: list[list[int]], cache_blocks: int | None) -> int:
    """Blocks that hit, with the cache as a plain list in order of use."""
    cache: list[int] = []
    hits = 0
    for row in rows:
        for block in row:
            if block not in cache:
                break
            hits += 1
        for block in reversed(row):
            if block in cache:
                cache.remove(block)
            cache.append(block)
            if cache_blocks is not None and len(cache) > cache_blocks:
                cache.pop(0)
    return hits


@given(ROWS, st.none() | st.integers(1, 12))
@settings(max_examples=60, deadline=None)
def test_hit_rate_equals_the_obvious_loop(rows: list[list[int]], cache_blocks: int | None) -> None:
    prompts = np.array([16 * len(row) for row in rows])
    rate = prefix_hit_rate(BlockHashes.from_lists(rows, 16), prompts, cache_blocks)
    assert rate == pytest.approx(brute_force_hits(rows, cache_blocks) * 16 / prompts.sum())


# Token hit rates by LRU cache size, computed independently from the published Mooncake traces.
MOONCAKE_HITS = {
    "mooncake-conversation": {1_000: 0.0454, 2_000: 0.0554, 5_000: 0.114, 10_000: 0.2157, 30_000: 0.3322, None: 0.3736},
    "mooncake-synthetic": {1_000: 0.0857, 2_000: 0.1492, 5_000: 0.2845, 10_000: 0.4318, 30_000: 0.6356, None: 0.6512},
}


@pytest.mark.parametrize("trace_id", MOONCAKE_HITS)
def test_mooncake_hit_rates(trace_id: str) -> None:
    trace = load_trace(trace_id)
    assert trace.block_hashes is not None
    for cache_blocks, published in MOONCAKE_HITS[trace_id].items():
        rate = prefix_hit_rate(trace.block_hashes, trace.prompt_tokens, cache_blocks)
        assert rate == pytest.approx(published, abs=0.0001)


@pytest.mark.parametrize(("workload_id", "trace_id"), [("mooncake-conversation",) * 2, ("agent", "mooncake-synthetic")])
def test_shipped_curve_is_the_traces_own(workload_id: str, trace_id: str) -> None:
    shipped, trace = load_workload(workload_id).prefix_hits, load_trace(trace_id)
    assert shipped is not None
    assert trace.block_hashes is not None
    sizes = [round(tokens / 512) for tokens in shipped.cache_tokens[:-1]]
    fresh = prefix_hit_curve(trace.block_hashes, trace.prompt_tokens, sizes, shipped.source)
    assert fresh.cache_tokens == pytest.approx(shipped.cache_tokens)
    assert fresh.hit_rate == pytest.approx(shipped.hit_rate, abs=0.0001)


def test_curve_starts_at_nothing_rises_and_ends_unbounded() -> None:
    curve = PrefixHitCurve(cache_tokens=(100, 200), hit_rate=(0.1, 0.4), block_tokens=16, source=SOURCE)
    assert [curve.at(tokens) for tokens in (0, 50, 100, 150, 200, 1e9)] == pytest.approx([0, 0.05, 0.1, 0.25, 0.4, 0.4])
    assert curve.unbounded_hit_rate == 0.4
    with pytest.raises(InputError, match="cache_tokens is -1"):
        curve.at(-1)
    with pytest.raises(InputError, match="cache_tokens is nan"):
        curve.at(float("nan"))


@pytest.mark.parametrize(
    ("sizes", "rates", "field"),
    [((1, 1), (0, 0), "must rise"), ((1, 2), (0.5, 0.4), "must not fall"), ((1,), (0.1, 0.2), "as many")],
)
def test_curves_that_cannot_be_are_refused(sizes: tuple[float, ...], rates: tuple[float, ...], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        PrefixHitCurve(cache_tokens=sizes, hit_rate=rates, block_tokens=16, source=SOURCE)

"""Wrong and odd input: refused with its name, or served as the engine would."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from planner.errors import InputError
from planner.simulator import EngineLimits, RequestTable, SimulationOptions, bench, check_limits, simulate, values_s
from planner.simulator.bench import bench_engine, bench_simulator, main, read_workload
from planner.workloads import BlockHashes, Requests
from tests.simulator.engines import coefficients

LIMITS = EngineLimits(max_num_seqs=4, max_num_batched_tokens=64, block_size=16, num_blocks=20, max_model_len=200)
SECOND = coefficients(layers_s=1.0)


def table(*rows: tuple[float, int, int]) -> RequestTable:
    arrival_s, prompt, output = zip(*rows, strict=True)
    return RequestTable(np.array(arrival_s), np.array(prompt, np.int64), np.array(output, np.int64))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"max_num_seqs": 0}, "engine.max_num_seqs"),
        ({"block_size": 0}, "engine.block_size"),
        ({"num_blocks": 0}, "engine.num_blocks"),
        ({"max_num_batched_tokens": 3}, "engine.max_num_batched_tokens"),
        ({"max_model_len": 1}, "engine.max_model_len"),
        ({"watermark": 1.0}, "engine.watermark"),
        ({"watermark": float("nan")}, "engine.watermark"),
        ({"long_prefill_token_threshold": -1}, "engine.long_prefill_token_threshold"),
        ({"policy": "lifo"}, "engine.policy"),
    ],
)
def test_engines_that_would_not_start_are_refused(change: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as raised:
        check_limits(LIMITS._replace(**change))
    assert raised.value.field == field


@pytest.mark.parametrize(
    ("arrays", "field"),
    [
        ((np.array([np.nan]), np.array([1]), np.array([1])), "arrival_s[0]"),
        ((np.array([0.0, -1.0]), np.array([1, 1]), np.array([1, 1])), "arrival_s[1]"),
        ((np.array([np.inf]), np.array([1]), np.array([1])), "arrival_s[0]"),
        ((np.array([0.0]), np.array([1.5]), np.array([1])), "prompt_tokens"),
        ((np.array([0.0]), np.array([1]), np.array([1, 2])), "output_tokens"),
        ((np.array([0.0]), np.array([2**40]), np.array([1])), "prompt_tokens"),
    ],
)
def test_arrays_that_are_no_requests_are_refused(arrays: tuple[Any, Any, Any], field: str) -> None:
    with pytest.raises(InputError) as raised:
        RequestTable(*arrays)
    assert raised.value.field == field


def test_what_the_engine_refuses_is_counted_and_the_rest_served() -> None:
    rows = table((0.0, 199, 1), (0.0, 200, 1), (1.0, 0, 5), (1.0, 5, 0), (2.0, 150, 400), (3.0, 5, 5))
    result = simulate(rows, LIMITS, SECOND)
    assert result.rejected.tolist() == [False, True, True, True, False, False]
    assert np.isnan(result.finish_s[result.rejected]).all()
    assert result.output_tokens[4] == 50
    assert result.totals.output_tokens == 1 + 50 + 5


def test_a_request_larger_than_the_cache_is_refused_instead_of_retried_for_ever() -> None:
    limits = LIMITS._replace(max_model_len=None)
    assert simulate(table((0.0, 320, 1), (0.0, 321, 1), (0.0, 300, 22)), limits, SECOND).rejected.tolist() == [False, True, True]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_largest_request_that_fits_is_served(asynchronous: bool) -> None:
    limits = LIMITS._replace(max_model_len=None, async_scheduling=asynchronous)
    for stop in ("length", "eos"):
        result = simulate(table((0.0, 300, 21), (0.0, 300, 21)), limits, SECOND, SimulationOptions(stop=stop))  # type: ignore[arg-type]
        assert result.finished
        assert not result.rejected.any()


def test_no_request_and_one_request() -> None:
    nothing = simulate(RequestTable(np.array([]), np.array([], np.int64), np.array([], np.int64)), LIMITS, SECOND)
    assert nothing.totals.steps == 0
    assert nothing.verdict == "stable"
    assert nothing.totals.busy_s == 0.0
    assert sum(nothing.bound_shares().values()) == 0.0
    one = simulate(table((5.0, 3, 2)), LIMITS, SECOND)
    assert values_s(one, "e2e").tolist() == [2.0]


def test_simultaneous_arrivals_keep_the_callers_order() -> None:
    result = simulate(table(*[(1.0, 64, 1)] * 6), LIMITS._replace(async_scheduling=False), SECOND)
    assert (np.diff(result.first_token_s) > 0.0).all()


def test_all_rejected_is_a_result() -> None:
    result = simulate(table((0.0, 500, 1)), LIMITS, SECOND)
    assert result.rejected.all()
    assert result.totals.steps == 0


@pytest.mark.parametrize(
    ("costs", "field"),
    [
        (coefficients(), "coefficients"),
        (coefficients(layers_s=-1.0), "coefficients.layers_s"),
        (coefficients(layers_s=float("nan")), "coefficients.layers_s"),
        (coefficients(layers_s=1.0, host_s=float("inf")), "coefficients.host_s"),
    ],
)
def test_steps_that_take_no_time_are_refused(costs: Any, field: str) -> None:
    with pytest.raises(InputError) as raised:
        simulate(table((0.0, 1, 1)), LIMITS, costs)
    assert raised.value.field == field


def test_options_are_checked() -> None:
    with pytest.raises(InputError, match="stop"):
        simulate(table((0.0, 1, 1)), LIMITS, SECOND, SimulationOptions(stop="never"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="priorities"):
        simulate(table((0.0, 1, 1)), LIMITS, SECOND, SimulationOptions(priorities=np.array([1, 2])))


def test_the_workloads_requests_are_taken_as_they_are() -> None:
    requests = Requests(np.array([0.0, 1.0]), np.array([5, 6]), np.array([2, 3]), np.array([0, 0]))
    assert simulate(requests, LIMITS, SECOND).totals.output_tokens == 5


@pytest.mark.parametrize("base", [0, 2**50])
def test_equal_identities_hit_the_prefix_cache(base: int) -> None:
    """Two prompts share 64 of 80 tokens by identities of 32 tokens; the second finds four blocks of 16."""
    hashes = BlockHashes.from_lists([[base + 1, base + 2, base + 3], [base + 1, base + 2, base + 4]], 32)
    rows = RequestTable(np.array([0.0, 50.0]), np.array([80, 80]), np.array([2, 2]), hashes)
    cached = simulate(rows, LIMITS._replace(enable_prefix_caching=True), SECOND)
    assert cached.cached_tokens.tolist() == [0, 64]
    assert cached.totals.prefix_hit_tokens == 64
    assert simulate(rows, LIMITS, SECOND).cached_tokens.tolist() == [0, 0]


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_bench_reports_what_it_measured(tmp_path: Path) -> None:
    lines = "\n".join(f"{0.1 * i},{100 + i % 50},{5 + i % 20}" for i in range(300))
    workload = write(tmp_path / "w.csv", f"arrived_at,num_prefill_tokens,num_decode_tokens\n{lines}\n")
    report = bench_simulator(workload)
    assert report["requests"] == report["plain_requests"] == 300
    assert report["engine"]["max_num_seqs"] == 128  # type: ignore[index]
    for name in ("requests_per_s", "steps_per_s", "peak_rss_mib", "times_faster_than_plain"):
        assert float(report[name]) > 0.0  # type: ignore[arg-type]
    assert main(["--workload", str(workload)]) == 0


def test_bench_engine_is_an_8b_on_an_a100() -> None:
    engine = bench_engine()
    assert (engine.limits.max_num_batched_tokens, engine.limits.block_size) == (512, 16)
    assert 20_000 < engine.limits.num_blocks < 35_000
    # 16 GB of weights at no more than the datasheet's 2.04 TB/s
    assert 16.06e9 / 2.039e12 < engine.coefficients.dense_weights_s + engine.coefficients.head_weights_s < 0.02


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "CSV"),
        ("a,b\n1,2\n", "num_prefill_tokens"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,x,1\n", "num_prefill_tokens[0]"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\nnan,1,1\n", "arrived_at[0]"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n-1,1,1\n", "arrival_s[0]"),
        ("arrived_at,num_prefill_tokens,num_decode_tokens\n0,1,1\n0,1e308,1\n", "num_prefill_tokens[1]"),
    ],
)
def test_bench_refuses_other_files(text: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "w.csv", text)
    with pytest.raises(InputError) as raised:
        read_workload(path)
    assert reason in str(raised.value)
    assert main(["--workload", str(path)]) == 2
    assert reason in capsys.readouterr().err


def test_bench_refuses_a_workload_without_a_request_that_the_engine_takes(tmp_path: Path) -> None:
    path = write(tmp_path / "w.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n0,-20,5\n1,9000,5\n")
    with pytest.raises(InputError, match=r"2 requests.*none that the engine accepts"):
        bench_simulator(path)


def test_bench_of_one_token_outputs_has_no_tpot(tmp_path: Path) -> None:
    report = bench_simulator(write(tmp_path / "w.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n0,20,1\n"))
    assert report["tpot_p99_s"] is None
    assert isinstance(report["ttft_p99_s"], float)


@pytest.mark.skipif(not Path("/dev/zero").exists(), reason="needs /dev/zero")
def test_bench_reads_no_more_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "_MOST_BYTES", 1000)
    with pytest.raises(InputError, match="at most 1,000 bytes"):
        read_workload(Path("/dev/zero"))


def test_bench_reads_the_requests_of_a_replay_by_their_own_names(tmp_path: Path) -> None:
    rows = "1.5,30,4\n"
    traced = read_workload(write(tmp_path / "trace.csv", "arrived_at,num_prefill_tokens,num_decode_tokens\n" + rows))
    replayed = read_workload(write(tmp_path / "replay.csv", "arrival_s,prompt_tokens,output_tokens\n" + rows))
    for requests in (traced, replayed):
        assert (requests.arrival_s[0], requests.prompt_tokens[0], requests.output_tokens[0]) == (1.5, 30, 4)


def test_bench_refuses_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="workload"):
        read_workload(tmp_path / "none.csv")


def test_prompt_tokens_known_to_be_cached_are_skipped_in_whole_blocks() -> None:
    rows = RequestTable(np.array([0.0]), np.array([100]), np.array([2]), None, np.array([70]))
    costs = coefficients(linear_s_per_token=1.0)
    limits = LIMITS._replace(max_num_batched_tokens=200, async_scheduling=False)
    cached = simulate(rows, limits._replace(enable_prefix_caching=True), costs)
    assert cached.cached_tokens.tolist() == [64]
    assert values_s(cached, "ttft").tolist() == [36.0]
    assert cached.averages.peak_kv_share == 7 / 20
    assert values_s(simulate(rows, limits, costs), "ttft").tolist() == [100.0]


def test_rows_of_a_table_keep_what_the_cache_is_known_to_hold() -> None:
    hits = np.array([7, 0, 3])
    table = RequestTable(np.array([2.0, 1.0, 0.0]), np.array([10, 20, 30]), np.array([1, 2, 3]), None, hits)
    taken = table.take(np.array([2, 0]))
    assert taken.arrival_s.tolist() == [0.0, 2.0]
    assert taken.output_tokens.tolist() == [3, 1]
    assert taken.cached_prompt_tokens is not None
    assert taken.cached_prompt_tokens.tolist() == [3, 7]


@pytest.mark.parametrize("cached", [[-1], [11], [1, 1]])
def test_impossible_hits_are_refused(cached: list[int]) -> None:
    with pytest.raises(InputError, match="cached_prompt_tokens"):
        RequestTable(np.array([0.0]), np.array([10]), np.array([2]), None, np.array(cached))

"""Results of benchmark tools: every tool's figures as it wrote them, what is derived, and what is refused."""

import contextlib
import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration.importers import BenchmarkRun, read_benchmark
from planner.errors import InputError

DATA = Path(__file__).parents[2] / "data" / "benchmarks"


def of(name: str) -> bytes:
    return (DATA / name).read_bytes()


def document(name: str) -> dict[str, Any]:
    return json.loads(of(name))


def read(changed: dict[str, Any]) -> BenchmarkRun:
    return read_benchmark(json.dumps(changed).encode())[0]


def test_detailed_vllm_result_gives_its_summary_and_its_requests() -> None:
    (run,) = read_benchmark(of("vllm_detailed.json"), "detailed.json")
    assert (run.tool, run.model, run.tp, run.gpu) == ("vllm bench serve", "tiny-llama", 1, "cpu")
    assert (run.arrivals, run.rate_rps, run.requests, run.failed) == ("poisson", 4.0, 24, 0)
    stated = document("vllm_detailed.json")
    assert run.ttft.mean_s == pytest.approx(stated["mean_ttft_ms"] / 1e3, rel=1e-9)
    assert run.tpot.mean_s == pytest.approx(stated["mean_tpot_ms"] / 1e3, rel=1e-6)
    assert run.e2e.p99_s == pytest.approx(stated["p99_e2el_ms"] / 1e3, rel=1e-6)
    assert run.prompt_tokens == pytest.approx(2639 / 24)
    assert run.output_tokens_per_s == pytest.approx(113.959, rel=1e-4)
    assert run.detail is not None
    assert run.detail.sent_s is not None
    assert run.detail.sent_s[0] == 0.0
    assert sum(run.detail.output_tokens) == 798
    assert list(run.detail.sent_s) == sorted(run.detail.sent_s)


def test_appended_vllm_results_are_runs_of_one_file() -> None:
    runs = read_benchmark(of("vllm_append.json"))
    assert [run.load_text for run in runs] == ["4 in flight", "8 in flight"]
    assert all(run.detail is None and "--save-detailed" in run.remarks[0] for run in runs)
    assert runs[0].e2e.mean_s == pytest.approx(0.862379, rel=1e-5)  # from `latencies`, which survive without details


def test_sglang_result() -> None:
    (run,) = read_benchmark(of("sglang.jsonl"))
    assert (run.engine, run.arrivals, run.rate_rps, run.requests) == ("vllm", "poisson", 5.0, 10)
    assert run.tpot.mean_s == pytest.approx(11.522418e-3, rel=1e-6)
    assert run.tpot.p99_s == pytest.approx(15.488671e-3, rel=1e-6)
    assert run.detail is not None
    assert run.detail.sent_s is None


def test_guidellm_report_takes_times_of_requests_not_its_own_tpot() -> None:
    runs = read_benchmark(of("guidellm_concurrent.json"))
    assert [(run.arrivals, run.concurrency) for run in runs] == [("closed", 2), ("closed", 6)]
    stated = document("guidellm_concurrent.json")["benchmarks"][0]["metrics"]
    including_ttft_s = stated["time_per_output_token_ms"]["successful"]["mean"] / 1e3
    assert runs[0].tpot.mean_s is not None
    assert runs[0].tpot.mean_s < 0.95 * including_ttft_s
    assert runs[0].tpot.mean_s == pytest.approx(0.0126, rel=0.02)  # the mock server waits 10 ms a token
    (poisson,) = read_benchmark(of("guidellm_poisson.json"))
    assert (poisson.arrivals, poisson.rate_rps, poisson.model, poisson.tool_version) == ("poisson", 3.0, "tiny-llama", "0.8.1")


def test_guidellm_report_without_requests_says_what_its_percentiles_weigh() -> None:
    changed = document("guidellm_poisson.json")
    changed["benchmarks"][0]["requests"]["successful"] = []
    run = read(changed)
    assert run.tpot.mean_s == pytest.approx((run.e2e.mean_s - run.ttft.mean_s) / (run.output_tokens - 1), rel=0.01)  # type: ignore[operator]
    assert run.tpot.weight == "token"
    assert "weigh tokens" in run.remarks[0]


def test_aiperf_summary_and_records_tell_the_same() -> None:
    (summary,), (records,) = read_benchmark(of("aiperf.json")), read_benchmark(of("aiperf.jsonl"))
    assert (summary.arrivals, summary.concurrency, summary.requests) == ("closed", 3, 16)
    assert (records.arrivals, records.concurrency, records.requests) == ("closed", 3, 16)
    assert summary.ttft.mean_s == pytest.approx(records.ttft.mean_s)
    assert summary.e2e.p50_s == pytest.approx(records.e2e.p50_s)
    assert summary.output_tokens == pytest.approx(393 / 16)  # the server's count, not the client's 419
    assert "419" not in str(summary.output_tokens)
    assert "the server" in summary.remarks[0]


def test_inference_perf_report_whose_tpot_counts_a_token_twice_is_corrected() -> None:
    (run,) = read_benchmark(of("inference_perf_stage_3.json"))
    stated = document("inference_perf_stage_3.json")["successes"]["latency"]["time_per_output_token"]["mean"]
    assert run.tpot.mean_s is not None
    assert run.tpot.mean_s / stated == pytest.approx(2.1, abs=0.1)
    assert run.tpot.mean_s == pytest.approx(0.01542, rel=0.03)  # the server's own histogram (prometheus metrics of the stage)
    assert any("which is used" in remark for remark in run.remarks)
    assert (run.arrivals, run.rate_rps) == ("constant", 92.19)


def test_genai_perf_summary_has_the_same_shape() -> None:
    changed = document("aiperf.json")
    del changed["schema_version"], changed["aiperf_version"], changed["run_info"]
    changed["input_config"] = {"perf_analyzer": {"stimulus": {"concurrency": 3}}, "model_names": ["tiny-llama"]}
    run = read(changed)
    assert (run.tool, run.concurrency, run.model) == ("genai-perf", 3, "tiny-llama")
    assert not any("spaced" in remark for remark in run.remarks)


def test_spacing_that_genai_perf_leaves_open_is_assumed_aloud() -> None:
    changed = document("aiperf.json")
    del changed["schema_version"], changed["aiperf_version"], changed["run_info"]

    def run_of(**stimulus: Any) -> Any:
        changed["input_config"] = {"perf_analyzer": {"stimulus": {"request_rate": 3, **stimulus}}, "model_names": ["tiny-llama"]}
        return read(changed)

    said = "the file doesn't say how requests were spaced: Poisson arrivals are assumed"
    assert (run_of().arrivals, said in run_of().remarks) == ("poisson", True)
    assert said not in run_of(arrival_pattern="constant").remarks


def test_arrivals_of_aiperf_are_those_of_its_pattern() -> None:
    changed = document("aiperf.json")
    command = changed["run_info"]["cli_command"].replace("--concurrency 3", "{}")
    changed["input_config"]["phases"] = []

    def run_of(flags: str) -> Any:
        changed["run_info"]["cli_command"] = command.format(flags)
        return read(changed)

    assert run_of("--request-rate 3").arrivals == "poisson"
    assert run_of("--request-rate 3 --arrival-pattern 'constant'").arrivals == "constant"
    bursty = run_of("--request-rate 3 --arrival-pattern gamma --arrival-smoothness 0.25")
    assert (bursty.arrivals, bursty.burstiness, bursty.rate_rps) == ("gamma", 0.25, 3.0)
    with pytest.raises(InputError, match="smoothness"):
        run_of("--request-rate 3 --arrival-pattern gamma")
    with pytest.raises(InputError, match="no steady load"):
        run_of("--request-rate 3 --arrival-pattern concurrency_burst")


def test_load_of_vllm_results() -> None:
    plain = json.loads(of("vllm_append.json").decode().split("\n{")[0])
    assert read(plain | {"request_rate": 2.0, "max_concurrency": None, "burstiness": 4.0}).arrivals == "gamma"
    assert read(plain | {"request_rate": 2.0, "max_concurrency": None, "burstiness": "inf"}).arrivals == "constant"
    assert read(plain | {"request_rate": "inf", "max_concurrency": None}).arrivals == "burst"
    capped = read(plain | {"request_rate": 2.0, "max_concurrency": 64})
    assert (capped.arrivals, capped.concurrency) == ("poisson", 64)
    with pytest.raises(InputError, match="ramp_up"):
        read(plain | {"request_rate": 2.0, "ramp_up_strategy": "linear"})


def test_failed_requests_are_left_out() -> None:
    changed = document("vllm_detailed.json")
    changed["errors"][0], changed["output_lens"][0], changed["ttfts"][0] = "timeout", 0, 0.0
    changed |= {"completed": 23, "failed": 1, "mean_ttft_ms": 1e3 * sum(changed["ttfts"]) / 23}
    run = read(changed)
    assert (run.requests, run.failed) == (23, 1)


def test_gzip_byte_order_mark_and_nan_are_read() -> None:
    plain = of("vllm_detailed.json")
    assert read_benchmark(gzip.compress(plain))[0].requests == 24
    assert len(read_benchmark(gzip.compress(plain) + gzip.compress(plain))) == 2, "a file of several members is read to its end"
    assert read_benchmark(b"\xef\xbb\xbf" + plain)[0].requests == 24
    assert read_benchmark(plain.decode().encode("utf-16"))[0].requests == 24
    nan = plain.replace(b'"std_ttft_ms":', b'"p75_ttft_ms":NaN,"std_ttft_ms":')
    assert read_benchmark(nan)[0].requests == 24


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"ttfts": "x", "mean_ttft_ms": "fast"}, "must be a number"),
        ({"mean_ttft_ms": -1.0}, "must not be negative"),
        ({"mean_ttft_ms": True}, "must be a number"),
        ({"mean_ttft_ms": 0.267, "mean_tpot_ms": 0.0402, "mean_e2el_ms": 1.6}, "requests' own times"),
        ({"ttfts": [0.3]}, "must list every request"),
        ({"completed": 0}, "must be 1 or more"),
        ({"completed": math.nan}, "must be 1 or more"),
        ({"burstiness": -2}, "must not be negative"),
        ({"latencies": [0.0001] * 24}, "ends before its first token"),
        ({"ttfts": [1e-9] * 24, "mean_ttft_ms": 1e-6}, "must lie between"),
        ({"mean_ttft_ms": 1e300}, "mean_ttft_ms is 1e.297.*must be at most 1e.06 s"),
        ({"output_lens": [10**9] * 24}, "less than or equal to 10000000"),
        ({"total_output_tokens": 10**400, "ttfts": None}, "must be below 1e15"),
    ],
)
def test_impossible_vllm_figures_are_refused_and_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(InputError, match=named):
        read(document("vllm_detailed.json") | change)


def test_a_summary_in_seconds_is_told_from_one_in_milliseconds() -> None:
    plain = json.loads(of("vllm_append.json").decode().split("\n{")[0])
    seconds = {key: value / 1e3 for key, value in plain.items() if key.endswith("_ms")}
    with pytest.raises(InputError, match=r"must lie between|in flight|from TTFT and TPOT"):
        read({**plain, **seconds})
    microseconds = {key: value * 1e3 for key, value in plain.items() if key.endswith("_ms")}
    with pytest.raises(InputError, match=r"in flight|must lie between|from TTFT and TPOT"):
        read({**plain, **microseconds})


def test_aiperf_units_are_read_and_unknown_ones_refused() -> None:
    changed = document("aiperf.json")
    for statistic in ("avg", "p50", "p90", "p99"):
        changed["time_to_first_token"][statistic] *= 1e6
    changed["time_to_first_token"]["unit"] = "ns"
    assert read(changed).ttft.mean_s == pytest.approx(0.5448277)
    changed["time_to_first_token"]["unit"] = "<b>parsecs</b>"
    with pytest.raises(InputError, match="must be one of"):
        read(changed)


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "must not be empty"),
        (b"   \n", "must not be empty"),
        (b"PK\x03\x04rest", "a ZIP archive"),
        (b"\x1f\x8b\x08cut", "whole gzip"),
        (b"a,b\n1,2\n", "vllm bench serve, SGLang bench_serving, GuideLLM, AIPerf and genai-perf, inference-perf"),
        (b'{"hello": 1}', "must be a result of vllm bench serve"),
        (b'[{"hello": 1}]', "must be a result of"),
        (b"[1, 2]", "must hold JSON objects"),
        (b"[]", "must be a result of"),
        (b"{" * 100_000, "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"a": "\xff\xfe"}', "UTF-8"),
        (b"\x00\x01\x02", "text"),
        (b'{"a": 1', "not valid JSON at line 1"),
    ],
)
def test_files_that_are_no_results_are_refused(data: bytes, named: str) -> None:
    with pytest.raises(InputError, match=named):
        read_benchmark(data)


def test_a_result_that_is_cut_names_the_line() -> None:
    whole = json.dumps(document("vllm_detailed.json"), indent=1).encode()
    with pytest.raises(InputError, match=r"not valid JSON at line \d+"):
        read_benchmark(whole[: len(whole) // 2])


def test_results_without_lengths_say_what_to_give_instead() -> None:
    with pytest.raises(InputError, match="vllm bench serve"):
        read_benchmark(of("vllm_latency.json"))
    with pytest.raises(InputError, match="lifecycle"):
        read_benchmark(of("inference_perf_prometheus.json"))


def test_a_decompressed_file_is_bounded() -> None:
    with pytest.raises(InputError, match="at most 64 MiB"):
        read_benchmark(gzip.compress(b" " * (65 * 2**20), 1))
    with pytest.raises(InputError, match="at most 64 MiB"):
        read_benchmark(gzip.compress(b" ") + gzip.compress(b" " * (65 * 2**20), 1))


@settings(max_examples=40, deadline=None)
@given(cut=st.integers(1, 10_200), name=st.sampled_from(["vllm_detailed.json", "aiperf.json", "sglang.jsonl"]))
def test_any_beginning_of_a_file_is_read_or_refused_with_a_reason(cut: int, name: str) -> None:
    with contextlib.suppress(InputError):  # any other error fails
        read_benchmark(of(name)[:cut])


@settings(max_examples=60, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(sorted(document("vllm_detailed.json"))),
)
def test_any_value_in_any_field_is_read_or_refused_with_a_reason(value: Any, field: str) -> None:
    with contextlib.suppress(InputError):  # any other error fails
        read(document("vllm_detailed.json") | {field: value})


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 request is left out: its ttft_s is"), (3, "3 requests are left out: their ttft_s is")]
)
def test_requests_without_a_time_are_left_out_aloud(count: int, words: str) -> None:
    changed = document("vllm_detailed.json")
    changed["ttfts"][:count] = [math.nan] * count
    run = read(changed)
    assert run.requests == 24 - count
    assert run.detail is not None
    assert any(remark.startswith(words) for remark in run.remarks)
    assert read(document("vllm_detailed.json")).remarks == ()


def test_a_clock_with_a_gap_is_said_to_be_unused() -> None:
    changed = document("vllm_detailed.json")
    changed["start_times"][3] = math.nan
    run = read(changed)
    assert run.detail is not None
    assert run.detail.sent_s is None
    assert any("times of sending" in remark for remark in run.remarks)


def test_a_mean_that_is_no_number_is_said_to_be_unused() -> None:
    changed = json.loads(of("vllm_append.json").splitlines()[0])
    whole = read(changed)
    remark = read({**changed, "mean_ttft_ms": math.nan, "request_rate": math.inf, "itls": [math.nan]}).remarks[-1]
    assert remark == "NaN or infinite, and left out: mean_ttft_ms"
    assert len(read(changed).remarks) == len(whole.remarks) == 1


def test_a_guidellm_mean_that_is_no_number_is_said_of_its_own_run() -> None:
    changed = document("guidellm_concurrent.json")
    changed["benchmarks"][1]["metrics"]["time_to_first_token_ms"]["successful"]["mean"] = math.nan
    first, second = read_benchmark(json.dumps(changed).encode())
    assert not any("NaN" in remark for remark in first.remarks)
    assert any("metrics.time_to_first_token_ms.successful.mean" in remark for remark in second.remarks)


def test_many_hostile_names_stay_within_a_remark() -> None:
    changed = json.loads(of("vllm_append.json").splitlines()[0])
    remark = read(changed | {f"<b>\n{'x' * 500}{place}": math.nan for place in range(9)}).remarks[-1]
    assert len(remark) < 500
    assert "\n" not in remark
    assert "and 4 more" in remark

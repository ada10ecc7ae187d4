"""The check of a plan: requests that the tools read back as they were, a command that the tool takes, and what should come out."""

import json
import shlex
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from planner.calibration.importers import vllm_bench
from planner.errors import InputError
from planner.exporters.check import BLOCK_TOKENS, Check, check_of
from planner.plans import Plan, plan
from planner.replay import ReplaySettings, replay
from planner.scenario import scenario_from_dict
from planner.workloads.importers import import_rows

ONE_GPU: dict[str, Any] = {"hardware": {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}}
# Flags of `vllm bench serve` in vLLM 0.32.0 (benchmarks/serve.py and datasets/datasets.py).
FLAGS = {
    "--backend", "--base-url", "--model", "--dataset-name", "--dataset-path", "--num-prompts", "--num-warmups",
    "--timed-trace-chunk-hash-size", "--timed-trace-sec-multiplier", "--percentile-metrics", "--metric-percentiles",
    "--save-result", "--save-detailed", "--result-filename", "--metadata",
}  # fmt: skip


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan(scenario_from_dict(ONE_GPU))


@pytest.fixture(scope="module")
def check(planned: Plan) -> Check:
    return check_of(planned)


def rows(check: Check) -> list[dict[str, Any]]:
    return [json.loads(line) for line in check.requests_jsonl.splitlines()]


def test_the_command_has_only_flags_of_the_tool(check: Check) -> None:
    assert {part for part in check.arguments if part.startswith("--")} <= FLAGS
    assert shlex.split(check.line) == list(check.arguments)
    given = dict(zip(check.arguments, check.arguments[1:], strict=False))
    assert given["--dataset-path"] == check.requests_file
    assert given["--num-prompts"] == str(check.number) == str(len(rows(check)))
    assert float(given["--timed-trace-sec-multiplier"]) == 0.001
    assert int(given["--timed-trace-chunk-hash-size"]) == BLOCK_TOKENS


def test_prompts_are_as_long_as_their_ids_allow_and_share_none(check: Check) -> None:
    used: set[int] = set()
    for row in rows(check):
        blocks = len(row["hash_ids"])
        assert (blocks - 1) * BLOCK_TOKENS < row["input_length"] <= blocks * BLOCK_TOKENS
        assert not used & set(row["hash_ids"])
        used |= set(row["hash_ids"])


def test_the_rate_is_the_planned_replicas(planned: Plan, check: Check) -> None:
    assert planned.chosen is not None
    assert planned.chosen.latency is not None
    last_s = rows(check)[-1]["timestamp"] / 1000.0
    assert check.rate_rps == planned.chosen.latency.rate_rps
    assert check.number / last_s == pytest.approx(check.rate_rps, rel=0.1)
    assert 200 <= check.number <= 2000


def test_the_planner_reads_its_own_trace_back(check: Check) -> None:
    trace = import_rows(check.requests_jsonl.encode(), check.requests_file).trace
    assert list(trace.prompt_tokens) == [row["input_length"] for row in rows(check)]
    assert list(trace.output_tokens) == [row["output_length"] for row in rows(check)]
    assert trace.arrival_s is not None
    assert np.diff(trace.arrival_s) == pytest.approx(np.diff([row["timestamp"] / 1000.0 for row in rows(check)]))


def test_what_should_come_out_is_what_the_simulator_serves(planned: Plan, check: Check) -> None:
    run = replay(planned, ReplaySettings(requests=check.number)).planned.client
    ttft_s = run.first_token_s - run.arrival_s
    several = run.output_tokens > 1
    tpot_s = (run.finish_s - run.first_token_s)[several] / (run.output_tokens[several] - 1)
    assert check.expected.ttft_mean_s == pytest.approx(ttft_s.mean())
    assert check.expected.ttft_p99_s == pytest.approx(np.percentile(ttft_s, 99))
    assert check.expected.tpot_mean_s == pytest.approx(tpot_s.mean())
    assert check.expected.tpot_p99_s == pytest.approx(np.percentile(tpot_s, 99))


def test_a_result_of_the_command_is_read_with_the_times_at_which_it_sent(planned: Plan, check: Check) -> None:
    run = replay(planned, ReplaySettings(requests=check.number)).planned.client
    ttft_s, e2e_s = run.first_token_s - run.arrival_s, run.finish_s - run.arrival_s
    document: dict[str, Any] = {
        "date": "20261201-120000", "backend": "vllm", "model_id": "m", "num_prompts": check.number, "request_rate": "inf",
        "burstiness": 1.0, "max_concurrency": None, "gpu": planned.chosen.gpu_id if planned.chosen else "", "tp": "1",
        "duration": float(run.finish_s.max()), "completed": check.number, "failed": 0,
        "total_input_tokens": int(run.prompt_tokens.sum()), "total_output_tokens": int(run.output_tokens.sum()),
        "request_throughput": 1.0, "output_throughput": 1.0, "total_token_throughput": 1.0,
        "input_lens": run.prompt_tokens.tolist(), "output_lens": run.output_tokens.tolist(),
        "ttfts": ttft_s.tolist(), "latencies": e2e_s.tolist(), "start_times": (1000.0 + run.arrival_s).tolist(),
        "errors": [""] * check.number,
    }  # fmt: skip
    read = vllm_bench.read(document, "check.json")
    assert read.detail is not None
    assert read.detail.sent_s is not None
    assert np.diff(read.detail.sent_s) == pytest.approx(np.diff(run.arrival_s))
    assert (read.gpu, read.tp, read.arrivals) == ("h100-80g-sxm", 1, "trace")
    assert read.rate_rps == pytest.approx(check.rate_rps, rel=0.1)
    assert "trace" in read.load_text
    burst = vllm_bench.read({**document, "start_times": np.linspace(1000.0, 1001.0, check.number).tolist()}, "burst.json")
    assert (burst.arrivals, burst.rate_rps) == ("burst", None)
    assert read.ttft.mean_s == pytest.approx(check.expected.ttft_mean_s)


def test_a_result_says_how_its_server_was_started(planned: Plan, check: Check) -> None:
    chosen = planned.chosen
    assert chosen is not None
    assert chosen.knobs is not None
    assert chosen.deployment is not None
    facts = dict(fact.split("=") for fact in check.arguments[check.arguments.index("--metadata") + 1 :])
    bare = {"request_rate": 1.0, "total_token_throughput": 1.0, "completed": 9, "total_input_tokens": 9, "total_output_tokens": 18}
    read = vllm_bench.read({**bare, "duration": 9.0, "mean_ttft_ms": 5.0, "mean_tpot_ms": 5.0, **facts}, "check.json")
    assert (read.gpu, read.tp, read.engine_version) == (chosen.gpu_id, 1, planned.scenario.engine.version)
    assert read.settings.model_dump() == {
        "quantization": chosen.quantization_id,
        "kv_dtype": chosen.deployment.kv_dtype,
        "max_num_seqs": chosen.knobs.max_num_seqs,
        "max_num_batched_tokens": chosen.knobs.max_num_batched_tokens,
        "max_model_len": chosen.deployment.engine.max_model_len,
    }


def test_what_the_engine_refuses_is_left_out() -> None:
    short = plan(scenario_from_dict({**ONE_GPU, "engine": {"max_model_len": 16384}, "workload": {"id": "azure-code-2023"}}))
    for row in rows(check_of(short)):
        assert row["input_length"] + row["output_length"] <= 16384


def test_what_no_server_waits_for_is_refused(planned: Plan) -> None:
    offline = plan(scenario_from_dict({**ONE_GPU, "targets": {"ttft_p99_s": None, "tpot_p99_s": None}}))
    with pytest.raises(InputError, match="no latencies to check"):
        check_of(offline)
    with pytest.raises(InputError, match="no replica to check"):
        check_of(replace(planned, chosen=None))

"""Predictions of measured rows: names, refusals, bounds, the report's shape, and a recorded subset with limits."""

import json
import zlib
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.accuracy import AccuracyReport, accuracy_report, is_held_out, predict, recipes, report_of, setting_of, shipped_accuracy
from planner.accuracy.bounds import least_tpot_s, least_ttft_s
from planner.accuracy.names import engine_named, gpu_named, model_named, quantization_named
from planner.accuracy.report import ErrorSummary
from planner.accuracy.setting import NotPredictedError
from planner.calibration.measurements import Measurement
from planner.models import load_model

SUBSET = Path(__file__).parent / "serving_subset.csv"
ROW = Measurement(
    engine="vLLM",
    engine_version="0.19.0",
    model="Llama-3.1-8B",
    gpu="H100",
    scenario="closed-loop",
    prompt_tokens=1024,
    output_tokens=128,
    concurrency=8,
    tpot_s=0.010,
    ttft_s=0.15,
)


def like(**changes: object) -> Measurement:
    return ROW.model_copy(update=changes)


def sweep(rate_rps: float) -> Measurement:
    load = {"prompt_tokens": 512, "output_tokens": 256, "rate_rps": rate_rps, "requests": 500, "arrivals_rescaled": True}
    return like(gpu="H100-NVL-94GB", scenario="open-loop", concurrency=None, **load)


@lru_cache(maxsize=2)
def subset(records: str = "shipped") -> AccuracyReport:
    return accuracy_report(SUBSET, "none" if records == "none" else "shipped")


@pytest.mark.parametrize(
    ("name", "gpu_id"),
    [
        ("H100-SXM-80GB", "h100-80g-sxm"),
        ("h200_sxm", "h200-141g-sxm"),
        ("A100_80GB_PCIe", "a100-80g-pcie"),
        ("MI300X", "mi300x"),
        ("L40S", "l40s"),
        ("GB200-192GB", "gb200"),
        ("H20-141GB", None),
        ("<b>H100</b>", None),
        ("../h100-80g-sxm", "h100-80g-sxm"),
    ],
)
def test_gpu_names(name: str, gpu_id: str | None) -> None:
    gpu = gpu_named(name)
    assert (None if gpu is None else gpu.id) == gpu_id


@pytest.mark.parametrize(
    ("name", "model_id"),
    [
        ("meta-llama/Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b-instruct"),
        ("nvidia/Llama-3.1-8B-Instruct-FP8", "llama-3.1-8b-instruct"),
        ("nvidia/DeepSeek-R1-NVFP4", "deepseek-r1"),
        ("MiniMaxAI/MiniMax-M2.5", "minimax-m2.7"),
        ("Qwen/Qwen3-235B-A22B-FP8", "qwen3-235b-a22b"),
        ("=cmd|' /C calc'!A0", None),
    ],
)
def test_model_names(name: str, model_id: str | None) -> None:
    model = model_named(name)
    assert (None if model is None else model.id) == model_id


def test_engines_and_their_releases() -> None:
    assert engine_named(like(engine="vllm", engine_version="0.6.3-0.6.4 dev")) == ("vllm", "0.6.0", "0.11.0")
    assert engine_named(like(engine="vllm", engine_version="", date="2026-04-03")) == ("vllm", "0.19.0", "0.19.0")
    assert engine_named(like(engine="trtllm", engine_version="1.0.0rc3")) == ("tensorrt-llm", "1.0.0", "1.2.0")
    assert engine_named(like(engine="llama.cpp")) is None


def test_weights() -> None:
    def stored(model: str, name: str, dtype: str) -> str:
        quantization = quantization_named(like(model=name, weight_dtype=dtype), load_model(model))
        assert quantization is not None
        return quantization.id

    assert stored("llama-3.1-8b-instruct", "x", "") == "bf16"
    assert stored("llama-3.1-8b-instruct", "nvidia/Llama-3.1-8B-Instruct-FP8", "") == "fp8"
    assert stored("deepseek-r1", "x", "fp8") == "fp8-block"
    assert stored("gpt-oss-120b", "x", "nvfp4") == "mxfp4"
    assert quantization_named(like(weight_dtype="UINT3"), load_model("llama-3.1-8b-instruct")) is None


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "abacus"}, "unknown GPU"),
        ({"model": "gpt-9"}, "unknown model"),
        ({"engine": "llama.cpp"}, "engine not modelled"),
        ({"disaggregated": True}, "prefill and decode on different GPUs"),
        ({"speculative": True}, "speculative decoding"),
        ({"prefix_caching": True}, "prefixes shared to an unknown degree"),
        ({"concurrency": None}, "no concurrency"),
        ({"scenario": "open-loop"}, "no rate"),
        ({"gpu_count": 8}, "layout over GPUs not stated"),
        ({"tp": 16, "gpu_count": 16}, "spans several machines"),
        ({"dp": 8}, "data-parallel attention"),
        ({"weight_dtype": "fp3"}, "unknown weight dtype"),
        ({"model": "Llama-3.1-405B"}, "does not fit in the computed memory"),
        ({"tp": 7, "gpu_count": 7}, "not a legal deployment: parallelism.tp"),
    ],
)
def test_rows_that_cannot_be_predicted_say_why(changes: dict[str, object], reason: str) -> None:
    report = report_of([like(**changes)])
    assert report.not_predicted == {reason: 1}
    assert report.document()["overall"]["rows"] == 1


def test_figures_beyond_the_data_sheet_are_not_believed() -> None:
    assert report_of([like(tpot_s=0.001)]).not_predicted == {"beats the data sheet": 1}
    assert report_of([like(ttft_s=0.001)]).not_predicted == {"beats the data sheet": 1}
    assert report_of([like(tpot_s=None, ttft_s=None, output_tokens_per_s=1e7)]).not_predicted == {
        "a hundred times off: wrong unit or a stalled run": 1
    }
    assert report_of([like(tpot_s=None, ttft_s=None)]).not_predicted == {"no figure to compare with": 1}


@given(
    st.sampled_from(["H100", "A100", "L40S", "B200", "RTX 4090", "MI300X"]),
    st.sampled_from(["closed-loop", "open-loop", "static-batch", "offline"]),
    st.integers(16, 6000),
    st.integers(2, 600),
    st.integers(1, 64),
)
@settings(max_examples=25, deadline=None)
def test_no_prediction_beats_physics(gpu: str, scenario: str, prompt: int, output: int, load: int) -> None:
    row = like(
        gpu=gpu, scenario=scenario, prompt_tokens=prompt, output_tokens=output, concurrency=load, rate_rps=load / 4, requests=40
    )
    row = row.model_copy(update={"tpot_s": None, "ttft_s": None})
    try:
        setting = setting_of(row)
        figures = predict(setting)
    except NotPredictedError:
        return
    assert figures.tpot_mean_s >= least_tpot_s(setting)
    assert figures.ttft_p50_s >= least_ttft_s(setting)
    assert figures.ttft_p50_s <= figures.ttft_p90_s <= figures.ttft_p99_s
    assert 0.0 < figures.output_tokens_per_s < np.inf
    assert predict(setting) == figures


def test_more_clients_never_shorten_a_token() -> None:
    tpots = [predict(setting_of(like(concurrency=n))).tpot_mean_s for n in (1, 4, 16, 64)]
    assert tpots == sorted(tpots)


def test_replicas_share_the_load() -> None:
    one = predict(setting_of(like(concurrency=8)))
    two = predict(setting_of(like(concurrency=16, gpu_count=2, tp=1)))
    assert two.tpot_mean_s == pytest.approx(one.tpot_mean_s, rel=0.02)
    assert two.output_tokens_per_s == pytest.approx(2 * one.output_tokens_per_s, rel=0.02)


@pytest.mark.parametrize(
    ("rate", "tpot_ms", "tolerance"), [(1, 6.56, 0.12), (10, 10.23, 0.08), (25, 27.53, 0.08)], ids=["1/s", "10/s", "25/s"]
)
def test_tpot_of_published_poisson_sweeps(rate: float, tpot_ms: float, tolerance: float) -> None:
    """Median TPOT of Llama-3.1-8B on H100 NVL, vLLM 0.19, 512 tokens in, 256 out (vllm-cost-meter, configuration C1)."""
    row = sweep(rate)
    assert predict(setting_of(row)).tpot_p50_s * 1e3 == pytest.approx(tpot_ms, rel=tolerance)


def test_saturation_of_published_poisson_sweeps() -> None:
    """24.4 requests/s served of 200 offered (the same source)."""
    row = sweep(200)
    assert predict(setting_of(row)).requests_per_s == pytest.approx(24.4, rel=0.08)


def test_the_recorded_subset_is_met() -> None:
    report = subset()
    tpot, ttft = report.summary("tpot"), report.summary("ttft")
    assert tpot is not None
    assert ttft is not None
    assert report.document()["overall"]["predicted_share"] >= 0.8
    assert tpot.median_abs_pct <= 14.0
    assert ttft.median_abs_pct <= 30.0
    peer = report.peer_summary("ttft")
    assert peer is not None
    assert ttft.median_abs_pct < peer.median_abs_pct


@pytest.mark.parametrize(
    ("gpu", "engine", "model", "tpot_limit", "ttft_limit"),
    [
        ("h200-141g-sxm", "vllm", "llama-3.1-70b-instruct", 14, 12),
        ("b200-sxm", "tensorrt-llm", "llama-3.1-70b-instruct", 10, 22),
        ("h100-80g-sxm", "sglang", "qwen3-32b", 10, 30),
        ("b300-sxm", "vllm", "minimax-m2.7", 22, 25),
    ],
)
def test_recorded_groups(gpu: str, engine: str, model: str, tpot_limit: float, ttft_limit: float) -> None:
    rows = subset().groups[(gpu, engine, model)]
    tpot, ttft = subset().summary("tpot", rows), subset().summary("ttft", rows)
    assert tpot is not None
    assert ttft is not None
    assert tpot.median_abs_pct <= tpot_limit
    assert ttft.median_abs_pct <= ttft_limit


def test_priors_alone_know_less_and_say_so() -> None:
    assert setting_of(ROW, "none").record.basis == "prior"
    assert setting_of(ROW).record.basis == "fitted"
    without = subset("none").summary("tpot")
    assert without is not None
    assert without.median_abs_pct <= 18.0


def test_the_document_has_the_agreed_shape() -> None:
    report = subset()
    document = json.loads(json.dumps(report.document(), allow_nan=False))
    part = {"rows", "predicted_share", "tpot", "ttft", "throughput"}
    metric = {"median_abs_pct", "mean_abs_pct", "p90_abs_pct", "bias_pct"}
    assert {"overall", "groups", "not_predicted"} <= set(document)
    assert set(document["overall"]) == part
    assert set(document["overall"]["tpot"]) == set(document["overall"]["throughput"]) == metric
    assert all(set(group) == part | {"gpu", "engine", "model"} for group in document["groups"])
    assert all(isinstance(rows, int) for rows in document["not_predicted"].values())
    done = round(document["overall"]["predicted_share"] * document["overall"]["rows"])
    assert done + sum(document["not_predicted"].values()) == document["overall"]["rows"]
    assert document["overall"]["throughput"]["median_abs_pct"] is None


def test_the_text_begins_with_the_largest_miss() -> None:
    lines = subset().text().splitlines()
    worst = max(
        subset().groups, key=lambda group: getattr(subset().summary("tpot", subset().groups[group]), "median_abs_pct", -1.0)
    )
    assert lines[4].split()[:3] == list(worst)
    assert any(line.startswith("not predicted: ") for line in lines)


def test_error_summary() -> None:
    summary = ErrorSummary.of([-0.1, 0.2, 0.3])
    assert summary is not None
    assert (summary.median_abs_pct, summary.mean_abs_pct, summary.bias_pct) == (
        pytest.approx(20),
        pytest.approx(20),
        pytest.approx(20),
    )
    assert summary.p90_abs_pct == pytest.approx(28)
    assert ErrorSummary.of([]) is None


def test_groups_are_split_by_checksum() -> None:
    assert is_held_out(("a", "b", "c")) == (zlib.crc32(b"a/b/c") % 2 == 1)
    rows = subset().held_out()
    assert 0 < len(rows) < len(subset().results)


def test_kv_capacity_tables(tmp_path: Path) -> None:
    header = "version,model,gpu,tp,pp,max_model_len,quantization,kv_cache_dtype,gpu_memory_utilization,kv_cache_tokens\n"
    row = "0.19.0,meta-llama/Llama-3.1-8B-Instruct,H100-80GB,1,1,{length},,auto,0.95,{tokens}\n"
    path = tmp_path / "capacity.csv"
    path.write_text(
        header + row.format(length=131072, tokens=476016) + row.format(length="x", tokens=1) + row.format(length=8, tokens="")
    )
    document = accuracy_report(path).document()
    assert document["overall"]["kv_tokens"]["median_abs_pct"] < 2.0
    assert sum(document["not_predicted"].values()) == 2


REQUESTS = "run,model,gpu,tp,arrival_s,prompt,output,first_token_s,last_token_s\n"


def recorded(tmp_path: Path, lines: str) -> AccuracyReport:
    path = tmp_path / "requests.csv"
    path.write_text(REQUESTS + lines)
    return accuracy_report(path)


def test_single_requests_are_replayed_with_their_own_arrivals(tmp_path: Path) -> None:
    """Two requests a minute apart: each is alone, so that TTFT is one prefill and TPOT one decode step."""
    lines = [f"a,llama-3.1-8b-instruct,H100,1,{start},1000,101,{start + 0.027},{start + 0.727}\n" for start in (0.0, 60.0)]
    (row,) = recorded(tmp_path, "".join(lines)).results
    assert row.reason is None
    assert abs(row.errors["tpot"]) < 0.15
    assert abs(row.errors["ttft"]) < 0.30


@pytest.mark.parametrize(
    ("line", "field"),
    [
        ("a,llama-3.1-8b-instruct,H100,1,5,1000,100,4,6\n", "first_token_s"),
        ("a,llama-3.1-8b-instruct,H100,1,nan,1000,100,4,6\n", "arrival_s"),
        ("a,llama-3.1-8b-instruct,H100,1,1,0,100,4,6\n", "prompt"),
        ("a,llama-3.1-8b-instruct,H100,1,1,10\n", "row"),
    ],
)
def test_a_faulty_request_makes_its_run_unreadable(tmp_path: Path, line: str, field: str) -> None:
    assert recorded(tmp_path, line).not_predicted == {f"unreadable: {field}": 1}


def test_recipes_name_their_scripts() -> None:
    origins = ("SemiAnalysisAI/", "ai-dynamo/", "casys-kaist/", "mlcommons/", "NVIDIA/")
    assert all(recipe.reference.startswith(origins) for recipe in recipes())


def test_shipped_figures_say_where_they_come_from() -> None:
    for document in shipped_accuracy():
        assert document.source
        assert document.terms
        for report in (document.shipped, document.none):
            done = report.overall.rows - sum(report.not_predicted.values())
            assert report.overall.predicted == done
            assert sum(group.predicted for group in report.groups) == done


def table(tmp_path: Path, *rows: str) -> AccuracyReport:
    path = tmp_path / "own.csv"
    path.write_text("gpu,engine,model,scenario,prompt_tokens,output_tokens,concurrency,ttft_mean_s\n" + "\n".join(rows) + "\n")
    return accuracy_report(path)


@pytest.mark.parametrize(
    ("cell", "words"),
    [
        ("-5", "is '-5': input should be greater than"),
        ("nan", "is 'nan': input should be"),
        ("1e9", "is '1e9': input should be less than or equal to"),
        ("<b>", "is '<b>': input should be a valid number"),
    ],
)
def test_a_cell_that_cannot_be_read_is_named_with_line_value_and_bound(tmp_path: Path, cell: str, words: str) -> None:
    good = "h100-80g-sxm,vllm,llama-3.1-8b-instruct,closed-loop,1000,100,1,0.03"
    report = table(tmp_path, good, good.replace("0.03", cell))
    assert report.not_predicted == {"unreadable: ttft_mean_s": 1}
    (fault,) = report.unreadable
    assert (fault.line, fault.field) == (3, "ttft_mean_s")
    assert fault.reason.startswith(words)
    assert f"line 3: ttft_mean_s {words}" in report.text()
    assert report.document()["unreadable"] == [fault._asdict()]


def test_faults_are_listed_up_to_a_bound_and_missing_cells_say_so(tmp_path: Path) -> None:
    report = table(tmp_path, *["h100-80g-sxm,vllm,,closed-loop,1000,100,1,0.03"] * 25)
    assert len(report.unreadable) == 25
    assert report.unreadable[0] == (2, "model", "is blank, and must be given")
    assert len(report.document()["unreadable"]) == 20
    assert "and 5 more lines that can't be read" in report.text()


def test_kv_capacities_that_cannot_be_read_have_a_line(tmp_path: Path) -> None:
    path = tmp_path / "capacity.csv"
    header = "version,model,gpu,tp,pp,max_model_len,quantization,kv_cache_dtype,gpu_memory_utilization,kv_cache_tokens\n"
    path.write_text(f"{header}0.19.0,meta-llama/Llama-3.1-8B-Instruct,H100-80GB,1,1,8192,,auto,0.95,nan\n1,2\n")
    found = accuracy_report(path).unreadable
    assert [(fault.line, fault.field) for fault in found] == [(2, "kv_cache_tokens"), (3, "row")]

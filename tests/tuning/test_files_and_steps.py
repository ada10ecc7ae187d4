"""Files are recognised by their content; steps of collectors and logs are fitted; records are kept where they belong."""

import argparse
import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner import paths
from planner.calibration.importers import LoggedStep, StepLog, read_step_log
from planner.calibration.records import load_record
from planner.cli import main
from planner.cli_calibrate import add_arguments
from planner.errors import InputError
from planner.step_coefficients import coefficients_for
from planner.step_model import StepShape, gpu_s
from planner.tuning import Target, UserFile, fit_files, read_file, save_own_record, saved_id
from planner.tuning.command import target_of
from planner.tuning.logged_steps import reconstructed, steps_of_log
from tests.tuning.simulated import TARGET, bench, prior

TESTS = Path(__file__).parents[1]
DATA = TESTS / "data" / "benchmarks"
GRID = TESTS / "collectors" / "recorded" / "vllm_cpu_grid.jsonl.gz"
CPU = Target(gpu_id="cpu-recorded", model_id="", quantization="fp32", engine_version="0.32.0", cuda_graphs=False)


@pytest.mark.parametrize(
    ("path", "kind", "form"),
    [
        (GRID, "collected", "collect_vllm.py"),
        (TESTS / "collectors" / "recorded" / "torch_cpu.jsonl.gz", "collected", "collect_torch.py"),
        (DATA / "vllm_steps.log", "step_log", "vLLM iteration details"),
        (DATA / "trtllm_iterations.log", "step_log", "TensorRT-LLM iteration log"),
        (DATA / "vllm_detailed.json", "benchmark", "vllm bench serve"),
        (DATA / "sglang.jsonl", "benchmark", "SGLang bench_serving"),
        (DATA / "guidellm_poisson.json", "benchmark", "GuideLLM"),
        (DATA / "aiperf.jsonl", "benchmark", "AIPerf"),
        (DATA / "inference_perf_stage_1.json", "benchmark", "inference-perf"),
    ],
    ids=lambda value: value.name if isinstance(value, Path) else str(value),
)
def test_files_are_recognised_by_their_content(path: Path, kind: str, form: str) -> None:
    file = read_file(path.read_bytes(), "upload.bin")
    assert (file.kind, file.format) == (kind, form)
    assert file.rows > 0
    assert read_file(gzip.compress(path.read_bytes()) if path.suffix != ".gz" else path.read_bytes(), "x").rows == file.rows


@pytest.mark.parametrize(("cut", "said"), [(1, "1 line left out: cut"), (2, "2 lines left out: cut")])
def test_lines_left_out_are_counted(cut: int, said: str) -> None:
    log = (DATA / "vllm_steps.log").read_text()
    garbled = "(APIServer pid=1) INFO 11-30 09:05:48 [loggers.py:199] Engine 000: Iteration(9): 1 con\n" * cut
    assert not read_file(log.encode(), "x").remarks
    assert any(remark.startswith(said) for remark in read_file((log + garbled).encode(), "x").remarks)


@pytest.mark.parametrize("data", [b"", b"hello", b"{}", b"\x00\xff", b"PK\x03\x04", b"<html><script>alert(1)</script>"])
def test_other_files_are_refused_in_one_line(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        read_file(data, "<b>x</b>\n")
    assert "\n" not in str(caught.value)


def test_a_collectors_steps_are_fitted_and_bursts_held_out() -> None:
    fit = fit_files(read_file(GRID.read_bytes(), "grid"), CPU)
    phases = {pair.phase: pair for pair in fit.errors}
    assert phases[""].before_median_pct > 40.0
    assert phases[""].after_median_pct < 8.0
    assert phases[""].held_out_median_pct is not None
    assert phases[""].held_out_median_pct < 10.0
    assert "bursts" in fit.held_out
    held = [point for point in fit.points if point.held_out is not None]
    assert 0.1 < len(held) / len(fit.points) < 0.5
    assert fit.record.evidence is not None
    assert fit.record.evidence.held_out == fit.held_out


def log_of(times: np.ndarray, counts: list[int], prompt: int) -> StepLog:
    steps = []
    for i, (count, seconds) in enumerate(zip(counts, times, strict=True)):
        begins = 1 if i == 0 or count > counts[i - 1] else 0
        decodes = counts[i - 1] if i else 0
        steps.append(LoggedStep(i + 1, i, begins, prompt * begins, decodes, decodes, float(seconds)))
    return StepLog("vllm", "step", tuple(steps), "0.19.0", None, None, 8192, False, {}, ())


def test_contexts_of_a_log_are_reconstructed() -> None:
    counts = [1] * 5 + [2] * 10
    log = log_of(np.full(15, 0.01), counts, prompt=100)
    batches = reconstructed(log.steps, 8192, None)
    assert batches[0].prefill == ((1.0, 100.0, 0.0, 1.0),)
    assert batches[1].decode == ((1.0, 101.0),)
    assert batches[4].decode == ((1.0, 104.0),)
    assert batches[6].decode == ((2.0, (106.0 + 101.0) / 2.0),)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400), st.integers(0, 8)), min_size=1, max_size=60))
def test_reconstructed_batches_hold_what_the_log_says(rows: list[tuple[int, int, int]]) -> None:
    steps = tuple(
        LoggedStep(i, i, a, max(b, a) if a else 0, c, c, 0.01, kv_share=0.1 * (i % 5) / 5.0)
        for i, (a, b, c) in enumerate(rows)
        if a + c > 0
    )
    for step, batch in zip(steps, reconstructed(steps, 256, 10_000), strict=True):
        assert sum(count * new for count, new, _, _ in batch.prefill) == pytest.approx(step.context_tokens)
        assert sum(count for count, _ in batch.decode) == step.generation_requests
        assert all(context >= 0.0 for _, context in batch.decode)
        assert all(0.0 <= ends <= 1.0 and cached >= 0.0 for _, _, cached, ends in batch.prefill)


def test_a_log_of_a_simulated_truth_is_fitted() -> None:
    """TensorRT-LLM's log: times of the GPU alone, contexts stated."""
    truth = prior().with_values({"memory_efficiency.bf16": 0.7})
    rng = np.random.default_rng(2)
    sequences = rng.integers(1, 200, 300)
    cached = sequences * rng.integers(100, 3000, 300)
    shape = StepShape(
        sequences.astype(float), sequences.astype(float), sequences.astype(float), sequences.astype(float), cached.astype(float)
    )
    times = np.asarray(gpu_s(shape, coefficients_for(bench().deployment, truth)))
    steps = tuple(
        LoggedStep(i, i, 0, 0, int(n), int(n), float(t), cached_tokens=int(kv))
        for i, (n, t, kv) in enumerate(zip(sequences, times, cached, strict=True))
    )
    log = StepLog("tensorrt-llm", "gpu", steps, None, None, None, None, None, {}, ())
    file = UserFile("step_log", "trt.log", "TensorRT-LLM iteration log", len(steps), log=log)
    fit = fit_files(file, TARGET)
    assert fit.errors[0].after_median_pct < 2.0
    assert fit.errors[0].held_out_median_pct is not None
    assert fit.errors[0].held_out_median_pct < 2.0


def test_a_log_faster_than_the_data_sheet_is_refused() -> None:
    log = log_of(np.full(40, 1e-4), [1] * 40, prompt=100)
    with pytest.raises(InputError, match="beat the data sheet"):
        steps_of_log(log, bench().deployment, "x")


def test_steps_and_a_benchmark_are_fitted_one_after_the_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config = json.loads((TESTS / "recorded" / "vllm_cpu_run.config.json").read_text())
    (tmp_path / "models" / "cpu-llama").mkdir(parents=True)
    (tmp_path / "models" / "cpu-llama" / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    served = {"max_num_seqs": 32, "max_num_batched_tokens": 512, "max_model_len": 4096, "async_scheduling": False}
    target = CPU.model_copy(update={"model_id": "cpu-llama", "kv_cache_tokens": 131_072, **served})
    files = [read_file(GRID.read_bytes(), "grid"), read_file((DATA / "vllm_detailed.json").read_bytes(), "bench")]
    shares: list[float] = []
    fit = fit_files(files, target, None, lambda _text, share: shares.append(share))
    assert {point.metric for point in fit.points} >= {"step", "tpot", "ttft"}
    assert shares == sorted(shares)
    assert "collect_vllm.py, vllm bench serve" in fit.record.description


def test_a_record_is_kept_in_the_users_folder_and_found_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    record = prior().model_copy(update={"basis": "fitted"})
    monkeypatch.delenv("PLANNER_HOME", raising=False)
    with pytest.raises(InputError, match="PLANNER_HOME"):
        save_own_record(record, "mine")
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    path = save_own_record(record, "Mine")
    assert path == tmp_path / "hardware_profiles" / "calibrations" / "h100-80g-sxm" / "mine.json"
    assert load_record("h100-80g-sxm/mine").basis == "fitted"
    with pytest.raises(InputError, match="already a record of yours"):
        save_own_record(record, "mine")
    assert save_own_record(record, "mine", replace=True) == path


@pytest.mark.parametrize("name", ["", "../x", "a/b", "..", ".hidden", "a" * 64, "<b>", "x\n", "a..b", "vllm 1", "\x00"])
def test_names_that_leave_the_folder_are_refused(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    if name == "x\n":
        assert saved_id(prior(), name) == "h100-80g-sxm/x"
        return
    with pytest.raises(InputError, match="name"):
        save_own_record(prior(), name)
    assert not list(tmp_path.rglob("*.json"))


def test_a_shipped_record_is_not_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    shipped = next((paths.PROFILES_DIR / "calibrations" / "h100-80g-sxm").glob("*.json")).stem
    with pytest.raises(InputError, match="ships with the planner"):
        save_own_record(prior(), shipped, replace=True)


def test_the_command_prints_parameters_with_origin_and_errors_before_and_after(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    files = [str(DATA / f"inference_perf_stage_{stage}.json") for stage in (1, 3)]
    flags = ["--gpu", "h100-80g-sxm", "--model", "llama-3.1-8b-instruct", "--engine-version", "0.11.0", "--save", "mine"]
    assert main(["calibrate", *files, *flags, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    origins = {value["path"]: value["origin"] for value in document["parameters"]}
    assert set(origins.values()) == {"data", "prior"}
    assert all(value["low"] <= value["value"] <= value["high"] for value in document["parameters"])
    assert {error["metric"] for error in document["errors"]} >= {"tpot", "ttft"}
    assert document["held_out"].startswith("nothing")
    assert Path(document["saved"]).is_file()
    assert main(["calibrate", files[0], *flags, "--replace", "--no-hold-out"]) == 0
    text = capsys.readouterr().out
    assert "80 % interval" in text
    assert "held out: nothing" in text
    assert "saved" in text
    assert "engine.calibration_id h100-80g-sxm/mine" in text


def test_flags_go_before_what_a_result_says_of_its_server() -> None:
    told = {"tp": "2", "quantization": "fp8", "max_num_seqs": "64", "max_model_len": "8192"}
    data = json.loads((DATA / "vllm_detailed.json").read_text(encoding="utf-8")) | told
    files = [read_file(json.dumps(data).encode(), "bench.json")]
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    line = ["bench.json", "--gpu", "h100-80g-sxm", "--model", "llama-3.1-8b-instruct"]
    target = target_of(parser.parse_args(line), files)
    assert (target.tp, target.quantization, target.max_num_seqs, target.max_model_len) == (2, "fp8", 64, 8192)
    other = target_of(parser.parse_args([*line, "--tp", "1", "--quantization", "bf16", "--max-num-seqs", "8"]), files)
    assert (other.tp, other.quantization, other.max_num_seqs, other.max_model_len) == (1, "bf16", 8, 8192)
    bare = [read_file((DATA / "vllm_detailed.json").read_bytes(), "bench.json")]
    plain = target_of(parser.parse_args(line), bare)
    assert (plain.tp, plain.quantization, plain.max_num_seqs) == (1, "bf16", None)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere.json", "--gpu", "h100-80g-sxm"], "can't be read"),
        ([str(DATA / "vllm_detailed.json"), "--gpu", "h100-80g-sxm"], "--model"),
        ([str(DATA / "vllm_detailed.json"), "--gpu", "h100", "--model", "llama-3.1-8b-instruct"], "h100"),
        ([str(DATA / "vllm_detailed.json"), "--gpu", "h100-80g-sxm", "--model", "llama-3.1-8b-instruct", "--tp", "3"], "tp"),
        ([str(DATA / "vllm_detailed.json"), "--gpu", "h100-80g-sxm", "--model", "llama-3.1-8b-instruct", "--tp", "-1"], "tp"),
        ([str(DATA / "vllm_detailed.json"), "--gpu", "t4", "--model", "llama-3.1-70b-instruct"], "does not fit"),
        ([str(DATA / "README.md"), "--gpu", "h100-80g-sxm"], "must be a collector's file"),
    ],
)
def test_wrong_input_at_the_shell_is_one_line(arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert says in captured.err


def test_a_log_read_from_a_server_is_taken_for_another_machine_when_it_is(tmp_path: Path) -> None:
    log = read_step_log((DATA / "vllm_steps.log").read_bytes())
    with pytest.raises(InputError):
        steps_of_log(log, Target(gpu_id="h100-80g-sxm", model_id="llama-3.1-70b-instruct", tp=1).deployment(), "wrong")

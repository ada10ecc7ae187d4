"""What a plan says of what it rests on: own records, a folder that isn't there, precisions of experts."""

from pathlib import Path
from typing import Any

import pytest

from planner.calibration.records import CalibrationRecord, Evidence, GroupError, load_record, record_for, save_record
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.hardware import load_gpu
from planner.models import QUANTIZATIONS, load_model
from planner.plans import Plan, plan
from planner.plans.caveats import caveats_of, record_errors
from planner.scenario import scenario_from_dict
from planner.step_coefficients import coefficients_for
from planner.step_model import linear_s

H100 = "h100-80g-sxm/vllm-0.24.0"
MINE = "h100-80g-sxm/mine"


def of(engine: dict[str, Any], gpu: str = "h100-80g-sxm") -> Plan:
    return plan(scenario_from_dict({"engine": engine, "hardware": {"gpu_ids": [gpu], "tensor_parallel": [1]}}))


def errors(fitted_pct: float, held_pct: float | None) -> Evidence:
    group = GroupError(
        group="mine", rows=20, median_abs_pct=fitted_pct, mean_abs_pct=fitted_pct, worst_abs_pct=50.0, bias_pct=0.0,
        held_out_median_abs_pct=held_pct,
    )  # fmt: skip
    return Evidence(rows=20, groups=(group,), held_out="a third")


def slow(fitted_pct: float = 14.0, held_pct: float | None = 16.0) -> CalibrationRecord:
    record = load_record(H100)
    slower = record.layer_s.model_copy(update={"value": 3.0 * record.layer_s.value, "high": 4.0 * record.layer_s.high})
    return record.model_copy(
        update={"id": MINE, "engine_version": "0.33.0", "layer_s": slower, "evidence": errors(fitted_pct, held_pct)}
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    return tmp_path / "hardware_profiles" / "calibrations"


def test_an_own_record_changes_a_plan_only_when_named_and_is_said(folder: Path) -> None:
    folder.mkdir(parents=True)
    before = of({})
    save_record(slow(), folder)
    unnamed, named = of({}), of({"calibration_id": MINE})
    assert unnamed.summary == before.summary
    assert not any("your own record" in warning for warning in unnamed.warnings)
    assert named.summary != before.summary
    said = next(warning for warning in named.warnings if "your own record" in warning)
    assert said.startswith(
        f"Step times of H100 80GB SXM5 are from your own record {MINE}: it misses what its fit hadn't seen by 16 %"
    )
    assert "its own measurements by 14 %: check" in said


def test_an_own_record_in_place_of_a_shipped_one_is_said(folder: Path) -> None:
    save_record(load_record(H100), folder)
    said = next(warning for warning in of({}).warnings if "your own record" in warning)
    assert f"{H100}, which this scenario doesn't name" in said


@pytest.mark.parametrize(
    ("evidence", "words"),
    [
        (None, "no measured time stands behind it"),
        (errors(3.0, None), "nothing was left out to test its fit, which misses its own measurements by 3 %"),
        (errors(3.0, 5.0), "it misses what its fit hadn't seen by 5 % (median), its own measurements by 3 %"),
        (errors(140.0, None), "nothing was left out to test its fit, and its own measurements by 140 %: check"),
    ],
)
def test_the_errors_of_a_record_in_words(evidence: Evidence | None, words: str) -> None:
    assert record_errors(load_record(H100).model_copy(update={"evidence": evidence})).startswith(words)


def test_a_home_that_is_not_there_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, model = scenario_from_dict({}), load_model("llama-3.1-8b-instruct")
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    assert caveats_of(scenario, model, ()) == []
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path / "typo"))
    (said,) = caveats_of(scenario, model, ())
    assert "typo" in said
    assert "doesn't exist" in said


def test_precisions_of_experts_are_doubted_by_what_the_records_say() -> None:
    assert any("1.5 to 2.4 times" in each for each in caveats_of(scenario_from_dict({}), load_model("qwen3-30b-a3b"), ()))
    gpu, model = load_gpu("h100-80g-sxm"), load_model("qwen3-30b-a3b")
    ratios = []
    for tp in (1, 8):
        times = {}
        for name in ("bf16", "fp8"):
            config = engine_defaults("vllm", "0.33.0", gpu, tp)
            deployment = Deployment(gpu, model, QUANTIZATIONS[name], "bf16", Parallelism(tp=tp), config)
            times[name] = float(linear_s(8192.0, coefficients_for(deployment, record_for(gpu, "vllm", "0.33.0"))))
        ratios.append(times["fp8"] / times["bf16"])
    assert ratios == pytest.approx([1.5, 2.4], abs=0.06)


def test_a_precision_that_a_measured_gpu_was_not_measured_in_is_said() -> None:
    def warnings(gpu_id: str, quantization: str) -> list[str]:
        document = {
            "model": {"id": "llama-3.1-8b-instruct", "quantization": quantization},
            "hardware": {"gpu_ids": [gpu_id], "tensor_parallel": [1]},
            "targets": {"ttft_p99_s": 2.0, "tpot_p99_s": 0.06},
        }
        return [each for each in plan(scenario_from_dict(document)).warnings if "scaled from those it was measured in" in each]

    assert "RTX PRO 6000 Blackwell Server in fp8" in warnings("rtx-pro-6000-bw-server", "fp8")[0]
    assert warnings("rtx-pro-6000-bw-server", "bf16") == []
    assert warnings("h100-80g-sxm", "fp8") == []


def test_a_broken_gpu_of_ones_own_is_named_where_all_are_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    profiles = tmp_path / "hardware_profiles"
    (profiles / "nodes").mkdir(parents=True)
    (profiles / "my-card.toml").write_text('schema_version = 1\nid = "my-card"\n')
    (profiles / "nodes" / "my-box.toml").write_text("not TOML")
    everything = scenario_from_dict({"hardware": {"provider": "gcp"}})
    said = caveats_of(everything, load_model("llama-3.1-8b-instruct"), ())
    assert any(each.startswith("A GPU is left out of the comparison. my-card.toml") for each in said)
    assert any(each.startswith("A machine's file isn't read. my-box.toml") for each in said)
    named = everything.model_copy(update={"hardware": {"gpu_ids": ["l4"], "tensor_parallel": [1]}})
    assert not any("my-card" in each for each in caveats_of(named, load_model("llama-3.1-8b-instruct"), ()))
    found = plan(named)
    assert found.candidates
    assert any("my-box.toml" in each for each in found.warnings)


@pytest.mark.parametrize("name", ["models", "workloads", "hardware_profiles", "hardware_profiles/nodes"])
def test_a_file_where_a_folder_must_be_is_said(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("I am a file")
    said = caveats_of(scenario_from_dict({}), load_model("llama-3.1-8b-instruct"), ())
    assert said[0] == f"{name} in PLANNER_HOME must be a folder and isn't one: nothing of yours is read from it. Rename it."
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    assert caveats_of(scenario_from_dict({}), load_model("llama-3.1-8b-instruct"), ()) == []

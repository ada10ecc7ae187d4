"""Records fitted on sibling groups: a simulated misfit that siblings share is found, and a tested group never sees itself."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from planner.accuracy import predict, setting_of
from planner.calibration.measurements import Measurement
from planner.cli import main
from planner.tuning.siblings import SPLITS, Key, SiblingReport, _ridge, _with, moves, sibling_report

SUBSET = Path(__file__).parents[1] / "accuracy" / "serving_subset.csv"
SHIFTS = {"memory_efficiency.bf16": np.log(0.8), "layer_s": np.log(1.2), "compute_efficiency.bf16": np.log(0.85)}
COLUMNS = ("gpu", "engine", "engine_version", "model", "tp", "scenario", "prompt_tokens", "output_tokens", "concurrency")
LAYOUTS = [("llama-3.1-8b-instruct", 1), ("llama-3.1-8b-instruct", 2), ("llama-3.1-70b-instruct", 4), ("llama-3.1-70b-instruct", 8)]


def table(path: Path, spoiled: tuple[str, int] | None = None) -> Path:
    """Write rows of a simulated truth on which all models' kernels are slower; spoiled : a layout whose times are doubled."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow((*COLUMNS, "ttft_mean_s", "tpot_mean_s"))
        for model, tp in LAYOUTS:
            for clients in (1, 8, 16):
                row = ("h100-80g-sxm", "vllm", "0.19.0", model, tp, "closed-loop", 1024, 128, clients)
                measured = Measurement.model_validate(dict(zip(COLUMNS, row, strict=True)) | {"tpot_mean_s": 1.0})
                figures = predict(_with(setting_of(measured), SHIFTS))
                factor = 2.0 if (model, tp) == spoiled else 1.0
                writer.writerow((*row, factor * figures.ttft_mean_s, factor * figures.tpot_mean_s))
    return path


def errors(report: SiblingReport, model: str, tp: int) -> list[tuple[float, float]]:
    rows = [
        result for result in report.after.results if result.measured and (result.measured.model, result.measured.tp) == (model, tp)
    ]
    return [(result.errors["tpot"], result.errors["ttft"]) for result in rows]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> SiblingReport:
    return sibling_report(table(tmp_path_factory.mktemp("siblings") / "measured.csv"))


def test_a_misfit_that_siblings_share_is_found(report: SiblingReport) -> None:
    before, after = report.before.summary("tpot"), report.after.summary("tpot")
    assert before is not None
    assert after is not None
    assert (report.groups, report.alone, after.rows) == (4, 0, 12)
    assert before.median_abs_pct > 10.0
    assert after.median_abs_pct < 0.4 * before.median_abs_pct


def test_a_release_is_learnt_from_other_models_and_gpus() -> None:
    shared = Key("h100", "vllm", (32, 4096, 128256, 8e9), "bf16", 1, 1, "0.19.0")
    other = Key("h200", "vllm", (80, 8192, 128256, 7e10), "fp8", 4, 1, "0.19.0")
    fitted = {(*part, "layer_s"): 0.1 for part in other.parts()}
    assert moves(fitted, shared) == {"layer_s": pytest.approx(0.1)}
    assert moves(fitted, shared._replace(release="0.18.0")) == {}
    assert moves(fitted, shared._replace(engine="sglang")) == {}


def test_a_tested_group_never_enters_its_own_fit(report: SiblingReport, tmp_path: Path) -> None:
    model, tp = LAYOUTS[1]
    spoiled = sibling_report(table(tmp_path / "spoiled.csv", (model, tp)))
    for (tpot, ttft), (tpot_spoiled, ttft_spoiled) in zip(errors(report, model, tp), errors(spoiled, model, tp), strict=True):
        assert 1.0 + tpot_spoiled == pytest.approx((1.0 + tpot) / 2.0)
        assert 1.0 + ttft_spoiled == pytest.approx((1.0 + ttft) / 2.0)
    other = LAYOUTS[0]
    assert errors(report, *other) != errors(spoiled, *other)


def test_a_split_by_model_leaves_all_layouts_out(tmp_path: Path) -> None:
    path = table(tmp_path / "measured.csv")
    by_model = sibling_report(path, "model")
    assert (by_model.groups, by_model.split) == (2, "model")
    spoiled = sibling_report(table(tmp_path / "spoiled.csv", LAYOUTS[1]), "model")
    assert np.array(errors(by_model, *LAYOUTS[0])) == pytest.approx(np.array(errors(spoiled, *LAYOUTS[0])))


def test_a_group_without_siblings_keeps_the_shipped_record(tmp_path: Path) -> None:
    path = table(tmp_path / "measured.csv")
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], *(line for line in lines if ",llama-3.1-8b-instruct,1," in line)]) + "\n")
    lone = sibling_report(path)
    assert (lone.groups, lone.alone) == (1, 3)
    assert [row.errors for row in lone.after.results] == [row.errors for row in lone.before.results]


def test_copies_of_a_tested_row_under_another_name_are_left_out(tmp_path: Path) -> None:
    path = table(tmp_path / "measured.csv")
    lines = path.read_text().splitlines()
    own = [line for line in lines if ",llama-3.1-8b-instruct,1," in line]
    copied = [line.replace(",llama-3.1-8b-instruct,1,", ",llama-3.1-8b-instruct,2,") for line in own]
    path.write_text("\n".join([lines[0], *own, *copied]) + "\n")
    assert sibling_report(path).alone == 6


def test_ridge_solves_the_normal_equations_and_forgives_outliers() -> None:
    rng = np.random.default_rng(5)
    slopes, truth = rng.normal(size=(200, 3)), np.array([0.3, -0.2, 0.1])
    exact = -slopes @ truth
    found = _ridge(slopes, exact, np.full(200, 1e3))
    assert found == pytest.approx(truth, abs=1e-3)
    spoiled = exact.copy()
    spoiled[:20] += 50.0
    assert _ridge(slopes, spoiled, np.full(200, 20.0)) == pytest.approx(truth, abs=0.02)
    assert _ridge(slopes, exact, np.full(200, 1e-6)) == pytest.approx(np.zeros(3), abs=1e-6)


def test_recorded_rows_are_predicted_better_with_siblings_by_the_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    kept = [line for line in SUBSET.read_text().splitlines() if line.startswith(("backend", "vllm")) and "MiniMax" not in line]
    kept = [line for line in kept if line.startswith("backend") or "Llama-3.1-70B" in line or ("Kimi" in line and "b300" in line)]
    path = tmp_path / "vllm.csv"
    path.write_text("\n".join(kept) + "\n")
    assert main(["accuracy", str(path), "--siblings", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["split"] == SPLITS["layout"]
    before, after = document["shipped"]["overall"], document["overall"]
    assert after["rows"] == before["rows"] == len(kept) - 1
    assert after["tpot"]["median_abs_pct"] < before["tpot"]["median_abs_pct"]
    worst = [group["tpot"]["median_abs_pct"] for group in document["groups"] if group["tpot"]["median_abs_pct"] is not None]
    assert worst == sorted(worst, reverse=True)

"""The fit: what it recovers, what it refuses, and that one model at one size can't mislead it."""

import datetime as dt
import gzip
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from planner.calibration.fit import (
    AllReduceRows,
    FitOptions,
    StepGroup,
    all_reduce_rows_from_csv,
    fit_record,
    groups_from_csv,
    predicted_s,
)
from planner.calibration.fit.__main__ import main, start_record
from planner.calibration.fit.groups import bound_s
from planner.calibration.fit.solve import relative_errors
from planner.calibration.priors import completed, prior_record
from planner.calibration.records import CalibrationRecord, host_for, load_record
from planner.errors import InputError
from planner.hardware import load_gpu
from planner.step_model import StepShape

RECORDED = Path(__file__).parent.parent / "recorded"
STEPS = gzip.decompress((RECORDED / "step_times.csv.gz").read_bytes())
ALL_REDUCES = (RECORDED / "all_reduce_times.csv").read_bytes()
H100 = "h100-80g-sxm"
DAY = dt.date(2026, 11, 30)
QUICK = FitOptions(hold_out=False, day=DAY)


def groups_of(gpu_id: str, version: str, part: str = "") -> tuple[StepGroup, ...]:
    prior = start_record(gpu_id, "vllm", version)
    return tuple(group for group in groups_from_csv(STEPS, load_gpu(gpu_id), prior) if part in group.label)


def dense_groups(gpu_id: str = H100) -> tuple[StepGroup, ...]:
    return tuple(group for group in groups_of(gpu_id, "0.24.0", " bf16 ") if group.label.startswith("llama"))


def general_prior(gpu_id: str = H100) -> CalibrationRecord:
    """The prior of a GPU whose family nobody has measured: 0.80 of bandwidth, 70 µs a layer, 0.55 of the peak."""
    gpu = load_gpu(gpu_id).model_copy(update={"arch": "Unmeasured"})
    return completed(prior_record(gpu, "vllm", "0.24.0", host_for("vllm")), gpu)


def value(record: CalibrationRecord, path: str) -> float:
    return dict(record.parameters())[path].value


def median_abs_pct(group: StepGroup, record: CalibrationRecord) -> float:
    return float(100 * np.median(np.abs(relative_errors(group, record))))


def synthetic(group: StepGroup, truth: CalibrationRecord, noise: float, seed: int) -> StepGroup:
    rng = np.random.default_rng(seed)
    return replace(group, seconds=predicted_s(group, truth) * np.exp(rng.normal(0, noise, len(group.seconds))))


TRUTH = {
    "memory_efficiency.bf16": 0.71,
    "compute_efficiency.bf16": 0.52,
    "attention_efficiency": 0.41,
    "layer_s": 95e-6,
    "all_reduce.8.alpha_s": 11e-6,
    "all_reduce.8.beta_bytes_per_s": 2.0e11,
}


def test_known_parameters_are_recovered_with_their_intervals() -> None:
    truth = general_prior().with_values(TRUTH)
    groups = [synthetic(group, truth, 0.02, seed) for seed, group in enumerate(dense_groups())]
    result = fit_record(general_prior(), groups, options=QUICK)
    for path, expected in TRUTH.items():
        assert value(result.record, path) == pytest.approx(expected, rel=0.1 if "alpha" in path else 0.03), path
    inside = [dict(result.record.parameters())[path] for path in TRUTH]
    covered = [p.low <= expected <= p.high for p, expected in zip(inside, TRUTH.values(), strict=True)]
    assert sum(covered) >= 5
    assert set(TRUTH) <= set(result.informed)


def test_outliers_hardly_move_the_fit() -> None:
    truth = general_prior().with_values(TRUTH)
    groups = [synthetic(group, truth, 0.02, seed) for seed, group in enumerate(dense_groups())]
    rng = np.random.default_rng(9)
    hit = [replace(g, seconds=np.where(rng.random(len(g.seconds)) < 0.03, 3 * g.seconds, g.seconds)) for g in groups]
    result = fit_record(general_prior(), hit, options=QUICK)
    for path in ("memory_efficiency.bf16", "compute_efficiency.bf16", "layer_s"):
        assert value(result.record, path) == pytest.approx(TRUTH[path], rel=0.06), path


def test_the_same_rows_give_the_same_record() -> None:
    first, second = (fit_record(general_prior(), dense_groups()[:1], options=QUICK).record for _ in range(2))
    assert first.model_dump_json() == second.model_dump_json()


SHIPPED = [
    (H100, "0.24.0", None, "vllm-0.24.0"),
    ("h200-141g-sxm", "0.24.0", "h100-80g-sxm/vllm-0.24.0", "vllm-0.24.0"),
    ("a100-80g-sxm", "0.14.0", None, "vllm-0.14.0"),
    ("l40s", "0.24.0", None, "vllm-0.24.0"),
]


@pytest.mark.parametrize(("gpu_id", "version", "like", "name"), SHIPPED, ids=[row[0] for row in SHIPPED])
def test_the_shipped_records_come_out_of_the_recorded_rows(gpu_id: str, version: str, like: str | None, name: str) -> None:
    shipped = load_record(f"{gpu_id}/{name}")
    prior = start_record(gpu_id, "vllm", version, like)
    groups = [group for group in groups_from_csv(STEPS, load_gpu(gpu_id), prior) if "235b" not in group.label]
    result = fit_record(prior, groups, all_reduce_rows_from_csv(ALL_REDUCES, gpu_id), QUICK)
    refitted = dict(result.record.parameters())
    assert shipped.covariance is not None
    assert set(shipped.covariance.names) == {*result.informed, *result.uninformed}
    for path in shipped.covariance.names:
        expected = dict(shipped.parameters())[path]
        assert refitted[path].value == pytest.approx(expected.value, rel=1e-3), path
        assert refitted[path].informed_by == expected.informed_by, path


# One model at one size


@pytest.mark.parametrize("gpu_id", [H100, "h200-141g-sxm"])
def test_8b_alone_still_predicts_70b_on_two_and_eight_gpus(gpu_id: str) -> None:
    groups = dense_groups(gpu_id)
    small = [group for group in groups if "8b" in group.label]
    assert len(small) == 1
    result = fit_record(general_prior(gpu_id), small, all_reduce_rows_from_csv(ALL_REDUCES, gpu_id), QUICK)
    assert 0.85 < value(result.record, "memory_efficiency.bf16") < 0.97
    assert value(result.record, "layer_s") > 30e-6
    for group in groups:
        assert median_abs_pct(group, result.record) < 5.0, group.label
    assert result.record.evidence is not None
    assert result.record.evidence.held_out.startswith("nothing")


def test_priors_hold_what_few_rows_of_8b_cannot_tell() -> None:
    """18 decode rows at small batch and short context say little on where the constant ends and weights and compute begin."""
    groups = dense_groups()
    small = next(group for group in groups if "8b" in group.label)
    keep = (small.phase == "decode") & (np.asarray(small.shape.decode_sequences) <= 16)
    keep &= np.asarray(small.shape.decode_context_tokens) <= 4096
    shape = StepShape(*(np.asarray(column)[keep] for column in small.shape))
    few = replace(small, shape=shape, seconds=small.seconds[keep], phase=small.phase[keep], rows=small.rows[keep])
    loose = {
        path: parameter.model_copy(update={"low": 0.02 * parameter.value, "high": min(50 * parameter.value, 1.0)})
        for path, parameter in general_prior().parameters()
        if path in {"memory_efficiency.bf16", "compute_efficiency.bf16", "layer_s"}
    }
    held = fit_record(general_prior(), [few], options=QUICK)
    free = fit_record(general_prior().with_parameters(loose), [few], options=QUICK)
    assert {"layer_s", "compute_efficiency.bf16"} <= set(held.uninformed)
    for group in groups:
        assert median_abs_pct(group, held.record) < 30.0, group.label
    assert max(median_abs_pct(group, free.record) for group in groups) > 100.0


def test_all_reduces_alone_can_be_fitted() -> None:
    prior = general_prior("b200-sxm")
    result = fit_record(prior, (), all_reduce_rows_from_csv(ALL_REDUCES, "b200-sxm"), QUICK)
    assert set(result.informed) | set(result.uninformed) == {
        f"all_reduce.{size}.{name}" for size in (2, 4, 8) for name in ("alpha_s", "beta_bytes_per_s")
    }
    assert result.record.basis == "prior"
    assert value(result.record, "all_reduce.8.beta_bytes_per_s") == pytest.approx(570e9, rel=0.1)
    exact = AllReduceRows(8, np.array([1e4, 1e6, 1e8]), np.array([0.0, 0.0, 0.0]))
    exact = replace(exact, seconds=exact.predicted_s(5e-6, 3e11))
    narrow = fit_record(prior, (), [exact], replace(QUICK, all_reduce_error=0.01))
    assert value(narrow.record, "all_reduce.8.alpha_s") == pytest.approx(5e-6, rel=0.02)
    assert value(narrow.record, "all_reduce.8.beta_bytes_per_s") == pytest.approx(3e11, rel=0.02)


# Rows that can't be


def one_group() -> StepGroup:
    return next(group for group in dense_groups() if "8b" in group.label)


def with_seconds(group: StepGroup, row: int, seconds: float) -> StepGroup:
    changed = group.seconds.copy()
    changed[row] = seconds
    return replace(group, seconds=changed)


def test_a_row_that_beats_the_data_sheet_is_named() -> None:
    group = one_group()
    row = int(group.rows[7])
    impossible = with_seconds(group, 7, 0.5 * float(bound_s(group)[7]))
    with pytest.raises(InputError, match=rf"rows {row}.*data sheet") as caught:
        fit_record(general_prior(), [impossible], options=QUICK)
    assert f"row {row} needs" in str(caught.value)


@pytest.mark.parametrize("seconds", [0.0, -1e-3, float("nan"), float("inf")])
def test_a_row_that_is_no_time_is_named(seconds: float) -> None:
    group = one_group()
    with pytest.raises(InputError, match=rf"rows {group.rows[3]}.*finite"):
        fit_record(general_prior(), [with_seconds(group, 3, seconds)], options=QUICK)


@pytest.mark.parametrize("factor", [1e3, 1e-3, 1e6])
def test_another_unit_is_told_from_a_fast_machine(factor: float) -> None:
    group = one_group()
    with pytest.raises(InputError, match="times in seconds"):
        fit_record(general_prior(), [replace(group, seconds=factor * group.seconds)], options=QUICK)


def test_rows_of_another_machine_are_refused_when_it_is_faster() -> None:
    """H200 rows called A100: its memory is 2.4 times as fast."""
    h200 = next(group for group in dense_groups("h200-141g-sxm") if "8b" in group.label)
    a100 = groups_of("a100-80g-sxm", "0.14.0")[0]
    mixed = replace(h200, deployment=a100.deployment)
    with pytest.raises(InputError, match="beat the data sheet of A100"):
        fit_record(general_prior("a100-80g-sxm"), [mixed], options=QUICK)


def test_nothing_to_fit_is_refused() -> None:
    with pytest.raises(InputError, match="rows"):
        fit_record(general_prior(), [], options=QUICK)


# Tables


def table(**changes: object) -> bytes:
    rows = pd.DataFrame(
        {
            "model": "llama-3.1-8b-instruct",
            "quantization": "bf16",
            "tp": 1,
            "decode_sequences": [1, 8, 0],
            "decode_context_tokens": [512, 512, 0],
            "prefill_tokens": [0, 0, 512],
            "prefill_length": [0, 0, 256],
            "step_s": [0.0066, 0.0068, 0.0165],
        }
    )
    for column, values in changes.items():
        rows[column] = values
    buffer = io.BytesIO()
    rows.to_csv(buffer, index=False)
    return buffer.getvalue()


def test_a_table_becomes_sums_over_each_batch() -> None:
    (group,) = groups_from_csv(table(prefill_context_tokens=[0, 0, 100]), load_gpu(H100), general_prior())
    shape = group.shape
    assert list(group.phase) == ["decode", "decode", "prefill"]
    assert list(np.asarray(shape.scheduled_tokens)) == [1, 8, 512]
    assert list(np.asarray(shape.sampled_tokens)) == [1, 8, 2]
    assert list(np.asarray(shape.decode_context_tokens)) == [512, 4096, 0]
    assert list(np.asarray(shape.prefill_pairs)) == [0, 0, 512 * (100 + 128)]
    assert list(np.asarray(shape.prefill_context_tokens)) == [0, 0, 200]


def test_windows_cut_what_a_row_sees() -> None:
    (group,) = groups_from_csv(table(model="gemma-3-12b-it", decode_context_tokens=[512, 4096, 0]), load_gpu(H100), general_prior())
    assert list(np.asarray(group.shape.decode_window_tokens)) == [512, 8 * 1024, 0]
    assert list(np.asarray(group.shape.prefill_window_pairs)) == [0, 0, 2 * 256 * 128]


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (b"", "CSV"),
        (b"\xff\xfe\x00", "CSV|columns"),
        (b"a,b\n1,2\n", "model"),
        (table(step_s=["x", 1, 1]), "step_s, row 0"),
        (table(tp=[1, 1, float("inf")]), "tp, row 2"),
        (table(tp=[1, None, 1]), "tp, row 1"),
        (table(tp=1.5), "whole number"),
        (table(model=["llama-3.1-8b-instruct", None, "x"]), "model, row 1"),
        (table(decode_sequences=[-1, 1, 1]), "decode_sequences, row 0"),
        (table(decode_context_tokens=1e12), "decode_context_tokens"),
        (table(model="<b>no such model</b>"), "model"),
        (table(quantization="int3"), "quantization"),
        (table(tp=3), "tp"),
        (table(gpu="a100-80g-sxm"), "no rows"),
    ],
)
def test_a_wrong_table_is_refused_by_name(data: bytes, named: str) -> None:
    with pytest.raises(InputError, match=named):
        groups_from_csv(data, load_gpu(H100), general_prior())


def test_the_command_fits_prints_and_saves(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = pd.read_csv(io.BytesIO(STEPS), dtype={"version": str})
    rows = rows[(rows.gpu == "l40s") & (rows.index % 4 == 0)]
    path = tmp_path / "rows.csv"
    rows.to_csv(path, index=False)
    arguments = [
        str(path),
        "--gpu",
        "l40s",
        "--version",
        "0.24.0",
        "--out",
        str(tmp_path),
        "--day",
        "2026-01-02",
        "--source",
        "a test",
    ]
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert "memory_efficiency.bf16" in printed
    assert "held out: nothing" in printed
    saved = CalibrationRecord.model_validate_json((tmp_path / "l40s" / "vllm-0.24.0.json").read_text())
    assert (saved.basis, saved.created, saved.engine_version) == ("fitted", dt.date(2026, 1, 2), "0.24.0")
    assert "a test" in saved.description


def test_the_command_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "none.csv"), "--gpu", "l40s", "--version", "0.24.0"]) == 2
    assert "could not be read" in capsys.readouterr().err
    (tmp_path / "bad.csv").write_text("a,b\n")
    assert main([str(tmp_path / "bad.csv"), "--gpu", "l40s", "--version", "0.24.0"]) == 2
    assert "columns" in capsys.readouterr().err

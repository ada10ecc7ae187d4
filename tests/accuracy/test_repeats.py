"""Equal runs and how far they lie apart."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.accuracy.repeats import agreement, main, repeats
from planner.calibration.measurements import Measurement, Row, Unreadable

B200_8B = (
    (979, 0.0739, 1.026),
    (999, 0.498, 1.749),
    (999, 0.0574, 0.116),
    (999, 0.290, 1.071),
    (979, 0.0362, 0.0634),
    (999, 0.0296, 0.0562),
)
"""Rate [request/s], median and p99 of TTFT [s] of six entries with Llama-3.1-8B on eight B200 (MLPerf Inference v5.1 and v6.0,
mlperf_log_summary, Apache-2.0; not verified by MLCommons)."""


def row(rate_rps: float, p50_s: float = 0.1, p99_s: float = 0.2, **changes: object) -> Measurement:
    fields: dict[str, object] = {
        "gpu": "B200", "gpu_count": 8, "tp": 1, "engine": "TensorRT", "model": "Llama-3.1-8B", "scenario": "open-loop",
        "prompt_tokens": 870, "output_tokens": 128, "rate_rps": rate_rps, "ttft_p50_s": p50_s, "ttft_p99_s": p99_s,
    }  # fmt: skip
    return Measurement.model_validate(fields | changes)


def test_equal_servers_of_a_small_model_lie_too_far_apart_for_any_prediction() -> None:
    (found,) = agreement([row(*each) for each in B200_8B], "ttft_tail")
    tails = np.array([p99 / p50 for _, p50, p99 in B200_8B])
    assert tails.max() / tails.min() > 7.0
    assert (found.groups, found.rows) == (1, 6)
    assert found.share <= 0.5


def test_rates_and_settings_tell_runs_apart() -> None:
    other = (row(100.0, gpu_count=4), row(100.0, model="other"), Unreadable(3, "x", "y"))
    rows: list[Row] = [row(100.0), row(102.0), row(110.0), *other]
    assert [len(group) for group in repeats(rows)] == [2]
    assert not agreement(rows, "tpot_tail")


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(1.01, 20.0), min_size=2, max_size=9))
def test_no_single_figure_meets_more_than_half_of_two_halves(tails: list[float]) -> None:
    (found,) = agreement([row(10.0, 0.1, 0.1 * tail) for tail in tails], "ttft_tail")
    assert found.rows == len(tails)
    assert 0 <= found.within <= found.rows
    if max(tails) / min(tails) < 1.2:
        assert found.within == found.rows


def test_the_command_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    header = "gpu,engine,model,scenario,prompt_tokens,output_tokens,rate_rps,ttft_p50_s,ttft_p99_s\n"
    path = tmp_path / "rows.csv"
    path.write_text(header + "b200,vLLM,m,open-loop,9,9,1,0.1,0.2\n" * 3, encoding="utf-8")
    assert main([str(path)]) == 0
    assert "3 repeats in   1 groups: 3 within" in capsys.readouterr().out
    assert main([str(path), "--metric", "tpot"]) == 0
    assert "no two rows" in capsys.readouterr().out
    assert main([str(tmp_path / "missing.csv")]) == 2

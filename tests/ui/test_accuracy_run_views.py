"""What the Accuracy page says of a recorded engine: the errors, and what its machine's drift costs any prediction."""

import pytest

from planner.accuracy.shipped import Redrawn, RunPhase, ShippedRun, shipped_run
from planner.ui.views.accuracy_run import drift_sentence, run_frame, run_sentence


def phase(name: str, error: float) -> RunPhase:
    return RunPhase(
        phase=name, requests=9, ttft_pct=error, tpot_pct=-error, e2e_pct=0.0, at_drift_pct=1.25, at_own_speed_pct=0.5
    )  # fmt: skip


RUN = ShippedRun(
    title="t", source="s", date="2026-01-02", command="x", phases=(phase("poisson-1.5", 2.0), phase("poisson-3.0", -6.0)),
    at_one_speed_pct=5.5, redrawn=Redrawn(draws=40, median_pct=8.0, low_pct=4.0, high_pct=12.0, within_5_pct_share=0.25),
)  # fmt: skip


def test_the_largest_error_is_named_first_and_then_what_the_drift_leaves() -> None:
    said = run_sentence(RUN).replace("\xa0", " ")
    assert "2 loads on a real engine are predicted within 6 %" in said
    assert "within 1.25 % once" in said


def test_the_drift_is_said_with_its_figures() -> None:
    said = drift_sentence(RUN).replace("\xa0", " ")
    for part in ("leaves 0.5 % at most", "leaves 5.5 % at least", "miss by 8 % (4–12 % in 80 % of 40 draws)", "in 25 % of them"):
        assert part in said, part


def test_a_row_a_load_with_signed_errors() -> None:
    frame = run_frame(RUN)
    assert frame["Load"].tolist() == ["Poisson, 1.5 requests/s", "Poisson, 3.0 requests/s"]
    assert [cell.replace("\xa0", " ") for cell in frame["Mean TPOT"]] == ["−2 %", "+6 %"]


def test_what_ships_is_whole_and_no_other_fields_are_taken() -> None:
    assert len(shipped_run().phases) == 3
    with pytest.raises(ValueError, match="extra"):
        RunPhase.model_validate(RUN.phases[0].model_dump() | {"surprise": 1})

"""Engines' logs of single steps: what they state, what they don't, and lines that can't be."""

import contextlib
import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration.importers import read_step_log
from planner.errors import InputError

DATA = Path(__file__).parents[2] / "data" / "benchmarks"
LOG = (DATA / "vllm_steps.log").read_bytes()
TRT = (DATA / "trtllm_iterations.log").read_bytes()


def line(i: int, *, a: int = 0, b: int = 0, c: int = 1, d: int = 1, ms: str = "5.0", engine: str = "000") -> str:
    return (
        f"INFO Engine {engine}: Iteration({i}): {a} context requests, {b} context tokens, {c} generation requests, "
        f"{d} generation tokens, iteration elapsed time: {ms} ms, GPU KV cache usage: 1.5%"
    )


def test_vllm_log_gives_steps_and_what_it_says_of_the_engine() -> None:
    log = read_step_log(LOG, "server.log")
    assert (log.format, log.measured, len(log.steps)) == ("vllm", "step", 193)
    first = log.steps[0]
    assert (first.context_requests, first.context_tokens, first.generation_requests, first.seconds) == (1, 160, 0, 0.19179)
    assert (log.kv_cache_tokens, log.max_num_batched_tokens, log.model) == (524_288, 1024, "models/tiny")
    assert any("in the cache" in gap for gap in log.missing)
    assert log.left_out == {}
    assert read_step_log(gzip.compress(LOG)) == log


def test_tensorrt_log_pairs_a_batch_with_the_device_time_of_the_next_line() -> None:
    log = read_step_log(TRT)
    assert (log.format, log.measured, len(log.steps)) == ("tensorrt-llm", "gpu", 59)
    for step in log.steps:
        assert step.seconds == pytest.approx(4e-3 + 2e-5 * (step.context_tokens + step.generation_tokens), abs=1e-6)
    assert log.left_out == {"of another rank": 1}
    assert not any("in the cache" in gap for gap in log.missing)  # this release states it


def test_lines_that_cannot_be_are_left_out_and_counted() -> None:
    good = [line(i) for i in range(30)]
    bad = [
        line(30, c=0, d=0),
        line(31, c=1, d=4),
        line(32, a=3, b=2),
        line(33, ms="0.0"),
        line(34, ms="9e9"),
        line(35)[:80],
        line(36, engine="001"),
        line(37, ms="NaN"),
    ]
    log = read_step_log("\n".join([*good, *bad]).encode())
    assert len(log.steps) == 30
    assert log.left_out == {
        "of no request": 1,
        "with draft tokens": 1,
        "with impossible counts": 1,
        "with impossible times": 2,
        "cut or of another release": 2,
        "of another engine of the deployment": 1,
    }


@pytest.mark.parametrize("data", [b"", b"nothing here", "\n".join(line(i) for i in range(5)).encode()])
def test_logs_with_too_few_steps_are_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        read_step_log(data)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, len(LOG)), st.binary(max_size=20))
def test_any_damage_is_read_or_refused_with_a_reason(place: int, junk: bytes) -> None:
    with contextlib.suppress(InputError):  # any other error fails
        log = read_step_log(LOG[:place] + junk + LOG[place + len(junk) :])
        assert len(log.steps) >= 190

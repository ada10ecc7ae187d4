"""Measures the simulator itself: requests and steps a second, memory, time to compile, and how much faster than a plain loop."""

import argparse
import io
import json
import math
import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from planner.calibration.records import record_for
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.errors import InputError
from planner.hardware import load_gpu
from planner.memory import memory_budget
from planner.models import QUANTIZATIONS, load_model
from planner.simulator.inputs import MOST_TOKENS, RequestTable
from planner.simulator.limits import EngineLimits
from planner.simulator.metrics import summarise
from planner.simulator.plain_loop import Sequence as PlainSequence
from planner.simulator.plain_run import run_plain, step_time_of
from planner.simulator.result import SimulationResult
from planner.simulator.run import simulate
from planner.simulator.warming import warm_up
from planner.step_coefficients import coefficients_for
from planner.step_model import StepCoefficients

GPU_ID = "a100-80g-sxm"
MODEL_ID = "llama-3.1-8b-instruct"
ENGINE_VERSION = "0.33.0"
COLUMNS = ("arrived_at", "num_prefill_tokens", "num_decode_tokens")
REPLAY_COLUMNS = ("arrival_s", "prompt_tokens", "output_tokens")
_REPEATS = 9
_PLAIN_REQUESTS = 1000
_KIB = 1024
_MOST_BYTES = 256 * 1024**2
_SCARCE_BLOCKS = 2200
_HARDER: dict[str, dict[str, Any]] = {
    "kv_pressure": {"num_blocks": _SCARCE_BLOCKS},
    "prefix_caching": {"enable_prefix_caching": True},
    "prefix_caching_and_kv_pressure": {"enable_prefix_caching": True, "num_blocks": _SCARCE_BLOCKS},
}
_MIB = 1024**2


class BenchEngine(NamedTuple):
    """The engine that is simulated: an 8B model on one A100, at most 128 sequences and 512 tokens a step, blocks of 16 tokens."""

    limits: EngineLimits
    coefficients: StepCoefficients


def bench_engine() -> BenchEngine:
    """Return the engine of the benchmark, with its KV cache and step times as the planner computes them."""
    gpu = load_gpu(GPU_ID)
    config = engine_defaults("vllm", ENGINE_VERSION, gpu, tp=1).replace(
        max_num_seqs=128, max_num_batched_tokens=512, max_model_len=8192
    )
    deployment = Deployment(gpu, load_model(MODEL_ID), QUANTIZATIONS["bf16"], "bf16", Parallelism(), config)
    limits = EngineLimits(
        max_num_seqs=128,
        max_num_batched_tokens=512,
        block_size=16,
        num_blocks=memory_budget(deployment).one_group_blocks(8192),
        max_model_len=8192,
        async_scheduling=config.async_scheduling,
    )
    return BenchEngine(limits, coefficients_for(deployment, record_for(gpu, "vllm", ENGINE_VERSION)))


def read_workload(path: Path) -> RequestTable:
    """Read requests from CSV with the columns arrived_at [s], num_prefill_tokens and num_decode_tokens [token].

    The same by the names that a replay's requests are written with are read too.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise InputError("workload", str(path), f"can't be read ({error.strerror})", "Give a readable CSV file") from error
    if len(text) > _MOST_BYTES:
        raise InputError("workload", str(path), f"must be at most {_MOST_BYTES:,} bytes", "Give a part of it")
    try:
        frame = pd.read_csv(io.BytesIO(text))
    except ValueError as error:
        raise InputError("workload", str(path), f"must be a CSV file: {error}", "Give a file with a header line") from error
    arrival, prompt, output = columns = REPLAY_COLUMNS if set(REPLAY_COLUMNS) <= set(frame.columns) else COLUMNS
    missing = [column for column in columns if column not in frame.columns]
    if missing:
        raise InputError("workload", str(path), f"must have the columns {', '.join(COLUMNS)}", f"Add {', '.join(missing)}")
    return RequestTable(_numbers(frame, arrival), _tokens(frame, prompt).astype(np.int64), _tokens(frame, output).astype(np.int64))


def _numbers(frame: pd.DataFrame, column: str) -> npt.NDArray[np.float64]:
    numbers = pd.to_numeric(frame[column], errors="coerce").to_numpy(dtype=np.float64)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(f"{column}[{row}]", str(frame[column].iloc[row]), "must be a number", "Correct or drop the row")
    return numbers


def _tokens(frame: pd.DataFrame, column: str) -> npt.NDArray[np.float64]:
    numbers = _numbers(frame, column)
    wrong = np.abs(numbers) > MOST_TOKENS
    if wrong.any():
        row = int(np.argmax(wrong))
        raise InputError(f"{column}[{row}]", float(numbers[row]), f"must be at most {MOST_TOKENS:,}", "Correct or drop the row")
    return numbers


def bench_simulator(workload: Path, engine: BenchEngine | None = None) -> dict[str, object]:
    """Simulate a workload with all metrics and return what it took, JSON-ready.

    requests_per_s and steps_per_s count the best of nine runs in one thread, from the request arrays to the summary, in CPU seconds
    of that thread, so that other work on the machine doesn't count; wall_seconds is the same by the clock. The plain loop runs over
    the first 1,000 requests, and its ratio is taken against the simulator on the same requests.
    """
    requests = read_workload(workload)
    started = time.perf_counter()
    warm_up(lambda _line: None)
    compile_s = time.perf_counter() - started
    engine = engine or bench_engine()
    took, result = _best(requests, engine)
    if result.rejected.all():
        remedy = "Give prompts and outputs of at least one token"
        raise InputError("workload", f"{len(requests)} requests", "holds none that the engine accepts", remedy)
    part = requests.take(np.arange(min(_PLAIN_REQUESTS, len(requests))))
    part_took, _ = _best(part, engine)
    plain_s = _plain(part, engine)
    summary = summarise(result)
    return {
        "requests": len(requests),
        "rejected": int(result.rejected.sum()),
        "steps": result.totals.steps,
        "simulated_s": result.totals.makespan_s,
        "verdict": result.verdict,
        "ttft_p99_s": _known(summary.ttft.percentiles[99.0].value),
        "tpot_p99_s": _known(summary.tpot.percentiles[99.0].value),
        "preemptions": result.totals.preemptions,
        "cpu_seconds": took.cpu_s,
        "wall_seconds": took.wall_s,
        "requests_per_s": len(requests) / took.cpu_s,
        "steps_per_s": result.totals.steps / took.cpu_s,
        "compile_s": compile_s,
        "peak_rss_mib": _peak_rss_bytes() / _MIB,
        "plain_requests": len(part),
        "plain_requests_per_s": len(part) / plain_s,
        "times_faster_than_plain": plain_s / part_took.cpu_s,
        "harder_engines": {name: _harder(requests, engine, change) for name, change in _HARDER.items()},
        "engine": engine.limits._asdict(),
        "gpu": GPU_ID,
        "model": MODEL_ID,
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Print the benchmark as JSON; return 2 on wrong input."""
    parser = argparse.ArgumentParser(description="Measure the simulator.")
    parser.add_argument("--workload", type=Path, required=True, help=f"CSV with the columns {', '.join(COLUMNS)}")
    try:
        report = bench_simulator(parser.parse_args(argv).workload)
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(json.dumps(report, indent=2) + "\n")
    return 0


def _harder(requests: RequestTable, engine: BenchEngine, change: dict[str, Any]) -> dict[str, object]:
    """Measure the same requests on an engine whose blocks are scarce or whose contents are cached."""
    took, result = _best(requests, engine._replace(limits=engine.limits._replace(**change)))
    return {"requests_per_s": len(requests) / took.cpu_s, "steps": result.totals.steps, "preemptions": result.totals.preemptions}


class _Took(NamedTuple):
    cpu_s: float
    wall_s: float


def _best(requests: RequestTable, engine: BenchEngine) -> tuple[_Took, SimulationResult]:
    best = _Took(float("inf"), float("inf"))
    for _ in range(_REPEATS):
        cpu_s, wall_s = time.thread_time(), time.perf_counter()
        result = simulate(requests, engine.limits, engine.coefficients)
        summarise(result)
        best = min(best, _Took(time.thread_time() - cpu_s, time.perf_counter() - wall_s))
    return best, result


def _plain(requests: RequestTable, engine: BenchEngine) -> float:
    rows = zip(requests.arrival_s.tolist(), requests.prompt_tokens.tolist(), requests.output_tokens.tolist(), strict=True)
    sequences = [PlainSequence(index, *row) for index, row in enumerate(rows)]
    started_s = time.thread_time()
    run_plain(sequences, engine.limits, step_time_of(engine.coefficients))
    return time.thread_time() - started_s


def _known(value: float) -> float | None:
    """Return a figure of the run; None where no request has one, as outputs of one token have no TPOT."""
    return None if math.isnan(value) else value


def _peak_rss_bytes() -> int:
    """Return the most memory that this process has held [B]; Linux counts KiB, macOS bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * _KIB

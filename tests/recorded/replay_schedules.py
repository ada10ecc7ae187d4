"""Replays recorded schedules of the real vLLM scheduler and says where the simulator decides otherwise.

    python -m tests.recorded.replay_schedules FILE.json.gz [--plain]

Prints a line for each case (name, steps, first difference) and exits 1 on any difference. --plain replays with the plain Python
loop instead of the compiled one. The file's format is described in tests/recorded/README.md.
"""

import argparse
import gzip
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from planner.simulator.inputs import RequestTable
from planner.simulator.limits import EngineLimits, check_limits
from planner.simulator.plain_loop import Batch, Sequence
from planner.simulator.plain_run import run_plain
from planner.simulator.run import SimulationOptions, simulate
from planner.step_model import StepCoefficients
from planner.workloads import BlockHashes

TOLERANCE_S = 1e-9
_GROUP_STRIDE = 1 << 20
_MOST_BYTES = 1 << 31


class Step(NamedTuple):
    """One step, by request id."""

    scheduled_at_s: float
    start_s: float
    duration_s: float
    tokens: dict[str, int]
    context: dict[str, int]
    preempted: list[str]
    used_blocks: int
    running: int
    waiting: int


class Outcome(NamedTuple):
    """What became of each request, by id."""

    first_token_s: dict[str, float]
    finish_s: dict[str, float]
    preemptions: dict[str, int]
    cached_tokens: dict[str, int]


class Replay(NamedTuple):
    steps: list[Step]
    outcome: Outcome


def load_cases(path: Path) -> list[dict[str, Any]]:
    """Read a file of recorded cases; raises ValueError with the reason when it isn't one."""
    try:
        with gzip.open(path, "rb") as file:
            raw = file.read(_MOST_BYTES)
    except (OSError, EOFError) as error:
        raise ValueError(f"{path} can't be read as gzip: {error}") from error
    try:
        cases = json.loads(raw)
    except ValueError as error:
        raise ValueError(f"{path} isn't JSON: {error}") from error
    if not isinstance(cases, list) or not cases:
        raise ValueError(f"{path} must hold a list of cases")
    for position, case in enumerate(cases):
        missing = {"name", "engine", "step_time", "stop", "requests", "result"} - set(case if isinstance(case, dict) else ())
        if missing:
            raise ValueError(f"{path}: case {position} lacks {', '.join(sorted(missing))}")
    return cases


def limits_of(case: Mapping[str, Any]) -> EngineLimits:
    """Return the engine's knobs; one of the recorded blocks is vLLM's null block."""
    engine = dict(case["engine"])
    engine["num_blocks"] -= 1
    return check_limits(EngineLimits(**engine))


def coefficients_of(step_time: Mapping[str, float]) -> StepCoefficients:
    """Return the recorded step time, base + per token + per context token, in the step model's terms."""
    none = dict.fromkeys(StepCoefficients._fields, 0.0)
    given = {
        "layers_s": float(step_time["base_s"]),
        "linear_s_per_token": float(step_time["per_token_s"]),
        "decode_s_per_context_token": float(step_time["per_context_token_s"]),
        "mix_factor": 1.0,
        "expert_miss_ratio": 1.0,
        "expert_spread": 1.0,
    }
    return StepCoefficients(**(none | given))


def shared_identities(request: Mapping[str, Any], block_size: int) -> list[int]:
    """Return the identities of the leading blocks that a request shares with its group."""
    if request.get("prefix_group") is None:
        return []
    full = min(request["prefix_len"], request["prompt_len"]) // block_size
    return [request["prefix_group"] * _GROUP_STRIDE + position for position in range(full)]


def replay_compiled(case: Mapping[str, Any]) -> Replay:
    """Replay a case with the simulator that ships."""
    limits = limits_of(case)
    requests = sorted(case["requests"], key=lambda request: (request["arrival_s"], request["id"]))
    ids = [str(request["id"]) for request in requests]
    table = RequestTable(
        np.array([request["arrival_s"] for request in requests], np.float64),
        np.array([request["prompt_len"] for request in requests], np.int64),
        np.array([request["output_len"] for request in requests], np.int64),
        BlockHashes.from_lists([shared_identities(request, limits.block_size) for request in requests], limits.block_size),
    )
    priorities = np.array([request.get("priority", 0) for request in requests], np.int64)
    options = SimulationOptions(stop=case["stop"], priorities=priorities, log_steps=True)
    result = simulate(table, limits, coefficients_of(case["step_time"]), options)
    log = result.steps
    if log is None:
        raise RuntimeError("The simulator returned no step log")
    steps = []
    for step in log:
        rows = {ids[row.request]: row for row in step.rows}
        steps.append(
            Step(
                step.scheduled_at_s,
                step.start_s,
                step.duration_s,
                {name: row.tokens for name, row in rows.items()},
                {name: row.context for name, row in rows.items()},
                [ids[request] for request in step.preempted],
                step.used_blocks,
                step.running,
                step.waiting,
            )
        )
    return Replay(
        steps,
        Outcome(
            dict(zip(ids, result.first_token_s.tolist(), strict=True)),
            dict(zip(ids, result.finish_s.tolist(), strict=True)),
            dict(zip(ids, result.preemptions.tolist(), strict=True)),
            dict(zip(ids, result.cached_tokens.tolist(), strict=True)),
        ),
    )


def replay_plain(case: Mapping[str, Any]) -> Replay:
    """Replay a case with the plain Python loop."""
    limits = limits_of(case)
    time = case["step_time"]

    def step_time(batch: Batch) -> float:
        tokens = sum(row.tokens for row in batch.rows)
        context = sum(row.context for row in batch.rows)
        return float(time["base_s"] + time["per_token_s"] * tokens + time["per_context_token_s"] * context)

    sequences = [
        Sequence(
            request["id"],
            request["arrival_s"],
            request["prompt_len"],
            request["output_len"],
            request.get("priority", 0),
            shared_identities(request, limits.block_size),
        )
        for request in case["requests"]
    ]
    result = run_plain(sequences, limits, step_time, case["stop"])
    steps = [
        Step(
            batch.scheduled_at_s,
            batch.start_s,
            batch.duration_s,
            {str(row.sequence.index): row.tokens for row in batch.rows},
            {str(row.sequence.index): row.context for row in batch.rows},
            [str(index) for index in batch.preempted],
            batch.used_blocks,
            batch.running,
            batch.waiting,
        )
        for batch in result.steps
    ]
    served = {str(sequence.index): sequence for sequence in result.sequences}
    missing = float("nan")
    return Replay(
        steps,
        Outcome(
            {name: s.first_token_s if s.first_token_s is not None else missing for name, s in served.items()},
            {name: s.finish_s if s.finish_s is not None else missing for name, s in served.items()},
            {name: s.preemptions for name, s in served.items()},
            {name: s.cached_tokens or 0 for name, s in served.items()},
        ),
    )


def differences(case: Mapping[str, Any], replay: Replay) -> Iterator[str]:
    """Yield each difference between a replay and the recording, in order of time."""
    recorded = case["result"]
    for index, (mine, other) in enumerate(zip(replay.steps, recorded["steps"], strict=False)):
        yield from (f"step {index}: {text}" for text in _step_differences(mine, other))
    if len(replay.steps) != len(recorded["steps"]):
        yield f"{len(replay.steps)} steps, recorded {len(recorded['steps'])}"
    for name in ("first_token_s", "finish_s"):
        ours = {key: value for key, value in getattr(replay.outcome, name).items() if not math.isnan(value)}
        theirs = {str(key): value for key, value in recorded[name].items() if value is not None}
        yield from _map_differences(name, ours, theirs, TOLERANCE_S)
    for name in ("preemptions", "cached_tokens"):
        ours = {key: value for key, value in getattr(replay.outcome, name).items() if value > 0}
        theirs = {str(key): value for key, value in recorded[name].items() if value is not None and value > 0}
        yield from _map_differences(name, ours, theirs, 0.0)


def _step_differences(ours: Step, theirs: Mapping[str, Any]) -> Iterator[str]:
    yield from _map_differences("tokens", ours.tokens, theirs["tokens"], 0.0)
    yield from _map_differences("context", ours.context, theirs["context"], 0.0)
    preempted = sorted(str(request) for request in theirs["preempted"])
    if sorted(ours.preempted) != preempted:
        yield f"preempted {sorted(ours.preempted)}, recorded {preempted}"
    for name in ("used_blocks", "running", "waiting"):
        if name in theirs and getattr(ours, name) != theirs[name]:
            yield f"{name} {getattr(ours, name)}, recorded {theirs[name]}"
    for name in ("scheduled_at_s", "start_s", "duration_s"):
        if not abs(getattr(ours, name) - theirs[name]) <= TOLERANCE_S:
            yield f"{name} {getattr(ours, name)!r}, recorded {theirs[name]!r}"


def _map_differences(name: str, ours: Mapping[str, float], theirs: Mapping[str, float], tolerance: float) -> Iterator[str]:
    for key in [*theirs, *(key for key in ours if key not in theirs)]:
        mine, other = ours.get(key), theirs.get(key)
        if mine is None or other is None:
            yield f"{name}[{key}] {mine}, recorded {other}"
        elif not abs(mine - other) <= tolerance:
            yield f"{name}[{key}] {mine!r}, recorded {other!r}"


def main(arguments: list[str] | None = None) -> int:
    """Replay a file and return the exit status."""
    parser = argparse.ArgumentParser(description="Replay recorded vLLM schedules with the simulator.")
    parser.add_argument("file", type=Path)
    parser.add_argument("--plain", action="store_true", help="use the plain Python loop instead of the compiled one")
    options = parser.parse_args(arguments)
    try:
        cases = load_cases(options.file)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    different = 0
    for case in cases:
        try:
            replay = (replay_plain if options.plain else replay_compiled)(case)
            first = next(differences(case, replay), None)
            steps = len(replay.steps)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            first, steps = f"the case can't be replayed: {type(error).__name__}: {error}", 0
        different += first is not None
        print(f"{case['name']}: {steps} steps, {first or 'no difference'}", flush=True)
    print(f"{len(cases) - different} of {len(cases)} cases equal")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())

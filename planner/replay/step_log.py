"""A run's steps in the format in which schedules of the real engine are recorded, for a look with other tools."""

import math
from typing import Any

import numpy as np

from planner.replay.run import Replay
from planner.simulator import LogStep, SimulationOptions, simulate

MAX_STEPS = 20_000
MAX_ROWS = 500_000


def step_log_document(replay: Replay) -> list[dict[str, Any]]:
    """Return the shown run's first steps as a list of one case, in plain JSON types.

    A case holds name, engine, step_time, stop, requests and result, as recorded schedules do: num_blocks counts the engine's null
    block, and step_time holds the step model's coefficients. At most 20,000 steps and about half a million rows are kept; `logged`
    says how many of how many, and the requests are those that had arrived by then.
    """
    run, requests = replay.shown, replay.requests
    most = max(1, min(MAX_STEPS, MAX_ROWS // max(run.result.averages.peak_running, 1)))
    options = SimulationOptions(stop=replay.settings.stop, log_steps=True, log_most_steps=most)
    steps = simulate(requests, run.setup.limits, run.setup.coefficients, options).steps or []
    end_s = steps[-1].start_s + steps[-1].duration_s if steps else 0.0
    arrived = int(np.searchsorted(requests.arrival_s, end_s, side="right"))
    engine = run.setup.limits._asdict()
    engine["num_blocks"] += 1
    case = {
        "name": f"{replay.candidate.gpu_id} tp{replay.candidate.tensor_parallel} {replay.rate_rps:.4g} req/s seed {replay.seed}",
        "engine": engine,
        "step_time": run.setup.coefficients._asdict(),
        "stop": replay.settings.stop,
        "logged": {"steps": len(steps), "of_steps": run.result.totals.steps, "requests": arrived, "of_requests": len(requests)},
        "requests": [_request(replay, index) for index in range(arrived)],
        "result": {
            "steps": [_step(step) for step in steps],
            "first_token_s": _times(run.result.first_token_s, arrived),
            "finish_s": _times(run.result.finish_s, arrived),
            "preemptions": {str(i): int(run.result.preemptions[i]) for i in range(arrived)},
            "cached_tokens": {str(i): int(run.result.cached_tokens[i]) for i in range(arrived)},
        },
    }
    return [case]


def _request(replay: Replay, index: int) -> dict[str, Any]:
    return {
        "id": str(index),
        "arrival_s": float(replay.requests.arrival_s[index]),
        "prompt_len": int(replay.requests.prompt_tokens[index]),
        "output_len": int(replay.requests.output_tokens[index]),
    }


def _step(step: LogStep) -> dict[str, Any]:
    return {
        "scheduled_at_s": step.scheduled_at_s,
        "start_s": step.start_s,
        "duration_s": step.duration_s,
        "tokens": {str(row.request): row.tokens for row in step.rows},
        "context": {str(row.request): row.context for row in step.rows},
        "preempted": [str(request) for request in step.preempted],
        "used_blocks": step.used_blocks,
        "running": step.running,
        "waiting": step.waiting,
    }


def _times(times_s: np.ndarray, count: int) -> dict[str, float]:
    return {str(index): float(times_s[index]) for index in range(count) if math.isfinite(times_s[index])}

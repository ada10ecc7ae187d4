"""From an engine's log to steps for a fit: how many tokens each request has cached is reconstructed, since no log says it."""

from dataclasses import dataclass

import numpy as np

from planner.calibration.fit.collected import Batch, shape_of
from planner.calibration.fit.groups import BOUND_TOLERANCE, StepGroup, bound_s
from planner.calibration.importers import LoggedStep, StepLog
from planner.deployment import Deployment
from planner.errors import InputError
from planner.step_coefficients import work_of
from planner.step_model import StepShape

MOST_STEPS = 4_000
"""A fit takes so many steps at most, evenly spread over the log: more say nothing new of a dozen parameters."""

_ANCHORED_FROM = 0.02
_MOST_IMPOSSIBLE = 0.02


@dataclass(frozen=True, slots=True, eq=False)
class LoggedSteps:
    """Steps for a fit, and what of the log isn't among them, in words."""

    group: StepGroup
    remarks: tuple[str, ...]


def steps_of_log(log: StepLog, deployment: Deployment, label: str) -> LoggedSteps:
    """Return a log's steps as a fit takes them.

    log : of vLLM or TensorRT-LLM; deployment : what the server runs; label : for reports

    With asynchronous scheduling vLLM's elapsed time is what the engine waits for the GPU, and is taken as the GPU's. The first step
    of a log, which may compile, and steps that beat the data sheet are left out, the latter only when they are few.
    """
    budget = log.max_num_batched_tokens or deployment.engine.max_num_batched_tokens
    batches = reconstructed(log.steps, budget, log.kv_cache_tokens)[1:]
    chosen = batches[:: -(-len(batches) // MOST_STEPS)]
    asynchronous = deployment.engine.async_scheduling if log.async_scheduling is None else log.async_scheduling
    measured = "gpu" if log.measured == "gpu" or asynchronous else "step"
    group = _group(chosen, deployment, label, device=measured == "gpu")
    remarks = [f"{len(chosen):,} of {len(log.steps):,} steps were taken"] if len(chosen) < len(batches) else []
    if asynchronous and log.measured == "step":
        remarks.append("Scheduling is asynchronous: the logged times are the GPU's, and host terms stay at their priors.")
    possible = group.seconds >= BOUND_TOLERANCE * bound_s(group)
    beaten = int((~possible).sum())
    if beaten > _MOST_IMPOSSIBLE * len(chosen):
        bound = f"beat the data sheet of {deployment.gpu.name} in {beaten} of {len(chosen)} cases"
        raise InputError("logged steps", label, bound, "Check GPU, model, quantization and tensor parallelism")
    if beaten:
        remarks.append(f"{beaten} steps beat the data sheet with the reconstructed contexts and were left out")
        kept = [batch for batch, good in zip(chosen, possible, strict=True) if good]
        group = _group(kept, deployment, label, device=measured == "gpu")
    return LoggedSteps(group, tuple(remarks))


def reconstructed(steps: tuple[LoggedStep, ...], budget: int, pool_tokens: int | None) -> list[Batch]:
    """Return the batches of consecutive steps with contexts for their decode rows.

    budget : tokens that a step schedules at most, to know a chunk that was cut [token]
    pool_tokens : tokens of the KV cache, to read the share in use [token]

    A prompt is taken to end in its step unless the budget was full; a request that no longer decodes is taken to be the oldest.
    Where the share of the cache in use is at least 2 %, it sets the sum of all contexts.
    """
    running: list[float] = []
    partial = 0.0
    batches: list[Batch] = []
    for step in steps:
        running = _matched(running, step.generation_requests)
        contexts, chunk = _contexts(running, step, pool_tokens), _chunk(step, budget, partial)
        decode = ((float(step.generation_requests), contexts / step.generation_requests),) if step.generation_requests else ()
        batches.append(Batch(decode, chunk, step.seconds, step.line))
        running = [context + 1.0 for context in running]
        partial = _begin(running, step, chunk, partial)
    return batches


def _matched(running: list[float], wanted: int) -> list[float]:
    """Let the oldest requests end, or begin unknown ones, until as many decode as the step says."""
    if len(running) > wanted:
        return running[len(running) - wanted :]
    usual = float(np.mean(running)) if running else 0.0
    return running + [usual] * (wanted - len(running))


def _contexts(running: list[float], step: LoggedStep, pool_tokens: int | None) -> float:
    total = float(sum(running))
    if step.cached_tokens is not None:
        return float(step.cached_tokens)
    if pool_tokens and step.kv_share is not None and step.kv_share >= _ANCHORED_FROM:
        return max(step.kv_share * pool_tokens - step.context_tokens, float(step.generation_requests))
    return total


def _chunk(step: LoggedStep, budget: int, partial: float) -> tuple[tuple[float, float, float, float], ...]:
    """Return a step's prefill chunks: sequences, new and cached tokens of each, and the share that ends its prompt."""
    if not step.context_requests:
        return ()
    count = float(step.context_requests)
    cut = 1.0 if step.context_tokens + step.generation_tokens >= budget else 0.0
    return ((count, step.context_tokens / count, partial / count, (count - cut) / count),)


def _begin(running: list[float], step: LoggedStep, chunk: tuple[tuple[float, float, float, float], ...], partial: float) -> float:
    """Let the prompts that ended decode from now on; return the tokens of the one that was cut."""
    if not chunk:
        return partial
    count, new, cached, ends = chunk[0]
    ended = round(count * ends)
    running.extend([new + cached + 1.0] * ended)
    return new + cached if ended < step.context_requests else 0.0


def _group(batches: list[Batch], deployment: Deployment, label: str, *, device: bool) -> StepGroup:
    decodes = np.array([bool(batch.decode) for batch in batches])
    prefills = np.array([bool(batch.prefill) for batch in batches])
    shape: StepShape = shape_of(batches, work_of(deployment).window_tokens)
    return StepGroup(
        label=label,
        deployment=deployment,
        shape=shape,
        seconds=np.array([batch.seconds for batch in batches]),
        phase=np.where(decodes & prefills, "mixed", np.where(decodes, "decode", "prefill")),
        rows=np.array([batch.row for batch in batches], dtype=np.int64),
        measured="gpu" if device else "step",
    )

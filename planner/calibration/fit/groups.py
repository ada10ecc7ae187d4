"""Measured rows that a fit works on, their prediction, and the refusal of rows that no machine can have produced."""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from planner.calibration.records import CalibrationRecord
from planner.deployment import Deployment
from planner.errors import InputError
from planner.step_coefficients import coefficients, coefficients_for, peak_rates, work_of
from planner.step_model import StepShape, gpu_s, step_s

FloatArray = npt.NDArray[np.float64]
Measured = Literal["gpu", "step"]
BOUND_TOLERANCE = 0.98
_WRONG_UNIT_FACTOR = 100.0
_NAMED_ROWS = 5


@dataclass(frozen=True, slots=True, eq=False)
class StepGroup:
    """Measured steps of one deployment.

    label : model and layout, for reports; groups are held out by it
    shape : arrays, one entry a row
    seconds : measured times [s]
    phase : "decode", "prefill" or "mixed" of each row
    rows : the rows' numbers in their file, for messages
    measured : "gpu" when the times are of the GPU's work alone, "step" when they run from one step to the next
    bursts : the burst that each row belongs to, from 0; rows of one share the machine's state. None: rows stand alone
    """

    label: str
    deployment: Deployment
    shape: StepShape
    seconds: FloatArray
    phase: npt.NDArray[np.str_]
    rows: npt.NDArray[np.int64]
    measured: Measured = "gpu"
    bursts: npt.NDArray[np.int64] | None = None

    def only(self, chosen: npt.NDArray[np.bool_]) -> "StepGroup":
        """Return the group with some of its rows; chosen : a flag for each row."""
        rows = len(self.seconds)
        shape = StepShape(*(np.broadcast_to(np.asarray(values, dtype=np.float64), rows)[chosen] for values in self.shape))
        bursts = None if self.bursts is None else self.bursts[chosen]
        taken = {name: getattr(self, name)[chosen] for name in ("seconds", "phase", "rows")}
        return replace(self, shape=shape, bursts=bursts, **taken)


@dataclass(frozen=True, slots=True, eq=False)
class AllReduceRows:
    """Measured all-reduces among `tensor_parallel` GPUs: message sizes [B] and times [s]."""

    tensor_parallel: int
    message_bytes: FloatArray
    seconds: FloatArray

    def predicted_s(self, alpha_s: float, beta_bytes_per_s: float) -> FloatArray:
        """Return alpha + 2 (tp - 1) / tp * bytes / beta for each row [s]."""
        ring = 2.0 * (self.tensor_parallel - 1) / self.tensor_parallel
        return alpha_s + ring * self.message_bytes / beta_bytes_per_s


def predicted_s(group: StepGroup, record: CalibrationRecord) -> FloatArray:
    """Return the time that a record predicts for each row of a group [s]."""
    c = coefficients_for(group.deployment, record)
    predict = gpu_s if group.measured == "gpu" else step_s
    return np.asarray(predict(group.shape, c), dtype=np.float64)


def bound_s(group: StepGroup) -> FloatArray:
    """Return the time that no machine with this data sheet can beat, for each row [s].

    All bytes at the full memory bandwidth or all FLOPs at the full rate, whichever takes longer, with nothing else counted.
    """
    c = coefficients(work_of(group.deployment), peak_rates(group.deployment))
    shape = group.shape
    weights_s = c.dense_weights_s + c.expert_weights_s * (1.0 - c.expert_miss_ratio)
    cached_s = c.decode_s_per_context_token * shape.decode_context_tokens + c.decode_s_per_window_token * shape.decode_window_tokens
    attention_s = c.prefill_s_per_pair * shape.prefill_pairs + c.prefill_s_per_window_pair * shape.prefill_window_pairs
    compute_s = c.linear_s_per_token * shape.scheduled_tokens + attention_s
    return np.maximum(weights_s + cached_s, compute_s)


def refuse_impossible(group: StepGroup, record: CalibrationRecord) -> None:
    """Raise InputError when rows aren't times, are in another unit, or beat a physical bound; the message names the rows.

    record : any record of the GPU, to tell a wrong unit from a fast machine
    """
    bad = ~np.isfinite(group.seconds) | (group.seconds <= 0)
    if bad.any():
        raise _refusal(group, bad, "must be a finite time above 0", "Remove the rows or measure them again")
    ratio = float(np.median(group.seconds / predicted_s(group, record)))
    if not 1.0 / _WRONG_UNIT_FACTOR < ratio < _WRONG_UNIT_FACTOR:
        bound = f"lie {ratio:.3g} times from any prediction for {group.deployment.gpu.name}"
        every = np.ones(len(group.seconds), dtype=np.bool_)
        raise _refusal(group, every, bound, "Give times in seconds, and name the GPU they were measured on")
    slowest = bound_s(group)
    faster = group.seconds < BOUND_TOLERANCE * slowest
    if faster.any():
        worst = int(np.argmin(group.seconds / slowest))
        bound = f"beat the data sheet of {group.deployment.gpu.name}: row {group.rows[worst]} needs {slowest[worst]:.4g} s at least"
        raise _refusal(group, faster, bound, "Check model, dtype, layout and GPU of these rows, or leave them out")


def _refusal(group: StepGroup, chosen: npt.NDArray[np.bool_], bound: str, remedy: str) -> InputError:
    rows = group.rows[chosen]
    named = ", ".join(str(row) for row in rows[:_NAMED_ROWS])
    more = f" and {len(rows) - _NAMED_ROWS} more" if len(rows) > _NAMED_ROWS else ""
    values = [float(value) for value in group.seconds[chosen][:_NAMED_ROWS]]
    return InputError(f"step times of {group.label}, rows {named}{more}", values, bound, remedy)

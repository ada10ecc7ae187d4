"""What bounds an engine's scheduler, and what the simulator refuses before it starts."""

from typing import Literal, NamedTuple

import numpy as np

from planner.errors import InputError
from planner.step_model import StepCoefficients

Policy = Literal["fcfs", "priority"]
Stop = Literal["length", "eos"]


class EngineLimits(NamedTuple):
    """The scheduler's knobs, by vLLM's names; vLLM's own meanings and defaults where it has one.

    max_num_seqs : most sequences that run at once [seq]
    max_num_batched_tokens : most tokens that one step schedules [token]; at least max_num_seqs, as the engine demands
    block_size : tokens that one KV block holds [token]
    num_blocks : KV blocks that requests can use [block]; vLLM's null block isn't one of them
    max_model_len : most tokens of a prompt and its output together [token]; None sets no bound
    enable_prefix_caching : full blocks stay findable by content after their request has gone
    async_scheduling : a step is decided while the one before it still runs
    policy : "fcfs", or "priority" (lower value first)
    watermark : share of the pool kept free when a request is admitted beside running ones [1]
    scheduler_reserve_full_isl : a request is admitted only when its whole known sequence fits; else its first chunk suffices
    long_prefill_token_threshold : most prompt tokens of one request in one step [token]; 0 is vLLM's word for no bound
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    block_size: int
    num_blocks: int
    max_model_len: int | None = None
    enable_prefix_caching: bool = False
    async_scheduling: bool = True
    policy: Policy = "fcfs"
    watermark: float = 0.0
    scheduler_reserve_full_isl: bool = True
    long_prefill_token_threshold: int = 0

    @property
    def watermark_blocks(self) -> int:
        """Blocks kept free at admission: the share of all blocks, vLLM's null block among them, rounded down [block]."""
        return int(self.watermark * (self.num_blocks + 1))


def check_limits(limits: EngineLimits) -> EngineLimits:
    """Return the limits, or raise InputError for a set that the engine itself would refuse."""
    for field in ("max_num_seqs", "max_num_batched_tokens", "block_size", "num_blocks"):
        if getattr(limits, field) < 1:
            raise InputError(f"engine.{field}", getattr(limits, field), "must be at least 1", "Give a whole number above 0")
    if limits.max_num_batched_tokens < limits.max_num_seqs:
        raise InputError(
            "engine.max_num_batched_tokens",
            limits.max_num_batched_tokens,
            f"must be at least max_num_seqs ({limits.max_num_seqs})",
            "Raise the token budget or lower max_num_seqs; the engine refuses to start otherwise",
        )
    if limits.max_model_len is not None and limits.max_model_len < 2:
        raise InputError("engine.max_model_len", limits.max_model_len, "must be at least 2", "Leave it unset for no bound")
    if not 0.0 <= limits.watermark < 1.0:
        raise InputError("engine.watermark", limits.watermark, "must be in [0, 1)", "Give a share of the pool, for example 0.01")
    if limits.long_prefill_token_threshold < 0:
        raise InputError(
            "engine.long_prefill_token_threshold", limits.long_prefill_token_threshold, "must be at least 0", "0 turns it off"
        )
    if limits.policy not in ("fcfs", "priority"):
        raise InputError("engine.policy", limits.policy, "must be fcfs or priority", "Choose one of the two")
    return limits


def check_coefficients(c: StepCoefficients) -> StepCoefficients:
    """Return the coefficients as floats, or raise InputError for negative ones and for those that let a step take no time."""
    for name, value in zip(c._fields, c, strict=True):
        if not (np.isfinite(value) and value >= 0.0):
            raise InputError(
                f"coefficients.{name}", value, "must be finite and at least 0", "Fit or choose another calibration record"
            )
    if c.layers_s + c.dense_weights_s + c.linear_s_per_token + c.host_s <= 0.0:
        raise InputError("coefficients", 0.0, "must make a step take time", "Choose a calibration record")
    return StepCoefficients(*(float(value) for value in c))

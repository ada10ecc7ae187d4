"""Batch service by the day: GPUs for a number of tokens when only throughput counts."""

from dataclasses import dataclass
from typing import NamedTuple

from planner.analysis.explanation import Explanation
from planner.analysis.steps import decode_step_s, require_positive, require_tokens
from planner.attention_pairs import causal_pairs, window_pairs
from planner.errors import InputError
from planner.step_model import StepCoefficients
from planner.units import DAY_S


class DailyWork(NamedTuple):
    """Equal requests of one day.

    prompt_tokens, output_tokens : of one request [token]; prompts_total, outputs_total : tokens of the day [token/day]
    cached_tokens : leading tokens of each prompt that a prefix cache holds, below the prompt [token]
    """

    prompt_tokens: float
    output_tokens: float
    prompts_total: float
    outputs_total: float
    cached_tokens: float = 0.0

    @classmethod
    def of_day(cls, prompts_total: float, outputs_total: float, prompt_tokens: float) -> "DailyWork":
        """Return a day's work by its tokens and the length of a prompt; each request has its share of the outputs."""
        require_positive("prompts_total", prompts_total, "tokens")
        if not prompt_tokens <= prompts_total:
            bound = f"must hold one prompt of {prompt_tokens:,.0f} tokens at least"
            raise InputError("prompts_total", prompts_total, bound, "Raise the prompt tokens a day, or shorten the prompt")
        return cls(prompt_tokens, outputs_total * prompt_tokens / prompts_total, prompts_total, outputs_total)

    @property
    def requests(self) -> float:
        """Requests of the day [request/day]."""
        return self.prompts_total / self.prompt_tokens

    @property
    def running_context_tokens(self) -> float:
        """Mean tokens that a running sequence has cached [token]."""
        return self.prompt_tokens + self.output_tokens / 2.0


@dataclass(frozen=True, slots=True)
class OfflineFleet:
    """GPUs for a day's work, all busy all day; both ways to count decode.

    batch : sequences that decode together [seq]
    prefill_gpu_days : GPUs for the prompts [GPU·day/day]
    decode_step_s, decode_gpu_days : by the step model, whose linear layers take the longer of reading weights and computing
    read_step_s, read_gpu_days : counting only what decode reads; a floor that a batch past the knee does not reach
    prefill_share, read_prefill_share : prefill in the whole, with either decode [1]
    """

    batch: float
    prefill_gpu_days: float
    decode_step_s: float
    decode_gpu_days: float
    prefill_share: float
    read_step_s: float
    read_gpu_days: float
    read_prefill_share: float
    explanation: Explanation

    @property
    def gpu_days(self) -> float:
        """GPUs that the work keeps busy all day [GPU·day/day]."""
        return self.prefill_gpu_days + self.decode_gpu_days


def kv_limited_batch(kv_bytes: float, kv_bytes_per_token: float, work: DailyWork) -> float:
    """Return the sequences that the KV cache holds at their mean context [seq]; both sizes on one GPU [B], [B/token]."""
    require_positive("kv_bytes_per_token", kv_bytes_per_token, "bytes")
    if not kv_bytes >= 0.0:
        raise InputError(
            "kv_bytes", kv_bytes, "must be at least 0", "The weights must fit first: use more GPUs or fewer weight bits"
        )
    return kv_bytes / (kv_bytes_per_token * work.running_context_tokens)


def packed_prefill_s(prompt_tokens: float, c: StepCoefficients, cached_tokens: float = 0.0) -> float:
    """Return the time of one prompt when steps are packed with prompts [s]: FLOPs alone, weights read once for many.

    cached_tokens : of the prompt in the prefix cache, below the prompt [token]
    """
    require_tokens("prompt_tokens", prompt_tokens)
    if not 0.0 <= cached_tokens < prompt_tokens:
        raise InputError("cached_tokens", cached_tokens, "must be at least 0 and below the prompt", "The last token is computed")
    new_tokens = prompt_tokens - cached_tokens
    attention_s = c.prefill_s_per_pair * causal_pairs(cached_tokens, new_tokens)
    if c.window_tokens:
        attention_s += c.prefill_s_per_window_pair * window_pairs(cached_tokens, new_tokens, c.window_tokens)
    per_token = c.linear_s_per_token + c.activation_s_per_token + c.all_reduce_s_per_token
    return new_tokens * per_token + attention_s + c.head_s_per_token


def read_step_s(sequences: float, context_tokens: float, c: StepCoefficients) -> float:
    """Return the time of a decode step if only its reading counted [s]: weights, head and KV at the memory rate.

    A floor: past knee_tokens the FLOPs of the linear layers take longer.
    """
    reading = c._replace(linear_s_per_token=0.0, head_s_per_token=0.0)
    return float(decode_step_s(sequences, context_tokens, reading))


def offline_fleet(work: DailyWork, batch: float, gpus_per_replica: int, c: StepCoefficients) -> OfflineFleet:
    """Return the GPUs that a day's work needs.

    batch : sequences that decode together on one replica, at least 1 [seq]; gpus_per_replica : that share the model [GPU]
    c : step costs of that layout
    """
    if not batch >= 1.0:
        raise InputError("batch", batch, "must be at least 1", "The KV cache must hold one sequence: use more GPUs")
    if gpus_per_replica < 1:
        raise InputError("gpus_per_replica", gpus_per_replica, "must be at least 1", "Give the GPUs that share the model")
    for field, value in zip(DailyWork._fields[:4], work[:4], strict=True):
        require_positive(field, value, "tokens")
    per_day = gpus_per_replica / DAY_S
    prompt_s = packed_prefill_s(work.prompt_tokens, c, work.cached_tokens)
    prefill = work.requests * prompt_s * per_day
    step = float(decode_step_s(batch, work.running_context_tokens, c))
    reading = read_step_s(batch, work.running_context_tokens, c)
    decode, read = (work.outputs_total / batch * each * per_day for each in (step, reading))
    return OfflineFleet(
        batch,
        prefill,
        step,
        decode,
        prefill / (prefill + decode),
        reading,
        read,
        prefill / (prefill + read),
        Explanation(
            f"{prefill + decode:.1f} GPUs, busy all day: {prefill:.1f} for prompts and {decode:.1f} for decode at a batch of "
            f"{batch:.0f}.",
            f"decode step {step * 1e3:.2f} ms, of which reading alone {reading * 1e3:.2f} ms",
            "Save on prompts first when prefill has the larger share: prefix caching, FP8; then raise the batch with an FP8 KV "
            "cache.",
        ),
    )

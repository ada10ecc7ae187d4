"""The textbook figures of the planner's fifteen questions, as one document.

The setting: Llama-3.1-8B-Instruct in BF16 with a BF16 KV cache on one GPU, every overhead zero, the hard maximum of memory and
compute time. A GPU's id changes peak and bandwidth; the memory stays 80e9 bytes and the copy rate over PCIe 55e9 bytes/s, so that
the figures of different GPUs differ by their speed alone. A GPU without BF16 computes in FP16, which has the same sizes.
"""

import math
from dataclasses import dataclass

from planner.analysis.admission import admission_limit
from planner.analysis.batching import batching_gain, exponential_gain, knee_tokens, knee_tokens_with_decoders, ridge_tokens
from planner.analysis.class_sharing import batch_share
from planner.analysis.fairness import Request, request_fair_shares, token_weights
from planner.analysis.goodput import best_batch, compare_batches
from planner.analysis.head_of_line import head_of_line
from planner.analysis.knobs import MemorySplit, kv_tokens_of
from planner.analysis.littles_law import Stream, in_flight
from planner.analysis.long_prompt import long_prompt
from planner.analysis.offline import DailyWork, kv_limited_batch, offline_fleet
from planner.analysis.overload import Spike, backlog
from planner.analysis.preemption import Copies, copy_bytes_per_s, swap_or_recompute
from planner.analysis.queue_model import PrefillService, planned_utilisation
from planner.analysis.speculation import Draft, speculation
from planner.analysis.steps import Decoders, prefill_s
from planner.calibration.records import load_record
from planner.deployment import Deployment, Parallelism, Shard, shard
from planner.engines import engine_defaults
from planner.errors import InputError
from planner.hardware import GpuProfile, load_gpu
from planner.models import QUANTIZATIONS, load_model
from planner.step_coefficients import coefficients_for, sixteen_bit_of
from planner.step_model import StepCoefficients
from planner.units import GB, KIB, MS, US
from planner.workloads import TokenLaw

Figures = dict[str, float | int | None]

SMALL_MODEL = "llama-3.1-8b-instruct"
LARGE_MODEL = "llama-3.1-70b-instruct"
RECORD = "textbook"
_LEAST_EFFICIENCY = 0.001
ENGINE_VERSION = "0.33.0"
MEMORY_BYTES = 80e9
MEMORY_UTILIZATION = 0.9
PCIE_BYTES_PER_S = 55e9
DECODERS = Decoders(64.0, 2048.0)


@dataclass(frozen=True, slots=True)
class Setting:
    """One model on one layout at the textbook setting.

    gpu : with peak and bandwidth; c : step costs of one GPU; shard : what it holds
    """

    gpu: GpuProfile
    c: StepCoefficients
    shard: Shard

    @property
    def kv_bytes_per_token(self) -> float:
        """Keys and values of one token on one GPU [B/token]."""
        return float(self.shard.kv.full_bytes_per_token)


def textbook_setting(
    gpu: GpuProfile, model_id: str, tensor_parallel: int, memory_efficiency: float, compute_efficiency: float
) -> Setting:
    """Return a model's setting: the textbook record with two efficiencies, on any GPU.

    memory_efficiency, compute_efficiency : share of the data sheet's bandwidth and peak that is reached, from 0.001 to 1 [1]
    """
    for field, value in (("memory_efficiency", memory_efficiency), ("compute_efficiency", compute_efficiency)):
        if not (math.isfinite(value) and _LEAST_EFFICIENCY <= value <= 1.0):
            bound = f"must be at least {_LEAST_EFFICIENCY:g} and at most 1"
            raise InputError(field, value, bound, "Give a share of the data sheet's figure, such as 0.9")
    record = load_record(RECORD)
    values = {path: memory_efficiency for path, _ in record.parameters() if path.startswith("memory_efficiency.")}
    values |= {path: compute_efficiency for path, _ in record.parameters() if path.startswith("compute_efficiency.")}
    deployment = Deployment(
        gpu=gpu,
        model=load_model(model_id),
        quantization=QUANTIZATIONS["bf16"],
        kv_dtype="bf16",
        parallelism=Parallelism(tp=tensor_parallel),
        engine=engine_defaults("vllm", ENGINE_VERSION, gpu, tensor_parallel),
    )
    return Setting(gpu, coefficients_for(deployment, record.with_values(values)), shard(deployment))


def answer_questions(
    gpu_id: str = "h100-80g-sxm", memory_efficiency: float = 0.97, compute_efficiency: float = 0.475
) -> dict[str, Figures]:
    """Return the figures of all questions by question and name; None where a question has no answer on such a GPU.

    gpu_id : id of the catalogue; memory_efficiency, compute_efficiency : see textbook_setting [1]

    Raises InputError for an unknown GPU, one without a 16-bit rate, and efficiencies out of bounds.

    >>> answers = answer_questions()
    >>> answers["q9"]["chunks"], answers["q2"]["best_batch"]
    (13, 89)
    """
    return answers_on(load_gpu(gpu_id), memory_efficiency, compute_efficiency)


def answers_on(gpu: GpuProfile, memory_efficiency: float, compute_efficiency: float) -> dict[str, Figures]:
    """Return the figures for a GPU profile; see answer_questions."""
    small = textbook_setting(gpu, SMALL_MODEL, 1, memory_efficiency, compute_efficiency)
    large = textbook_setting(gpu, LARGE_MODEL, 4, memory_efficiency, compute_efficiency)
    return {
        "q9": _long_prompt(small),
        "q2": _goodput(small),
        "q4": _preemption(small),
        "q5": {"prefill_32k_s": head_of_line(32_768, 512, 10, small.c).long_prefill_s},
        "q7": _queue(small),
        "q8": _fairness(small),
        "q10": _knobs(small),
        "q1": _batching(small),
        "q6": {"batch_kv_tokens": batch_share(Decoders(32.0, 2048.0), 15 * MS, 2048.0, small.c).kv_tokens},
        "q15": _overload(),
        "q14": _speculation(small),
        "q13": _offline(large),
        "q11": _admission(small),
        "q3": _in_flight(small),
    }


def _long_prompt(setting: Setting) -> Figures:
    found = long_prompt(100_000, DECODERS, 8192, setting.c)
    return {
        "itl_before_ms": found.itl_before_s / MS,
        "itl_worst_ms": found.itl_worst_s / MS,
        "lockout_s": found.lockout_s,
        "chunks": len(found.steps),
        "itl_after_ms": found.itl_after_s / MS,
    }


def _goodput(setting: Setting) -> Figures:
    target_s = 12 * MS
    trade = compare_batches(64, 128, 2048.0, target_s, setting.c)
    return {
        "step64_ms": trade.smaller_step_s / MS,
        "step128_ms": trade.larger_step_s / MS,
        "throughput_gain": trade.throughput_gain,
        "slo_ms": target_s / MS,
        "best_batch": best_batch(2048.0, target_s, setting.c).batch,
    }


def _preemption(setting: Setting) -> Figures:
    found = swap_or_recompute(2048.0, setting.kv_bytes_per_token, Copies(PCIE_BYTES_PER_S), setting.c)
    blocks = Copies(PCIE_BYTES_PER_S, copy_bytes=32 * KIB, latency_s=10 * US)
    return {
        "recompute_us_per_token": found.recompute_s_per_token / US,
        "pcie_us_per_token": found.transfer_s_per_token / US,
        "ratio_one_way": found.one_way,
        "ratio_round_trip": found.round_trip,
        "break_even_gb_s_one_way": found.break_even_bytes_per_s / GB,
        "block_copy_32k_10us_gb_s": copy_bytes_per_s(blocks) / GB,
    }


def _queue(setting: Setting) -> Figures:
    service_s = prefill_s(2048.0, setting.c)
    found = planned_utilisation(1.0, PrefillService(service_s, 2.2))
    return {
        "prefill_2k_ms": service_s / MS,
        "rho_for_p99_1s_exponential": found.exponential,
        "rho_cv2_1.0": found.exponential,
        "rho_cv2_2.2": found.general,
    }


def _fairness(setting: Setting) -> Figures:
    weights = token_weights(DECODERS, setting.c)
    shares = request_fair_shares([Request(16_384, 200), Request(200, 100)], DECODERS, setting.c)
    return {
        "prefill_token_us": weights.prefill_token_s / US,
        "decode_token_us": weights.decode_token_s / US,
        "weight": weights.weight,
        "doc_share_linear": shares.linear[0],
        "doc_share": shares.full[0],
    }


def _knobs(setting: Setting) -> Figures:
    memory = MemorySplit(MEMORY_BYTES, MEMORY_UTILIZATION, float(setting.shard.weights.total), 2e9)
    kv_tokens = kv_tokens_of(memory, setting.kv_bytes_per_token)
    peak = setting.gpu.peak_flops_per_s(sixteen_bit_of(setting.gpu))
    return {
        "kv_tokens": kv_tokens,
        "seqs_2k": kv_tokens / 2048,
        "seqs_256": kv_tokens / 256,
        "ridge_peak": ridge_tokens(peak, setting.gpu.memory_bytes_per_s),
        "ridge_effective": knee_tokens(setting.c),
    }


def _batching(setting: Setting) -> Figures:
    constant = TokenLaw.from_weights([250], [1.0])
    return {
        "exponential_gain_b32": exponential_gain(32).gain,
        "exponential_gain_b64": exponential_gain(64).gain,
        "constant_gain": batching_gain(constant, 64).gain,
        "knee_tokens": knee_tokens(setting.c),
        "knee_tokens_with_kv": knee_tokens_with_decoders(DECODERS, setting.c),
    }


def _overload() -> Figures:
    found = backlog(Spike(0.6, 3.0, 60.0))
    return {"backlog_s": found.backlog_s, "drain_s": found.drain_s}


def _speculation(setting: Setting) -> Figures:
    found = speculation(512.0, Draft(4, 0.7), setting.c)
    return {
        "expected_tokens": found.expected_tokens,
        "speedup_b1": found.speedup_at_one,
        "lose_at_batch": found.losing_batch,
    }


def _offline(setting: Setting) -> Figures:
    work = DailyWork(1000.0, 250.0, 8e9, 2e9)
    free = MEMORY_BYTES * MEMORY_UTILIZATION - 4e9 - float(setting.shard.weights.total)
    batch = kv_limited_batch(free, setting.kv_bytes_per_token, work)
    found = offline_fleet(work, batch, 4, setting.c)
    shares = {f"share_b{size}": offline_fleet(work, float(size), 4, setting.c).read_prefill_share for size in (128, 192, 256)}
    return {
        "batch": found.batch,
        "decode_step_ms": found.read_step_s / MS,
        "prefill_gpu_days": found.prefill_gpu_days,
        "decode_gpu_days": found.read_gpu_days,
        "prefill_share": found.read_prefill_share,
        **shares,
    }


def _admission(setting: Setting) -> Figures:
    found = admission_limit(DECODERS, 1.0, 30 * MS, setting.c, past_tokens=2048.0)
    return {
        "max_chunk": found.chunk.chunk_tokens,
        "prefill_tokens_s": found.chunk.prefill_tokens_per_s,
        "backlog_tokens_for_1s": found.backlog_tokens,
    }


def _in_flight(setting: Setting) -> Figures:
    found = in_flight(Stream(10.0, 500.0, 250.0), setting.kv_bytes_per_token, setting.c)
    return {
        "in_flight": found.in_flight,
        "duration_s": found.duration_s,
        "step_ms": None if found.step_s is None else found.step_s / MS,
        "kv_gb": None if found.kv_bytes is None else found.kv_bytes / GB,
    }

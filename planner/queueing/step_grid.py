"""Mean step times of an engine that decodes a given number of sequences while prompts arrive at random."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from planner.attention_pairs import window_pairs
from planner.errors import InputError
from planner.queueing.arrival_counts import none_within
from planner.queueing.traffic import Floats, Traffic
from planner.step_model import Number, StepCoefficients, StepShape, step_s

_POINTS = 18
_PREFILL_SHARE_ROUNDS = 4
_SOLVER_ROUNDS = 6
_ALMOST_FULL = 1.0 - 1e-6
_LEAST = 1e-12
_FEWEST_DECODE_STEPS = 1e-6


class ReplicaLimits(NamedTuple):
    """What bounds one replica, by the engine's names.

    max_num_seqs : sequences that run at once [seq]
    max_num_batched_tokens : tokens of one step [token], at least 2
    kv_tokens : tokens that the KV cache holds [token]
    block_size : tokens of a KV block [token]; half of one is lost at the end of each sequence
    async_scheduling : a step is decided while the one before it runs, so that an arrival waits one step longer
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    kv_tokens: float
    block_size: int = 16
    async_scheduling: bool = True


def check_limits(limits: ReplicaLimits) -> ReplicaLimits:
    """Return the limits, or raise InputError for a value that no engine accepts."""
    least = {"max_num_seqs": 1, "max_num_batched_tokens": 2, "kv_tokens": 1, "block_size": 1}
    for field, bound in least.items():
        value = getattr(limits, field)
        if not np.isfinite(value) or value < bound:
            raise InputError(f"engine.{field}", value, f"must be finite and at least {bound}", "Give the engine's own setting")
    return limits


class Prefill(NamedTuple):
    """Prefill of one step: new tokens, their query-key pairs, and the prompts that they belong to; arrays or numbers."""

    tokens: Number
    pairs: Number
    prompts: Number


def shape_of(traffic: Traffic, c: StepCoefficients, decode: Number, prefill: Prefill) -> StepShape:
    """Return a step with so many decoding sequences of mean context beside some prefill."""
    decoding, sequences = traffic.decode, decode + prefill.prompts
    window = c.window_tokens
    seen = float(decoding.contexts.mean_of(np.minimum(decoding.contexts.tokens, window))) if window else 0.0
    return StepShape(
        scheduled_tokens=np.maximum(decode + prefill.tokens, 1.0),
        sampled_tokens=sequences,
        sequences=sequences,
        decode_sequences=decode,
        decode_context_tokens=decode * decoding.context_mean,
        decode_window_tokens=decode * seen,
        prefill_pairs=prefill.pairs,
        prefill_window_pairs=prefill.pairs * window_share(traffic, window),
    )


@dataclass(frozen=True, slots=True, eq=False)
class StepGrid:
    """Step times by the number of decoding sequences; arrays run over the grid, or over the grid and the prompt bins.

    decode : decoding sequences of each grid point [seq]
    left : token budget that decode leaves to prefill [token]
    base_s, full_s : step without prefill, and with prefill in all that is left [s]
    full_chunks, rest : chunks of a whole budget that a prompt needs, and tokens of its last chunk, by bin [1], [token]
    chunks_mean : mean chunks of a prompt that is alone [1]
    token_s : time of one more prompt token in a full step, its attention apart [s/token]
    pair_s : time of one query-key pair of prefill attention [s]
    slots : sequences that the tighter of max_num_seqs, KV cache and token budget admits [seq]
    kv_binds : the KV cache is the tightest of them
    """

    traffic: Traffic
    limits: ReplicaLimits
    coefficients: StepCoefficients
    decode: Floats
    left: Floats
    base_s: Floats
    full_s: Floats
    full_chunks: Floats
    rest: Floats
    chunks_mean: Floats
    token_s: Floats
    pair_s: float
    slots: float
    kv_binds: bool

    @property
    def decode_steps(self) -> float:
        """Mean decode steps of a request [step], kept above 0 for streams of one-token answers."""
        return max(self.traffic.decode.steps_mean, _FEWEST_DECODE_STEPS)

    def step_s(self, decode: Number, prefill_tokens: Number, pairs: Number, prompts: Number) -> Number:
        """Return the time of a step with `prompts` chunks that hold `prefill_tokens` and `pairs` in all [s]."""
        return step_s(shape_of(self.traffic, self.coefficients, decode, Prefill(prefill_tokens, pairs, prompts)), self.coefficients)

    def at(self, values: Floats, decode: float) -> float:
        """Return a grid quantity at any number of decoding sequences, by interpolation."""
        return float(np.interp(decode, self.decode, values))


def step_grid(traffic: Traffic, limits: ReplicaLimits, coefficients: StepCoefficients) -> StepGrid:
    """Build the grid, from no decoding sequence to the most that the limits admit."""
    slots, kv_binds = slots_of(traffic, check_limits(limits))
    decode = np.unique(np.concatenate([[0.0], np.geomspace(1.0, max(slots, 1.0 + 1e-6), _POINTS)]))
    decode = decode[decode <= limits.max_num_batched_tokens - 1.0]
    left = limits.max_num_batched_tokens - decode
    full_chunks = np.floor(traffic.prompts.tokens / left[:, None])
    rest = traffic.prompts.tokens - full_chunks * left[:, None]
    chunks_mean = traffic.prompts.mean_of(full_chunks + (rest > 0.0))
    pair_s = coefficients.prefill_s_per_pair + coefficients.prefill_s_per_window_pair * window_share(
        traffic, coefficients.window_tokens
    )
    empty = np.zeros_like(decode)
    grid = StepGrid(
        traffic, limits, coefficients, decode, left, empty, empty, full_chunks, rest, chunks_mean, empty, pair_s, slots, kv_binds
    )
    pairs_per_token = traffic.work.r / traffic.work.q
    full_s = np.asarray(grid.step_s(decode, left, left * pairs_per_token, 1.0))
    half_s = np.asarray(grid.step_s(decode, left / 2.0, left / 2.0 * pairs_per_token, 1.0))
    return StepGrid(
        traffic,
        limits,
        coefficients,
        decode,
        left,
        np.asarray(grid.step_s(decode, 0.0, 0.0, 0.0)),
        full_s,
        full_chunks,
        rest,
        chunks_mean,
        (full_s - half_s) / (left / 2.0) - pair_s * pairs_per_token,
        pair_s,
        slots,
        kv_binds,
    )


def mean_steps(grid: StepGrid, arrivals_per_step: Floats, step_s: Floats | None = None) -> tuple[Floats, Floats]:
    """Return the mean step and the mean step that carries prefill, when so many requests arrive in a mean step [s].

    arrivals_per_step : requests that arrive in one mean step, by grid point [request]
    step_s : the mean step itself [s]; given, it lets long steps gather more arrivals than short ones; None: all steps alike

    A step carries prefill with a share f between two limits: alone, each prompt takes its own steps; together they fill the budget
    and the fluid share u = prompt tokens arriving ÷ budget left is reached. f = 1 - (1-u)·P(no chunk arrives). With steps of two
    lengths, f solves the balance of a two-state chain: next step plain with P(none | this step's length). Prefill steps then hold
    what arrives, spread like single prompts around its mean, and the step model's own bends (weights hidden behind FLOPs or not)
    are kept.
    """
    traffic = grid.traffic
    work, left, chunks = traffic.work, grid.left, grid.chunks_mean
    arriving = np.minimum(arrivals_per_step, left / work.q * _ALMOST_FULL)
    fluid = arriving * work.q / left
    bursts = np.maximum(arriving * chunks - fluid, 0.0)
    share = 1.0 - (1.0 - fluid) * none_within(bursts, traffic.arrival_cv2)
    if step_s is not None:
        share = _two_state_share(grid, share, fluid, bursts, step_s)
    some = np.maximum(share, _LEAST)
    pairs = arriving * work.r / some
    more = np.maximum(arriving * work.q / some - work.q / chunks, 0.0)
    last_s = grid.step_s(grid.decode[:, None], grid.rest + more[:, None], pairs[:, None], 1.0)
    full_s = np.asarray(grid.step_s(grid.decode, left + more, pairs, 1.0))
    last = traffic.prompts.mean_of(np.where(grid.rest > 0.0, last_s, 0.0))
    mixed = (last + full_s * traffic.prompts.mean_of(grid.full_chunks)) / chunks
    return (1.0 - share) * grid.base_s + share * mixed, mixed


def _two_state_share(grid: StepGrid, share: Floats, fluid: Floats, bursts: Floats, step_s: Floats) -> Floats:
    """Return the share of steps with prefill when a step of either length decides what the next one carries [1]."""
    cv2 = grid.traffic.arrival_cv2
    after_plain = none_within(bursts * grid.base_s / step_s, cv2)
    for _ in range(_PREFILL_SHARE_ROUNDS):
        mixed_s = (step_s - (1.0 - share) * grid.base_s) / np.maximum(share, _LEAST)
        after_mixed = none_within(bursts * np.maximum(mixed_s, grid.base_s) / step_s, cv2)
        chain = (1.0 - after_plain) / np.maximum(1.0 - after_plain + after_mixed, _LEAST)
        share = np.maximum(1.0 - (1.0 - fluid) * (1.0 - chain), fluid)
    return share


def solve_steps(grid: StepGrid, rate_rps: float) -> tuple[Floats, Floats]:
    """Return the mean step and the mean prefill step at an arrival rate [s], by grid point.

    A longer step gathers more prompts, which lengthen it: the mean step T solves T = mean_steps(rate·T). The right side grows more
    slowly than T once the budget can carry the prompts, so that one root lies between the plain and the full step; where it can't,
    every step is full. False position with Illinois' rule keeps the root bracketed.
    """
    low, high = grid.base_s.copy(), grid.full_s.copy()
    full = rate_rps * grid.full_s * grid.traffic.work.q >= grid.left
    excess_low = mean_steps(grid, rate_rps * low, low)[0] - low
    excess_high = mean_steps(grid, rate_rps * high, high)[0] - high
    side = np.zeros_like(low)
    for _ in range(_SOLVER_ROUNDS):
        gap = excess_low - excess_high
        guess = np.where(gap > 0.0, (low * -excess_high + high * excess_low) / np.where(gap > 0.0, gap, 1.0), low)
        guess = np.clip(guess, low, high)
        excess = mean_steps(grid, rate_rps * guess, guess)[0] - guess
        above = excess > 0.0
        excess_high = np.where(above & (side > 0.0), excess_high / 2.0, excess_high)
        excess_low = np.where(~above & (side < 0.0), excess_low / 2.0, excess_low)
        low, excess_low = np.where(above, guess, low), np.where(above, excess, excess_low)
        high, excess_high = np.where(above, high, guess), np.where(above, excess_high, excess)
        side = np.where(above, 1.0, -1.0)
    steps = np.where(full, grid.full_s, (low + high) / 2.0)
    return steps, np.where(full, grid.full_s, mean_steps(grid, rate_rps * steps, steps)[1])


def slots_of(traffic: Traffic, limits: ReplicaLimits) -> tuple[float, bool]:
    """Return how many sequences run at once, and whether the KV cache decides it.

    The sequence that waits for room leaves a gap: on average half of a prompt that is met in proportion to its length.
    """
    gap = traffic.work.qq / (2.0 * traffic.work.q)
    by_kv = max(limits.kv_tokens - gap, 0.0) / (traffic.decode.context_mean + limits.block_size / 2.0)
    others = min(limits.max_num_seqs, limits.max_num_batched_tokens - 1)
    return min(by_kv, float(others)), by_kv < others


def window_share(traffic: Traffic, window_tokens: float) -> float:
    """Share of the causal pairs that lie within a sliding window [1]; 0 without one."""
    if not window_tokens:
        return 0.0
    new, pairs = traffic.prompts.tokens, traffic.prompts.pairs
    past = np.maximum(pairs / new - new / 2.0, 0.0)
    return float(traffic.prompts.mean_of(window_pairs(past, new, window_tokens)) / traffic.prompts.mean_of(pairs))

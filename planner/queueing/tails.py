"""99th percentiles of TTFT and TPOT from means and variances: mixtures of gamma laws over prompts, outputs and occupancy."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from planner.queueing.arrival_counts import none_within
from planner.queueing.occupancy import Occupancy
from planner.queueing.prefill_delay import DecodeEcho, PrefillWait, PrefillWork, StepSpread
from planner.queueing.step_grid import StepGrid
from planner.queueing.traffic import Floats

_HALVINGS = 14
_DOUBLINGS = 200
# Gauss and Hermite's three nodes: they integrate a normal law exactly up to the fifth power.
_NODES = np.array([-math.sqrt(3.0), 0.0, math.sqrt(3.0)])
_NODE_WEIGHTS = np.array([1.0 / 6.0, 2.0 / 3.0, 1.0 / 6.0])
_SMALLEST_CV2 = 1e-3
_LEAST = 1e-30


class LoadedReplica(NamedTuple):
    """A replica's steady state at one arrival rate: what the percentiles are taken of."""

    grid: StepGrid
    work: PrefillWork
    rate_rps: float
    spread: StepSpread
    echo: DecodeEcho
    occupied: Occupancy
    waits: tuple[PrefillWait, ...]


def quantile(above: Callable[[float], float], start: float, late: float) -> float:
    """Return the value that a share `late` exceeds; above : falling survival function; start : above 0, any first guess."""
    low, high = 0.0, start
    for _ in range(_DOUBLINGS):
        if above(high) <= late:
            break
        low, high = high, 2.0 * high
    for _ in range(_HALVINGS):
        middle = (low + high) / 2.0
        low, high = (middle, high) if above(middle) > late else (low, middle)
    return high


def ttft_mean_s(state: LoadedReplica) -> float:
    """Return the mean TTFT [s], in the slower view of the prefill queue."""
    occupied = state.occupied
    own_s = occupied.mean(state.work.own_mean_s)
    return occupied.wait_share * occupied.wait_s + own_s + max(occupied.mean(wait.mean_s) for wait in state.waits)


def ttft_quantile_s(state: LoadedReplica, probability: float) -> float:
    """Return a percentile of TTFT [s], in the slower view of the prefill queue."""
    return max(_ttft_quantile_s(state, wait, probability) for wait in state.waits)


def _ttft_quantile_s(state: LoadedReplica, wait: PrefillWait, probability: float) -> float:
    """Return a percentile of TTFT in one view [s].

    TTFT is the prompt's own prefill, taken bin by bin, plus a wait with a gamma law of the right mean and variance; those that find
    no slot wait an exponential time more.
    """
    prompts, occupied, work = state.grid.traffic.prompts, state.occupied, state.work
    own_s = occupied.weights @ work.own_s
    mean_s = occupied.mean(wait.mean_s)
    variance = occupied.mean(wait.variance_s2) + occupied.variance(wait.mean_s + work.own_mean_s)
    share = occupied.wait_share
    longer_s, longer_variance = mean_s + occupied.wait_s, variance + occupied.wait_s**2

    def above(value_s: float) -> float:
        left = np.maximum(value_s - own_s, 0.0)
        at_once = prompts.weights @ _gamma_above(left, mean_s, variance)
        after = prompts.weights @ _gamma_above(left, longer_s, longer_variance) if share > 0.0 else 0.0
        return float((1.0 - share) * at_once + share * after)

    return quantile(above, mean_s + float(own_s @ prompts.weights), 1.0 - probability)


def tpot_mean_s(state: LoadedReplica) -> float:
    """Return the mean over requests of the time per output token after the first [s]."""
    outputs = state.grid.traffic.decode.outputs
    steps = np.maximum(outputs.tokens - 1.0, 1.0)
    by_grid = state.spread.mean_s[:, None] + state.echo.mean_s / steps
    return float(outputs.mean_of(state.occupied.arrival_weights @ by_grid))


def tpot_quantile_s(state: LoadedReplica, probability: float) -> float:
    """Return a percentile over requests of the time per output token after the first [s].

    A request of x decode steps takes x plain steps plus the prefill of all prompts that arrive meanwhile: a busy period begun by
    x·plain, with mean x·plain/(1-e) and variance x·plain·λ·E[work²]·g³, where g = (1-e^x)/(1-e) counts the generations of arrivals
    that x steps leave time for (half as many under asynchronous scheduling). With the chance that none arrives its TPOT is the
    plain step; else the excess has a gamma law. The occupancy enters by three nodes, as it hardly changes during one request; no
    TPOT exceeds a full step.
    """
    grid, rate_rps, spread, echo, occupied = state.grid, state.rate_rps, state.spread, state.echo, state.occupied
    outputs = grid.traffic.decode.outputs
    steps = np.maximum(outputs.tokens - 1.0, 1.0)
    mean_s = float(occupied.arrival_weights @ spread.mean_s)
    deviation = math.sqrt(max(float(occupied.arrival_weights @ spread.mean_s**2) - mean_s**2, 0.0))
    rising = np.maximum.accumulate(spread.mean_s)
    nodes = np.clip(mean_s + _NODES * deviation, rising[0], rising[-1])
    work = grid.traffic.work
    first, second = work.first(grid.token_s, grid.pair_s), work.second(grid.token_s, grid.pair_s)
    noise = rate_rps * (second + (spread.clustered - 1.0) * first**2)
    by_grid = (grid.base_s, spread.prefill_share, echo.exposed_s, echo.none, noise)
    plain, share, exposed, before, noise = (np.interp(nodes, rising, values)[:, None] for values in by_grid)
    extra = np.array([np.interp(nodes, rising, column) for column in echo.mean_s.T]).T
    extra_square = np.array([np.interp(nodes, rising, column) for column in echo.square_s2.T]).T
    excess = np.maximum(nodes[:, None] - plain, 0.0) + extra / steps
    lag = 1.0 if grid.limits.async_scheduling else 0.0
    grown = ((1.0 - share ** np.ceil(steps / (1.0 + lag))) / (1.0 - share)) ** 3
    variance = plain * noise * grown / steps
    variance += (np.maximum(exposed - nodes[:, None], 0.0) * noise * grown + extra_square - extra**2) / steps**2
    alone = none_within(rate_rps * plain * np.maximum(steps - 1.0, lag), grid.traffic.arrival_cv2)
    none = np.minimum(np.where(steps > lag, before, 1.0) * alone, 1.0 - 1e-9)
    some = excess / (1.0 - none)
    some_variance = np.maximum((variance + excess**2) / (1.0 - none) - some**2, _SMALLEST_CV2 * some**2)

    def above(value_s: float) -> float:
        beyond = (1.0 - none) * _gamma_above(np.maximum(value_s - plain, 0.0), some, some_variance)
        return float(_NODE_WEIGHTS @ outputs.mean_of(np.where(value_s > plain, beyond, 1.0)))

    full_s = float(occupied.weights @ np.maximum(grid.full_s, spread.mean_s))
    slowest_s = max(full_s, float(occupied.arrival_weights @ spread.mean_s))
    return max(min(quantile(above, mean_s, 1.0 - probability), slowest_s), tpot_mean_s(state))


def _gamma_above(values: Floats, mean: float | Floats, variance: float | Floats) -> Floats:
    """Survival function of a gamma law with a mean and a variance above 0."""
    scale = np.maximum(variance, _LEAST) / np.maximum(mean, _LEAST)
    return np.asarray(special.gammaincc(mean / scale, values / scale))

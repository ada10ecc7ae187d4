"""Which job goes first in a rush: what serving small jobs first saves, whom it starves, and what of a job is known in time."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import kendalltau

from planner.analysis.explanation import Explanation
from planner.analysis.steps import require_positive
from planner.errors import InputError
from planner.units import percentage

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class RushWaits:
    """Waits in a rush, in units of the rush's own length [1].

    load : arrivals over what the engine can serve [1]
    fcfs_mean, smallest_mean : mean wait under first come, first served, and with the smallest job first
    fcfs_worst, smallest_worst : longest wait
    untouched : share of the jobs that never wait with the smallest first [1]
    gain : first mean over second; None where neither waits
    """

    load: float
    fcfs_mean: float
    smallest_mean: float
    fcfs_worst: float
    smallest_worst: float
    untouched: float
    gain: float | None
    explanation: Explanation


def rush_waits(work: npt.ArrayLike, load: float) -> RushWaits:
    """Return the waits of jobs that arrive evenly at `load` times capacity for a while, and then no more.

    work : of each job, in any unit, above 0; load : arriving work over the engine's capacity [1]

    A fluid: the engine does one unit of work in a unit of time, and nobody waits below capacity. First come: a job that arrives at
    t of the rush waits (load - 1)·t. Smallest first: with F the share of all work in jobs no larger than this one, load·F ≤ 1 never
    waits, and larger ones start at load·F, when all smaller ones are done. As load grows this is the burst that is there at once.
    """
    require_positive("load", load, "arrivals over capacity")
    sizes = np.sort(np.asarray(work, dtype=np.float64).ravel())
    if len(sizes) == 0 or not bool(np.isfinite(sizes).all()) or sizes[0] <= 0.0:
        raise InputError("work", len(sizes), "must hold finite figures above 0", "Give the work of each job")
    below = load * np.cumsum(sizes) / sizes.sum()
    waits = below > 1.0
    fcfs = max(load - 1.0, 0.0) / 2.0
    smallest = float(np.where(waits, below - 0.5, 0.0).mean())
    gain = fcfs / smallest if fcfs > 0.0 and smallest > 0.0 else None
    untouched = 1.0 - float(waits.mean())
    worst = load if load > 1.0 else 0.0
    return RushWaits(
        load=load,
        fcfs_mean=fcfs,
        smallest_mean=smallest,
        fcfs_worst=2.0 * fcfs,
        smallest_worst=worst,
        untouched=untouched,
        gain=gain,
        explanation=_explained(load, fcfs, smallest, untouched),
    )


def _explained(load: float, fcfs: float, smallest: float, untouched: float) -> Explanation:
    setting = "Let the client or the gateway send the job's size as its priority, with a bound on how long anyone waits."
    if load <= 1.0:
        return Explanation(
            f"At {load:g} times capacity nobody waits for long, so that the order of service changes hardly anything.",
            f"load {load:g} ≤ 1: the queue is short, whatever its order",
            "Leave it at --scheduling-policy fcfs: below capacity the order gains nothing.",
        )
    gain = f"by a factor of {fcfs / smallest:.1f}" if smallest > 0.0 else "to nothing"
    return Explanation(
        f"In a rush at {load:g} times capacity, serving the smallest job first cuts the mean wait {gain}: {percentage(untouched)} "
        "of the jobs don't wait at all, and the largest wait to the end of the rush.",
        f"first come: ({load:g} - 1) / 2 = {fcfs:.3f} of the rush; smallest first: mean of load·F - 1/2 where load·F > 1, else 0 "
        f"= {smallest:.3f} of the rush",
        setting,
    )


@dataclass(frozen=True, slots=True)
class KnownPart:
    """What is known of jobs when they arrive.

    prompt_share : share of all work that lies in prompts [1]; the outputs' part is known only when they have ended
    rank_agreement : Kendall's tau-b between prompt work and the whole job's; None where either is the same for all [1]
    """

    prompt_share: float
    rank_agreement: float | None


def known_part(prompt_work: npt.ArrayLike, output_work: npt.ArrayLike) -> KnownPart:
    """Return how much of the work is known on arrival; both : of each job, in one unit, at least 0."""
    prompt = np.asarray(prompt_work, dtype=np.float64)
    output = np.asarray(output_work, dtype=np.float64)
    if prompt.shape != output.shape or prompt.size == 0 or not (prompt.sum() + output.sum() > 0.0):
        raise InputError(
            "work", prompt.shape, "must hold one figure a job on both sides, some above 0", "Give the work of each job"
        )
    return KnownPart(float(prompt.sum() / (prompt.sum() + output.sum())), rank_agreement(prompt, prompt + output))


def rank_agreement(one: npt.ArrayLike, other: npt.ArrayLike) -> float | None:
    """Return Kendall's tau-b of two rankings, from -1 to 1; None where either ranks all alike [1].

    >>> round(rank_agreement([1.0, 2.0, 3.0], [1.0, 3.0, 2.0]), 3)
    0.333
    """
    a, b = (np.asarray(each, dtype=np.float64) for each in (one, other))
    tau = float(kendalltau(a, b).statistic)
    return tau if math.isfinite(tau) else None

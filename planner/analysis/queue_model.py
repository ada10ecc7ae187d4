"""Why p99 TTFT shoots up: the prefill of prompts as a queue, and the utilisation to plan for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.analysis.explanation import Explanation
from planner.analysis.steps import prefill_s, require_positive
from planner.errors import InputError
from planner.queueing import mg1_sojourn_quantile_s, utilisation_for_quantile
from planner.step_model import StepCoefficients
from planner.units import percentage

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PrefillService:
    """Prefill as the service of a queue: mean time [s] and squared CV [1]."""

    mean_s: float
    cv2: float


def prefill_service(prompt_tokens: npt.ArrayLike, c: StepCoefficients) -> PrefillService:
    """Return mean and squared CV of the prefill times of prompts, each in steps of its own; prompt_tokens : rows [token]."""
    tokens, counts = np.unique(np.asarray(prompt_tokens, dtype=np.float64), return_counts=True)
    if len(tokens) == 0:
        raise InputError("prompt_tokens", prompt_tokens, "must hold at least one prompt", "Give the workload's prompts")
    times = np.array([prefill_s(float(each), c) for each in tokens])
    mean = float(np.average(times, weights=counts))
    return PrefillService(mean, float(np.average((times - mean) ** 2, weights=counts)) / mean**2)


@dataclass(frozen=True, slots=True)
class PlannedUtilisation:
    """The utilisation to plan for.

    exponential : for exponential service times, M/M/1 [1]; general : for the service's own squared CV, M/G/1 [1]
    None where no load meets the target
    """

    target_s: float
    service: PrefillService
    exponential: float | None
    general: float | None
    explanation: Explanation


def planned_utilisation(
    target_s: float, service: PrefillService, probability: float = 0.99, outside_s: float = 0.0
) -> PlannedUtilisation:
    """Return the largest utilisation at which a percentile of TTFT meets a target.

    target_s : TTFT [s]; outside_s : of it, spent outside the engine [s]
    The prefill alone is the queue: decode, batching, KV admission and bursts are what the engine adds.
    """
    require_positive("target_s", target_s, "seconds")
    left_s = target_s - outside_s
    meets = left_s > 0.0
    exponential = utilisation_for_quantile(left_s, service.mean_s, 1.0, probability) if meets else None
    general = utilisation_for_quantile(left_s, service.mean_s, service.cv2, probability) if meets else None
    percentile = f"p{probability * 100:g}"
    if general is None:
        answer = f"No load meets {percentile} TTFT of {target_s:g} s: a mean prefill takes {service.mean_s * 1e3:.1f} ms."
    else:
        answer = f"The queue alone keeps {percentile} TTFT within {target_s:g} s up to {percentage(general, 1)} utilisation of "
        answer += "prefill."
    return PlannedUtilisation(
        target_s,
        service,
        exponential,
        general,
        Explanation(
            answer,
            f"1 - ln(1/{1 - probability:.2g}) · {service.mean_s * 1e3:.2f} ms · (1 + {service.cv2:.2f}) / (2 · {left_s:.4g} s)",
            scale_out(general),
        ),
    )


def scale_out(utilisation: float | None) -> str:
    """Return what to set: at which utilisation of prefill a replica is full; None where no load meets the target."""
    if utilisation is None:
        return "Shorten the prompts, raise the target or use a faster GPU."
    return (
        f"Scale out at {percentage(utilisation, 1)} utilisation of prefill, not at a share of GPU busy time, which is near 1 "
        "whenever anything decodes."
    )


@dataclass(frozen=True, slots=True, eq=False)
class TailCurve:
    """p-quantile of TTFT by utilisation: arrays of one length; exponential and general service [s]."""

    utilisation: Floats
    exponential_s: Floats
    general_s: Floats


def tail_curve(service: PrefillService, utilisations: Sequence[float], probability: float = 0.99) -> TailCurve:
    """Return a percentile of TTFT at utilisations above 0 and below 1."""
    points = np.asarray(utilisations, dtype=np.float64)
    if len(points) == 0 or not bool(((points > 0.0) & (points < 1.0)).all()):
        raise InputError("utilisations", utilisations, "must lie between 0 and 1", "Give shares such as 0.5")

    def curve(cv2: float) -> Floats:
        values = [mg1_sojourn_quantile_s(rho / service.mean_s, service.mean_s, cv2, probability) for rho in points]
        return np.array(values, dtype=np.float64)

    return TailCurve(points, curve(1.0), curve(service.cv2))

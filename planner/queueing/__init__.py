"""Queues: closed forms, and the mean-field model of an engine, which answers in milliseconds.

>>> from planner.queueing import utilisation_for_quantile
>>> round(utilisation_for_quantile(target_s=1.0, service_s=0.0635, service_cv2=1.0), 3)
0.708
"""

from planner.queueing.arrival_counts import none_within, others_within
from planner.queueing.closed_forms import (
    erlang_c,
    gg1_wait_s,
    ggc_wait_s,
    in_system,
    md1_wait_s,
    mg1_sojourn_quantile_s,
    mg1_wait_quantile_s,
    mg1_wait_s,
    mm1_wait_s,
    mmc_wait_s,
    utilisation,
    utilisation_for_quantile,
)
from planner.queueing.fluid import Floor, FluidLimit, fluid_limit, lone_floor
from planner.queueing.mean_field import MeanField, OperatingPoint, mean_field
from planner.queueing.occupancy import Bound, Saturation
from planner.queueing.rate_limit import LatencyTargets, RateLimit, largest_rate
from planner.queueing.step_grid import ReplicaLimits
from planner.queueing.traffic import Traffic, arrival_cv2_of

__all__ = [
    "Bound",
    "Floor",
    "FluidLimit",
    "LatencyTargets",
    "MeanField",
    "OperatingPoint",
    "RateLimit",
    "ReplicaLimits",
    "Saturation",
    "Traffic",
    "arrival_cv2_of",
    "erlang_c",
    "fluid_limit",
    "gg1_wait_s",
    "ggc_wait_s",
    "in_system",
    "largest_rate",
    "lone_floor",
    "md1_wait_s",
    "mean_field",
    "mg1_sojourn_quantile_s",
    "mg1_wait_quantile_s",
    "mg1_wait_s",
    "mm1_wait_s",
    "mmc_wait_s",
    "none_within",
    "others_within",
    "utilisation",
    "utilisation_for_quantile",
]

"""Fit a calibration record to measured step times.

    python -m planner.calibration.fit STEPS.csv --gpu h100-80g-sxm --engine vllm --version 0.24.0

Robust least squares on the logarithm of predicted over measured time, within physical bounds, held to the GPU's priors as firmly as
the data leave room for. The rows' own model and tensor-parallel size form groups; each group is also predicted from a fit that
hasn't seen it.
"""

from planner.calibration.fit.groups import AllReduceRows, StepGroup, predicted_s, refuse_impossible
from planner.calibration.fit.solve import FitOptions, FitResult, fit_record
from planner.calibration.fit.table import all_reduce_rows_from_csv, groups_from_csv

__all__ = [
    "AllReduceRows",
    "FitOptions",
    "FitResult",
    "StepGroup",
    "all_reduce_rows_from_csv",
    "fit_record",
    "groups_from_csv",
    "predicted_s",
    "refuse_impossible",
]

"""Fits from what users have: collectors' files, engines' logs of steps, and benchmark results with the simulator inside the fit."""

from planner.tuning.any_fit import fit_files
from planner.tuning.benchmark_fit import compare_runs, fit_benchmarks
from planner.tuning.files import UserFile, read_file
from planner.tuning.options import TuneOptions
from planner.tuning.results import CalibrationFit, ErrorPair, FitPoint, FittedValue, Tell
from planner.tuning.saving import save_own_record, saved_id
from planner.tuning.served import Bench
from planner.tuning.step_fit import StepData, fit_steps
from planner.tuning.target import Target

__all__ = [
    "Bench",
    "CalibrationFit",
    "ErrorPair",
    "FitPoint",
    "FittedValue",
    "StepData",
    "Target",
    "Tell",
    "TuneOptions",
    "UserFile",
    "compare_runs",
    "fit_benchmarks",
    "fit_files",
    "fit_steps",
    "read_file",
    "save_own_record",
    "saved_id",
]

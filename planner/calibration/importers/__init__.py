"""Reads what users have: results of benchmark tools and engines' logs of single steps. What is read is checked, never trusted."""

from planner.calibration.importers.benchmark import KNOWN, read_benchmark
from planner.calibration.importers.run import BenchmarkRun, RequestDetail, Spread
from planner.calibration.importers.step_log import LoggedStep, StepLog, read_step_log

__all__ = ["KNOWN", "BenchmarkRun", "LoggedStep", "RequestDetail", "Spread", "StepLog", "read_benchmark", "read_step_log"]

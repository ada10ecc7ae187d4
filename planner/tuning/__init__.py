"""Fits from what users have: collectors' files, engines' logs of steps, and benchmark results with the simulator inside the fit."""

from planner.tuning.files import UserFile, read_file
from planner.tuning.results import CalibrationFit, ErrorPair, FitPoint, FittedValue, Tell
from planner.tuning.target import Target

__all__ = ["CalibrationFit", "ErrorPair", "FitPoint", "FittedValue", "Target", "Tell", "UserFile", "read_file"]

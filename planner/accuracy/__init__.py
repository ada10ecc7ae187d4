"""How far predictions lie from measured serving results, table by table and group by group.

>>> from planner.accuracy import is_held_out
>>> is_held_out(("h100-80g-sxm", "vllm", "llama-3.1-8b-instruct"))
False
"""

from planner.accuracy.closed_loop import ClosedLoopLoad, ClosedLoopRun, Policy, serve_closed_loop
from planner.accuracy.predict import Figures, predict
from planner.accuracy.recipes import Recipe, recipe_for, recipes
from planner.accuracy.report import AccuracyReport, ErrorSummary, RowResult, accuracy_report, is_held_out, report_of
from planner.accuracy.setting import NotPredictedError, Records, Setting, setting_of
from planner.accuracy.shipped import ShippedAccuracy, ShippedSteps, shipped_accuracy, shipped_steps

__all__ = [
    "AccuracyReport",
    "ClosedLoopLoad",
    "ClosedLoopRun",
    "ErrorSummary",
    "Figures",
    "NotPredictedError",
    "Policy",
    "Recipe",
    "Records",
    "RowResult",
    "Setting",
    "ShippedAccuracy",
    "ShippedSteps",
    "accuracy_report",
    "is_held_out",
    "predict",
    "recipe_for",
    "recipes",
    "report_of",
    "serve_closed_loop",
    "setting_of",
    "shipped_accuracy",
    "shipped_steps",
]

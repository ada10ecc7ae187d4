"""Replay: one replica of a plan serves requests one by one, with the plan's settings and with settings of one's own.

>>> from planner.plans import plan
>>> from planner.replay import ReplaySettings, replay
>>> from planner.scenario import scenario_from_dict
>>> answer = plan(scenario_from_dict({"hardware": {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}}))
>>> replay(answer, ReplaySettings(requests=500)).shown.result.verdict
'stable'
"""

from planner.replay.compare import Difference, differences
from planner.replay.run import Outcome, Replay, planned_rate_rps, replay, replayed_candidate
from planner.replay.sentence import sentence_of
from planner.replay.settings import MAX_REQUESTS, ReplaySettings, settings_from_dict
from planner.replay.setup import Setup, can_replay_recorded
from planner.replay.step_log import step_log_document
from planner.replay.window import LONGEST_STEP, MAX_STEPS, StepWindow, step_window

__all__ = [
    "LONGEST_STEP",
    "MAX_REQUESTS",
    "MAX_STEPS",
    "Difference",
    "Outcome",
    "Replay",
    "ReplaySettings",
    "Setup",
    "StepWindow",
    "can_replay_recorded",
    "differences",
    "planned_rate_rps",
    "replay",
    "replayed_candidate",
    "sentence_of",
    "settings_from_dict",
    "step_log_document",
    "step_window",
]

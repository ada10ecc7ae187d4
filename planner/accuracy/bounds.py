"""Physical bounds on a measured row: figures that no hardware can show are named instead of compared."""

from planner.accuracy.setting import Setting
from planner.step_coefficients import coefficients, peak_rates, work_of
from planner.step_model import StepShape, gpu_s

SLACK = 0.9
"""Lengths are nominal and clocks boost: a figure must lie a tenth below the bound before it counts as impossible."""

UNIT_FACTOR = 100.0
"""A figure so many times larger than predicted is taken for one in another unit."""


def least_tpot_s(setting: Setting) -> float:
    """Return the time per output token that data-sheet rates allow at the row's load [s].

    In a closed loop of n requests the share of time that a request decodes is known from the measured figures themselves, so that
    n·D/(TTFT + D) sequences share a step, each with its prompt in the cache; otherwise a step of one sequence.
    """
    measured = setting.measured
    tpot_s = measured.tpot_mean_s or measured.tpot_s or measured.tpot_p50_s
    ttft_s = measured.ttft_mean_s or measured.ttft_s or measured.ttft_p50_s
    together = 1.0
    if measured.scenario == "closed-loop" and measured.concurrency and tpot_s and ttft_s:
        decode_s = tpot_s * max(measured.output_tokens - 1.0, 1.0)
        together = max(1.0, measured.concurrency / setting.replicas * decode_s / (ttft_s + decode_s))
    context = together * measured.prompt_tokens * measured.shortest_share
    c = coefficients(work_of(setting.deployment), peak_rates(setting.deployment))
    window = min(context, together * c.window_tokens)
    shape = StepShape(together, together, together, together, context, window)
    return float(gpu_s(shape, c))


def least_ttft_s(setting: Setting) -> float:
    """Return the time to the first token of one prompt at data-sheet rates [s]."""
    measured = setting.measured
    tokens = measured.prompt_tokens * measured.shortest_share
    c = coefficients(work_of(setting.deployment), peak_rates(setting.deployment))
    windowed = tokens * min(c.window_tokens, tokens / 2.0)
    return float(gpu_s(StepShape(tokens, 1.0, 1.0, 0.0, 0.0, 0.0, tokens * tokens / 2.0, windowed), c))


def beats_data_sheet(setting: Setting) -> bool:
    """Say whether a measured latency is shorter than physics allows."""
    measured = setting.measured
    tpot_s = measured.tpot_p50_s or measured.tpot_mean_s or measured.tpot_s
    ttft_s = measured.ttft_p50_s or measured.ttft_mean_s or measured.ttft_s
    too_fast = tpot_s is not None and tpot_s < SLACK * least_tpot_s(setting)
    single = measured.length_kind in {"fixed", "uniform"}
    return too_fast or (single and ttft_s is not None and ttft_s < SLACK * least_ttft_s(setting))

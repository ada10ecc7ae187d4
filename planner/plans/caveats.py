"""What to doubt of a plan that its figures don't show: own records, folders and files not read, precisions of experts, layouts."""

from collections.abc import Sequence

from planner import paths
from planner.calibration.records import CalibrationRecord, own_record_ids
from planner.expert_share import PRECISION_DOUBT
from planner.hardware import survey_gpus, survey_nodes
from planner.models import ModelSpec
from planner.plans.results import Candidate
from planner.scenario import Scenario

_POOR_PCT = 10.0
_LAYOUT_DOUBT = (
    "Only tensor parallelism is searched, not DP attention with expert parallelism, which engines offer for such models. Tensor "
    "parallelism keeps a copy of the latent KV cache on every GPU of a replica. DP attention keeps each sequence on one of them: a "
    "replica of N GPUs holds about N times the sequences, for an all-to-all in each layer with experts. Where the KV cache or TPOT "
    "binds it may need fewer GPUs than planned."
)
"""What a plan says of a mixture of experts with latent attention. vLLM's documentation, "Data Parallel Deployment", names both as
the layout for such models; that each GPU stores the whole latent is the rule of `models.arithmetic`."""


def caveats_of(scenario: Scenario, model: ModelSpec, candidates: Sequence[Candidate]) -> list[str]:
    """Return what to know of what a plan rests on, whether or not it found an answer; candidates : all that were tried."""
    found = []
    fault = paths.home_fault()
    if fault is not None:
        found.append(fault)
    if not scenario.hardware.gpu_ids:
        found.extend(f"A GPU is left out of the comparison. {error}" for error in survey_gpus().errors)
    found.extend(f"A machine's file isn't read. {error}" for error in survey_nodes().errors)
    own = own_record_ids()
    records = {each.record.id: (each.gpu_name, each.record) for each in candidates if each.record is not None}
    for record_id, (gpu_name, record) in records.items():
        if record_id in own:
            found.append(_own_record(gpu_name, record, named=record_id == scenario.engine.calibration_id))
    if model.is_moe:
        found.append(PRECISION_DOUBT)
        if any(group.kind == "mla" for group in model.groups):
            found.append(_LAYOUT_DOUBT)
    return found


def _own_record(gpu_name: str, record: CalibrationRecord, *, named: bool) -> str:
    why = "" if named else ", which this scenario doesn't name"
    return f"Step times of {gpu_name} are from your own record {record.id}{why}: {record_errors(record)}."


def record_errors(record: CalibrationRecord) -> str:
    """Return how far a record is off what it was fitted to, in words: the worst group's median, held out and in the fit."""
    groups = () if record.evidence is None else record.evidence.groups
    if not groups:
        return "no measured time stands behind it"
    fitted = max(group.median_abs_pct for group in groups)
    held = [group.held_out_median_abs_pct for group in groups if group.held_out_median_abs_pct is not None]
    text = f"it misses what its fit hadn't seen by {_pct(max(held))} (median)" if held else "nothing was left out to test its fit"
    if fitted > _POOR_PCT:
        return f"{text}, and its own measurements by {_pct(fitted)}: check GPU, model and settings before you rely on it"
    return (
        f"{text}, its own measurements by {_pct(fitted)}"
        if held
        else f"{text}, which misses its own measurements by {_pct(fitted)}"
    )


def _pct(value: float) -> str:
    return f"{value:.0f} %" if value >= _POOR_PCT else f"{value:.2g} %"

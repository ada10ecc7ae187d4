"""What "Does speculation pay?" shows: rows of its charts and tables, and its sentences."""

import json

import pandas as pd

from planner.analysis.case import Case
from planner.analysis.speculation_case import LAUNCH_SOURCE, CaseSpeculation, Method
from planner.analysis.speculation_simulated import SimulatedSpeculation
from planner.errors import InputError
from planner.ui import reading
from planner.ui.charts.base import Row
from planner.ui.charts.curves import Curve, Mark, Rule
from planner.ui.colours import ACCENT, GREY, HUES, STEPS, WARNING, on_step
from planner.ui.views.questions import Beside
from planner.ui.words import figure, percent, plural, seconds

METHODS: dict[str, Method] = {
    "n-gram (free)": "ngram",
    "EAGLE or MTP head (one layer)": "eagle3",
    "draft model, 1/8 of the target": "draft_model",
}
_MOST_POSITIONS = 16
_LOSS = "#F3C9AE"
_HEAVY_LOSS = "#E08E5B"
_HEAVY = 0.8
_ON_LOSS = "#1B2733"
_SHOWN_ROWS = 12
_RULE_LOW, _RULE_HIGH = 1.5, 500.0
_NEAR = 0.3


def read_acceptance(field: str, text: str) -> tuple[float, ...]:
    """Read one acceptance, or one for each position, those left out being as the last.

    >>> read_acceptance("Acceptance", "0.7"), read_acceptance("Acceptance", "80%, 0.6")
    ((0.7,), (0.8, 0.6))
    """
    parts = [part for part in text.replace(";", ",").split(",") if part.strip()]
    if not 1 <= len(parts) <= _MOST_POSITIONS:
        raise InputError(field, text, "must be one share or one for each position", "Write it like 0.7 or 0.8, 0.7, 0.5")
    shares = tuple(reading.share(field, part.strip()) for part in parts)
    for share in shares:
        if not 0.0 <= share <= 1.0:
            raise InputError(field, text, "must be shares between 0 and 1", "Write it like 0.7 or 0.8, 0.7, 0.5")
    return shares


def by_position(shares: tuple[float, ...], drafts: int) -> tuple[float, ...]:
    """Return one acceptance for each of K positions; the last one given holds for those after it.

    >>> by_position((0.8, 0.6), 4)
    (0.8, 0.6, 0.6, 0.6)
    """
    return tuple(shares[min(position, len(shares) - 1)] for position in range(drafts))


def speedup_curves(found: CaseSpeculation, run: SimulatedSpeculation | None) -> list[Curve]:
    """Return the speed-up by batch: decode alone, with the best K, with prefill in the same steps, and simulated."""
    curves = [
        Curve("best K of each batch", found.best, GREY, dashed=True, name_at=0.7, name_place="above right"),
        Curve("decode alone", found.alone, ACCENT, name_at=1.0, name_place="below left"),
        Curve("with prefill in the same steps", found.together, HUES[2], name_at=0.45, name_place="below left"),
    ]
    if run is not None:
        dots = [(float(each.batch), each.speedup) for each in run.by_batch]
        curves.append(Curve("simulated", dots, WARNING, dots=True, name_at=0.0, name_place="below left"))
    return curves


def speedup_rules(found: CaseSpeculation) -> list[Rule]:
    """Return the break-even, where the captured CUDA graphs end, and where the token budget cuts drafts."""
    graphs, budget = found.launch.sequences, found.budget_sequences
    upright = {graphs: f"CUDA graphs end at {graphs:,}", budget: f"the budget cuts drafts past {budget:,}"}
    if abs(graphs - budget) < _NEAR * graphs:
        upright = {graphs: f"CUDA graphs and budget end at {graphs:,}"}
    rules = [Rule("y", 1.0, "break-even")]
    return rules + [Rule("x", float(at), label) for at, label in upright.items() if _RULE_LOW < at < _RULE_HIGH]


def speedup_marks(found: CaseSpeculation) -> list[Mark]:
    """Return the batch that was asked, on the curve of decode alone."""
    return [Mark(float(found.asked.batch), found.at_batch, f"{figure(found.at_batch)}× at {found.asked.batch:,}", ACCENT)]


def speedup_title(found: CaseSpeculation) -> str:
    """Return the finding of the chart."""
    k = plural(found.rule.draft_tokens, "draft")
    if found.losing is None:
        return f"{k}: decode gains {figure(found.at_one)} times at batch 1 and never loses up to 1,024 sequences"
    if found.losing == 1:
        return f"{k} lose at every batch: making them costs more than they bring"
    return f"{k}: decode gains {figure(found.at_one)} times at batch 1 and loses from {found.losing:,} sequences"


def map_rows(found: CaseSpeculation) -> list[Row]:
    """Return the cells of the map: blue steps for gains, orange for losses."""
    largest = max(cell.speedup for cell in found.cells)
    nearest = min({cell.acceptance for cell in found.cells}, key=lambda each: abs(each - found.rule.acceptance[0]))
    rows: list[Row] = []
    for cell in found.cells:
        gains = cell.speedup >= 1.0
        step = min(int((cell.speedup - 1.0) / max(largest - 1.0, 1e-9) * len(STEPS)), len(STEPS) - 1) if gains else 0
        loss = _HEAVY_LOSS if cell.speedup < _HEAVY else _LOSS
        rows.append(
            {
                "batch": cell.batch,
                "batch_text": f"{cell.batch:,}",
                "acceptance": f"{cell.acceptance:.1f}",
                "label": f"{cell.speedup:.2f}",
                "colour": STEPS[step] if gains else loss,
                "ink": on_step(step) if gains else _ON_LOSS,
                "asked": cell.batch == found.asked.batch and cell.acceptance == nearest,
                "speedup": f"{cell.speedup:.3f} times",
                "best": f"K = {cell.best_drafts}",
            }
        )
    return rows


def map_title(found: CaseSpeculation) -> str:
    """Return the finding of the map."""
    batch = found.asked.batch
    gains = [cell.acceptance for cell in found.cells if cell.batch == batch and cell.speedup >= 1.0]
    if not gains:
        return f"At {batch:,} sequences {plural(found.rule.draft_tokens, 'draft')} gain at no acceptance up to 0.9"
    return f"At {batch:,} sequences {plural(found.rule.draft_tokens, 'draft')} gain from an acceptance of {min(gains):.1f} on"


def speculation_rows(found: CaseSpeculation, run: SimulatedSpeculation | None) -> tuple[Beside, ...]:
    """Return the closed forms beside the simulated runs."""
    batch, k = found.asked.batch, found.rule.draft_tokens
    asked = None if run is None else run.asked
    dynamic = None if run is None or run.dynamic is None else f"{run.dynamic.speedup:.3f}×"
    rows = batch * (1 + k)
    return (
        Beside(
            "Tokens a verification yields",
            f"{found.tokens:.3f}",
            None if run is None else f"{run.tokens_a_row:.3f}",
            "Exact in both; the run draws each draft's fate, so that they differ by chance.",
        ),
        Beside(
            f"Speed-up at {batch:,} sequences, decode alone",
            f"{found.at_batch:.3f}×",
            None,
            "A served engine has no such steps for long: the requests that end are followed by others' prefill.",
        ),
        Beside(
            f"Speed-up at {batch:,} sequences, prefill in the same steps",
            f"{found.shared:.3f}×",
            None if asked is None else f"{asked.speedup:.3f}×",
            "The formula lets prompts start at random, one step like another. Equal outputs end together and their successors' "
            "prompts fill steps of their own, which leaves decode alone and gains more. Near a full budget prompts wait for room, "
            "and fewer sequences decode than the formula says.",
        ),
        Beside(
            "The same with the best K of each batch",
            f"{found.best_shared:.3f}×",
            dynamic,
            "The best K is chosen for steps without prefill. In full steps a token's FLOPs are what counts, so that fewer drafts "
            "than that can be better still.",
        ),
        Beside(
            "Tokens/s with drafts",
            figure(found.with_drafts.tokens_per_s),
            None if asked is None else figure(asked.tokens_per_s),
        ),
        Beside(
            "Token budget that drafts and decode take",
            f"{rows:,} of {found.load.budget_tokens:,}",
            None if run is None else f"at most {run.most_scheduled_tokens:,} scheduled",
            f"Each sequence takes 1 + K of the budget, which {found.budget_sequences:,} fill; {_room(found)}",
        ),
        Beside(
            "KV blocks kept for rejected drafts, each sequence",
            f"at most {found.kept_blocks}",
            None if run is None else f"at most {run.stale_blocks}",
            "A rejection lowers what is computed and returns no block: the next tokens fill it.",
        ),
    )


def _room(found: CaseSpeculation) -> str:
    if found.with_drafts.decoding < found.asked.batch * (1.0 - 1e-9):
        return (
            f"here prefill needs so much of it that only {figure(found.with_drafts.decoding)} sequences decode at a time, against "
            f"{figure(found.plain.decoding)} without drafts."
        )
    share = found.with_drafts.prefill_tokens / found.with_drafts.room_tokens
    return f"prefill takes {percent(share)} of what is left."


def rollback_frame(run: SimulatedSpeculation) -> pd.DataFrame:
    """Return the first verifications of one request as a table."""
    rows = run.watched[:_SHOWN_ROWS]
    return pd.DataFrame(
        {
            "Computed before": [row.context for row in rows],
            "Drafts": [row.drafts for row in rows],
            "Accepted": [row.accepted for row in rows],
            "Rejected, taken back": [row.drafts - row.accepted for row in rows],
            "Computed after": [row.computed for row in rows],
            "Blocks held": [row.blocks for row in rows],
            "Blocks filled": [row.needed for row in rows],
        }
    )


def speculation_why(found: CaseSpeculation) -> tuple[list[str], list[str]]:
    """Return the derivation with the numbers put in, and what it rests on."""
    batch, launch, rows = found.asked.batch, found.launch, 1 + found.rule.draft_tokens
    formulas = [
        found.explanation.formula,
        (
            f"speed-up = tokens a step × plain step / (verification + drafting) = {found.at_batch:.3f} at {batch:,} sequences of "
            f"{figure(found.load.context_tokens)} tokens"
        ),
        (
            f"decoders = min({batch:,}, budget / (1 + K + E × prompt / output)) = {figure(found.with_drafts.decoding)}; "
            f"without drafts {figure(found.plain.decoding)}"
        ),
        (
            f"verified tokens = {batch:,} × (1 + K) = {batch * rows:,}; graphs end at {launch.sequences:,} sequences = "
            f"{launch.sequences * rows:,} tokens"
        ),
    ]
    cliff = "hidden behind the GPU's work" if launch.graph_s >= launch.launch_s else "which sets the pace"
    notes = [
        (
            "Leviathan et al. (2023), arXiv 2211.17192, equation 1, here with an acceptance for each position. A verification "
            "reads weights and each sequence's KV cache once for all 1 + K tokens; its FLOPs grow with them, which is why it "
            "loses past the knee."
        ),
        (
            f"Past {launch.sequences:,} sequences no CUDA graph is captured for the verification: it takes at least "
            f"{seconds(launch.launch_s)} to launch, {cliff} ({seconds(launch.graph_s)}). {LAUNCH_SOURCE.ref}."
        ),
        (
            "An n-gram draft is looked up in the prompt and taken as free. A head is one layer and the whole language-model "
            "head, a pass for each draft; its first pass also computes the step's own tokens."
        ),
        "Acceptance depends on model, drafter and text; 0.7 is an assumption until you measure it.",
    ]
    return formulas, notes


def speculation_code(found: CaseSpeculation) -> str:
    """Return the engine's flag, and the query that measures the acceptance."""
    asked = found.asked
    config: dict[str, object] = {"method": asked.method, "num_speculative_tokens": found.rule.draft_tokens}
    if asked.method == "ngram":
        config["prompt_lookup_max"] = found.rule.draft_tokens
    else:
        config["model"] = "<your drafter>"
    ranges = [list(each) for each in found.rule.ranges]
    if len(ranges) > 1:
        config["num_speculative_tokens_per_batch_size"] = ranges
    flag = f"--speculative-config '{json.dumps(config)}'"
    if all(drafts == 0 for _, _, drafts in found.rule.ranges):
        flag = "# no --speculative-config: drafts lose at every batch up to max_num_seqs"
    accepted, drafted = "vllm:spec_decode_num_accepted_tokens_total", "vllm:spec_decode_num_draft_tokens_total"
    share = f"# share of drafts accepted, {percent(_accepted_share(found))} at what you gave:"
    return f"{flag}\n{share}\n# rate({accepted}[5m]) / rate({drafted}[5m])"


def _accepted_share(found: CaseSpeculation) -> float:
    return (found.tokens - 1.0) / found.rule.draft_tokens


def speculation_limits(found: CaseSpeculation) -> str:
    """Return what the engine does and doesn't do of it."""
    text = (
        "vLLM cuts drafts by the token budget and by max_model_len, keeps blocks on rejection, and reserves K KV slots more for a "
        "draft model or a head (none for n-gram)."
    )
    if len(found.rule.ranges) > 1:
        text += (
            " K by batch is tested there with EAGLE, EAGLE-3 and DFlash; it keeps full CUDA graphs only in model runner V2, and "
            "data parallelism switches it off (vLLM documentation, Dynamic Speculative Decoding, read 30 November 2026)."
        )
    return text


def speculation_caption(run: SimulatedSpeculation, case: Case) -> str:
    """Return what was simulated."""
    requests = sum(each.requests for each in run.by_batch)
    batches = ", ".join(f"{each.batch:,}" for each in run.by_batch)
    running = run.asked.running
    lost = sum(each.left_out for each in run.by_batch)
    left_out = f" {plural(lost, 'request')} longer than the KV cache or max_model_len left out." if lost else ""
    return (
        f"Simulated: {requests:,} requests at {batches} sequences ({run.asked.requests:,} at the batch asked), seed {case.seed}, "
        f"all waiting from the start, each run with and without drafts, {run.rows:,} verifications; measured while the engine is "
        f"refilled. At the batch asked {figure(running)} sequences are in the engine on average; the budget cut "
        f"{run.cut_drafts:,} of {run.cut_drafts + run.made_drafts:,} drafts.{left_out}"
    )


def rollback_title(run: SimulatedSpeculation) -> str:
    """Return the finding of the table of verifications."""
    rows = run.watched[:_SHOWN_ROWS]
    rejected = sum(row.drafts - row.accepted for row in rows)
    return f"One request's first {plural(len(rows), 'verification')}: {rejected} drafts taken back, no block returned"

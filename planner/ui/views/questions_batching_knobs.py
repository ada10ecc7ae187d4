"""What "What binds?" shows: rows of its charts and tables, and its sentences."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from planner.analysis.case import Case
from planner.analysis.knobs import Ceiling, Ceilings, ceilings
from planner.case_capacity import Carried, Setting, default_source
from planner.engines import ENGINE_TITLES
from planner.ui.charts.curves import Curve, Mark, Rule
from planner.ui.colours import ACCENT, GREY, HUES, WARNING
from planner.ui.views.question_inputs import Asked
from planner.ui.views.questions import Beside
from planner.ui.words import DASH, figure, percent, rate, seconds, usd
from planner.units import MS, US

_CONTEXTS = 40
_SHORTEST, _LONGEST = 128.0, 32_768.0
_BY_CEILINGS = "By the ceilings"
_SAME = 0.005
_WORTH = 0.05
"""Share by which another pair must carry more before it is advised against the plan's: below it lie grid and sample [1]."""


def ceiling_curves(case: Case, kv_tokens: float, tpot_s: float) -> list[Curve]:
    """Return each ceiling of max_num_seqs over the context."""
    contexts = [float(each) for each in np.geomspace(_SHORTEST, _LONGEST, _CONTEXTS)]
    found = [ceilings(kv_tokens, context, tpot_s, case.coefficients) for context in contexts]
    by_tpot = [(context, float(each.tpot_seqs)) for context, each in zip(contexts, found, strict=True) if each.tpot_seqs]
    return [
        Curve(
            "KV memory",
            [(x, each.kv_seqs) for x, each in zip(contexts, found, strict=True)],
            ACCENT,
            name_at=0.15,
            name_place="above right",
        ),
        Curve("TPOT target", by_tpot, WARNING, name_at=0.1, name_place="below right"),
        Curve("compute ridge", [(x, each.ridge_seqs) for x, each in zip(contexts, found, strict=True)], HUES[2], name_at=0.98),
    ]


def ceiling_rules(default: Setting, context: float) -> list[Rule]:
    """Return the asked context and the engine's default."""
    return [
        Rule("x", context, f"{figure(context)} tokens"),
        Rule("y", float(default.max_num_seqs), f"default max_num_seqs {default.max_num_seqs:,}"),
    ]


def ceiling_marks(found: Ceilings, context: float) -> list[Mark]:
    """Return the ceiling that binds at the asked context."""
    if found.max_num_seqs < 1:
        return []
    return [Mark(context, float(found.max_num_seqs), f"{found.binds}: {found.max_num_seqs:,}", GREY, "below left")]


def ceiling_title(found: Ceilings, context: float) -> str:
    """Return the finding of the chart."""
    listed = sorted(found.margins.items(), key=lambda item: (item[0] != found.binds, item[1] or 0.0))
    lowest, (next_one, margin) = _spoken(found.binds), listed[1]
    above = "not one sequence fits" if margin is None else f"{_spoken(next_one)} lies {figure(margin)} times higher"
    return f"At {figure(context)} tokens {lowest} is the lowest ceiling; {above}"


def _spoken(ceiling: Ceiling) -> str:
    return ceiling if ceiling == "KV memory" else f"the {ceiling}"


def ceiling_table(found: Ceilings) -> pd.DataFrame:
    """Return each ceiling with its margin."""
    values: dict[Ceiling, float | None] = {
        "KV memory": found.kv_seqs,
        "compute ridge": found.ridge_seqs,
        "TPOT target": None if found.tpot_seqs is None else float(found.tpot_seqs),
    }
    rows = [
        {
            "Ceiling": name,
            "Sequences": f"{int(value):,}",
            "Over the lowest": _times(found.margins[name]),
            "What it means": _MEANING[name],
        }
        for name, value in values.items()
        if value is not None
    ]
    return pd.DataFrame(rows)


def _times(margin: float | None) -> str:
    return DASH if margin is None else f"{figure(margin)}×"


_MEANING = {
    "KV memory": "a hard wall: more sequences are preempted and computed again",
    "compute ridge": "a bend: from here on each further sequence lengthens the step",
    "TPOT target": "the promise: decode alone takes the target's time",
}


def settings_of(case: Case, found: Ceilings, default: Setting) -> tuple[Setting, ...]:
    """Return the settings to compare: the case's, the formula's, and the engine's default."""
    own = Setting("This replica", case.limits.max_num_seqs, case.limits.max_num_batched_tokens)
    formula: list[Setting] = []
    if found.max_num_seqs and found.max_num_batched_tokens:
        formula.append(Setting(_BY_CEILINGS, found.max_num_seqs, max(found.max_num_batched_tokens, found.max_num_seqs)))
    return (own, *formula, default)


def carried_table(runs: Sequence[Carried]) -> pd.DataFrame:
    """Return what the replica carries at each setting."""
    return pd.DataFrame(
        [
            {
                "Settings": run.setting.name,
                "max_num_seqs": f"{run.setting.max_num_seqs:,}",
                "Budget": f"{run.setting.max_num_batched_tokens:,}",
                "Carries": rate(run.rate_rps),
                "p99 TTFT": seconds(run.ttft_p99_s),
                "p99 TPOT": seconds(run.tpot_p99_s),
                "Stopped by": run.binds,
                "Per M tokens": usd(run.usd_per_million_tokens),
            }
            for run in runs
        ]
    )


def default_sentence(runs: Sequence[Carried], default: Setting) -> str:
    """Return what the engine's default costs on this replica."""
    own, theirs = runs[0], next(run for run in runs if run.setting == default)
    name = f"The d{default.name[1:]} ({default.max_num_seqs:,} sequences, {default.max_num_batched_tokens:,} tokens)"
    if theirs.rate_rps is None:
        return f"{name} holds the targets at no useful rate here: {theirs.binds}"
    if own.rate_rps is None:
        return f"{name} carries {rate(theirs.rate_rps)}; this replica's settings hold the targets at no useful rate"
    lost = 1.0 - theirs.rate_rps / own.rate_rps
    if abs(lost) < _SAME:
        return f"{name} costs nothing here: it carries {rate(theirs.rate_rps)}, as this replica's settings do"
    more = "less" if lost > 0.0 else "more"
    money = ""
    if own.usd_per_million_tokens is not None and theirs.usd_per_million_tokens is not None:
        money = f": {usd(theirs.usd_per_million_tokens)} per million tokens instead of {usd(own.usd_per_million_tokens)}"
    rates = f"{rate(theirs.rate_rps)} instead of {rate(own.rate_rps)}"
    return f"{name} carries {percent(abs(lost))} {more} than this replica's settings, {rates}{money}"


def knob_rows(found: Ceilings, tpot_s: float, runs: Sequence[Carried] | None) -> tuple[Beside, ...]:
    """Return the ceilings' answer beside what the simulated replica carries with it."""
    by_formula = f"≤ {seconds(tpot_s)}" if found.max_num_seqs and found.max_num_batched_tokens else None
    formula = None if runs is None else next((run for run in runs if run.setting.name == _BY_CEILINGS), None)
    best = None if runs is None else max(runs, key=lambda run: run.rate_rps or 0.0)
    return (
        Beside(
            "TPOT with the ceilings' settings",
            by_formula,
            None if formula is None else f"p99 {seconds(formula.tpot_p99_s)} at {rate(formula.rate_rps)}",
            "A ceiling holds for equal sequences at the mean context. Real ones differ, come in bursts and bring prompts, so that "
            "the rate that holds both p99s is found by simulation, and TTFT may bind before any ceiling does.",
        ),
        Beside(
            "Settings that carry the most",
            f"max_num_seqs {found.max_num_seqs:,}" if found.max_num_seqs else DASH,
            None if best is None or best.rate_rps is None else f"{best.setting.name}: {rate(best.rate_rps)}",
        ),
    )


def knob_caption(case: Case) -> str:
    """Return what was simulated."""
    return (
        f"What a replica carries: the largest rate of {case.workload.name} at which p99 TTFT and p99 TPOT hold, found as a plan "
        f"finds it on simulated requests with their own contexts, seed {case.seed}; the KV cache is what each token budget leaves. "
        "Dollars are those of the replica at that rate, without a plan's headroom and spares."
    )


def _advised(runs: Sequence[Carried]) -> Carried:
    """Return the settings to take: the replica's own, the first, unless others carry clearly more."""
    own, best = runs[0], max(runs, key=lambda run: run.rate_rps or 0.0)
    return best if (best.rate_rps or 0.0) > (1.0 + _WORTH) * (own.rate_rps or 0.0) else own


def knob_flags(runs: Sequence[Carried] | None, found: Ceilings) -> str | None:
    """Return the flags of the settings to take, or the formula's."""
    best = None if runs is None else _advised(runs)
    if best is not None and best.rate_rps is not None:
        return f"--max-num-seqs {best.setting.max_num_seqs} --max-num-batched-tokens {best.setting.max_num_batched_tokens}"
    if not found.max_num_seqs or not found.max_num_batched_tokens:
        return None
    return f"--max-num-seqs {found.max_num_seqs} --max-num-batched-tokens {found.max_num_batched_tokens}"


def knob_why(case: Case, found: Ceilings, asked: Asked) -> list[str]:
    """Return the ceilings with their numbers."""
    kv_tokens, context, tpot_s = asked.number("kv"), asked.number("context"), asked.number("tpot")
    c = case.coefficients
    weights_s = c.dense_weights_s + c.expert_weights_s
    ridge = f"{weights_s / MS:.4g} ms of weights / {c.linear_s_per_token / US:.4g} µs per token"
    lines = [
        f"KV memory: {kv_tokens:,.0f} tokens / {context:,.0f} = {found.kv_seqs:.1f} sequences",
        f"compute ridge: {ridge} = {found.ridge_seqs:.1f} sequences",
        f"TPOT target: largest batch whose decode step takes ≤ {tpot_s * 1e3:g} ms = {found.tpot_seqs} sequences",
    ]
    if found.max_num_batched_tokens:
        lines.append(
            f"token budget: {found.max_num_seqs} decode rows + largest chunk within the target = {found.max_num_batched_tokens:,}"
        )
    return lines


def default_note(case: Case, found: Ceilings, default: Setting) -> str:
    """Return where the engine's default lies and comes from."""
    config = case.deployment.engine
    values: dict[Ceiling, float | None] = {
        "KV memory": found.kv_seqs,
        "compute ridge": found.ridge_seqs,
        "TPOT target": found.tpot_seqs,
    }
    beyond = [f"{name} ({int(value):,})" for name, value in values.items() if value is not None and value < default.max_num_seqs]
    where = f"Its max_num_seqs of {default.max_num_seqs:,} lies beyond {', '.join(beyond)}. " if beyond else ""
    engine = f"{ENGINE_TITLES[config.engine]} {config.version}"
    return f"The default is {engine}'s for this GPU's memory, read in {default_source(case).ref}. {where}"


CEILINGS_NOTE = (
    "A ceiling is what equal sequences that only decode allow, an upper bound and no recommendation. A plan's pair is found by "
    "simulation with prompts, bursts and both p99 targets, which is why it may lie far below."
)


def knob_advice(runs: Sequence[Carried] | None, found: Ceilings) -> str:
    """Return what to set, in a sentence."""
    if runs is not None and max((run.rate_rps or 0.0) for run in runs) > 0.0:
        advised, best = _advised(runs), max(runs, key=lambda run: run.rate_rps or 0.0)
        name = advised.setting.name
        if advised is not runs[0]:
            return f"{name}: these settings carry the most of those compared; the other knob follows from the first"
        if advised.rate_rps == best.rate_rps:
            return "Keep this replica's settings: none of those compared carries more"
        more = percent((best.rate_rps or 0.0) / (advised.rate_rps or 1.0) - 1.0)
        theirs = "the ceilings' pair" if best.setting.name == _BY_CEILINGS else f"the d{best.setting.name[1:]}"
        return (
            f"Keep this replica's settings: {theirs} carries {more} more here, within the {percent(_WORTH)} that a plan's grid of "
            "settings and one sample of requests leave open"
        )
    return f"{found.binds} binds: set max_num_seqs by it and derive the token budget from the TPOT target"

"""A long prompt arrives while others decode, simulated: each step as the scheduler decides it, and what new arrivals wait."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from planner.analysis.case import Case
from planner.analysis.long_prompt import LongPrompt, long_prompt
from planner.analysis.long_prompt_runs import Arrival, Bar, Experiment, LongRun, SimulatedLongPrompt, SimulatedStep
from planner.analysis.steps import Decoders
from planner.errors import InputError
from planner.parallel import in_parallel
from planner.simulator import EngineLimits, LogRow, LogStep, RequestTable, SimulationOptions, SimulationResult, simulate

MOST_CHUNKS = 1500
_LONG_PROMPT = 100_000
_TEXTBOOK_DECODERS = Decoders(64.0, 2048.0)
_LEAD_STEPS = 6
_AFTER_STEPS = 12
_LONG_OUTPUT = 400
_FEWEST_ARRIVALS = 8
_MOST_ARRIVALS = 60
_WANTED_ARRIVALS = 80
_MOST_DRAWS = 8
_LANES = 6
_LATER_SHARE = 0.25
_BESIDE_SHARE = 4
_LEAST_THRESHOLD = 16
Floats = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int64]


def usual(case: Case) -> Experiment:
    """Return the experiment that a case starts with: the textbook's, or a long prompt beside those in flight as planned."""
    limits = case.limits
    if case.textbook:
        return Experiment(_LONG_PROMPT, _TEXTBOOK_DECODERS, limits.max_num_batched_tokens, None, case.rate_rps)
    prompt = _LONG_PROMPT if limits.max_model_len is None else min(_LONG_PROMPT, limits.max_model_len - 1)
    running = Decoders(float(case.in_flight(case.limits.max_num_seqs - 1)), float(round(case.context_tokens)))
    return Experiment(prompt, running, limits.max_num_batched_tokens, None, case.rate_rps)


def formula(case: Case, asked: Experiment) -> LongPrompt:
    """Return the closed form of an experiment."""
    return long_prompt(asked.prompt_tokens, asked.decoders, asked.budget_tokens, case.coefficients, asked.threshold_tokens)


def by_budget(case: Case, asked: Experiment, budgets: Sequence[int]) -> list[tuple[int, LongPrompt]]:
    """Return the closed form without a threshold under each token budget that leaves room for a useful chunk, and the asked one.

    budgets : max_num_batched_tokens [token]
    """
    least = asked.decoders.sequences + max(_LEAST_THRESHOLD, asked.prompt_tokens / MOST_CHUNKS)
    fitting = sorted({asked.budget_tokens, *(budget for budget in budgets if budget >= least)})
    return [(budget, formula(case, asked._replace(budget_tokens=budget, threshold_tokens=None))) for budget in fitting]


def why_not_simulated(case: Case, asked: Experiment, found: LongPrompt) -> str | None:
    """Return why the experiment can't be simulated, None when it can."""
    if len(found.steps) > MOST_CHUNKS:
        return f"{len(found.steps):,} chunks are too many to simulate step by step; at most {MOST_CHUNKS:,} are"
    held = asked.decoders.sequences * (asked.decoders.context_tokens + len(found.steps)) + asked.prompt_tokens
    if held > case.kv_tokens:
        return (
            f"the KV cache holds {case.kv_tokens:,} tokens and these need {held:,.0f}: the long prompt waits until decoders end, "
            "and everyone behind it too"
        )
    return None


def threshold_beside(asked: Experiment) -> int:
    """Return the threshold to compare with: the asked one, else a quarter of what the budget leaves the chunk [token]."""
    if asked.threshold_tokens is not None:
        return asked.threshold_tokens
    return max(_LEAST_THRESHOLD, (asked.budget_tokens - int(asked.decoders.sequences)) // _BESIDE_SHARE)


def simulated_long_prompt(case: Case, asked: Experiment) -> SimulatedLongPrompt:
    """Return the experiment step by step; see why_not_simulated.

    Raises InputError when max_num_seqs leaves the long prompt no place.
    """
    most = min(case.limits.max_num_seqs, asked.budget_tokens)
    if asked.decoders.sequences + 1 > most:
        raise InputError("decoders", asked.decoders.sequences, f"must be below max_num_seqs, {most:,}", "Lower it")
    beside = threshold_beside(asked)
    whole, capped = asked._replace(threshold_tokens=None), asked._replace(threshold_tokens=beside)
    draws = range(max(1, min(_MOST_DRAWS, math.ceil(_WANTED_ARRIVALS / _later_count(asked, formula(case, whole))))))
    first = in_parallel(lambda one: _run(case, one[0], one[1]), [(asked, None), (whole, 0), (capped, 0)])
    more = in_parallel(lambda one: _arrivals_of(case, *one), [(each, draw, True) for each in (whole, capped) for draw in draws[1:]])
    none = in_parallel(lambda draw: _arrivals_of(case, asked, draw, long=False), draws)
    further = len(draws) - 1
    return SimulatedLongPrompt(
        beside,
        first[0],
        replace(first[1], arrivals=_pooled([first[1].arrivals, *more[:further]])),
        replace(first[2], arrivals=_pooled([first[2].arrivals, *more[further:]])),
        _pooled(none),
        asked.threshold_tokens is not None,
        len(draws),
    )


def _pooled(arrivals: Sequence[tuple[Arrival, ...]]) -> tuple[Arrival, ...]:
    return tuple(sorted(arrival for each in arrivals for arrival in each))


def _run(case: Case, asked: Experiment, draw: int | None) -> LongRun:
    """Return a run step by step; draw : which arrivals come after the long prompt, None for none."""
    table, long = _table(case, asked, draw)
    chunks = len(formula(case, asked).steps)
    options = SimulationOptions(log_steps=True, log_most_steps=_steps_for(chunks, len(table)))
    result = simulate(table, _limits(case, asked), case.coefficients, options)
    return _read(result, long)


def _arrivals_of(case: Case, asked: Experiment, draw: int, long: bool) -> tuple[Arrival, ...]:  # noqa: FBT001
    """Return what new arrivals wait, with the long prompt in front of them or without it."""
    table, place = _table(case, asked, draw)
    zero_s = float(table.arrival_s[place])
    if not long:
        table = table.take(np.delete(np.arange(len(table)), place))
    return _arrivals(simulate(table, _limits(case, asked), case.coefficients), place, zero_s)


def _steps_for(chunks: int, requests: int) -> int:
    """Return how many steps hold the whole experiment: lead, chunks, and what the arrivals' prompts take after them."""
    return chunks + _AFTER_STEPS + 20 * _LEAD_STEPS + requests


def _limits(case: Case, asked: Experiment) -> EngineLimits:
    """Return the case's settings with the asked ones; the prefix cache only gives the decoders their contexts."""
    return case.limits._replace(
        max_num_seqs=min(case.limits.max_num_seqs, asked.budget_tokens),
        max_num_batched_tokens=asked.budget_tokens,
        long_prefill_token_threshold=asked.threshold_tokens or 0,
        max_model_len=None,
        enable_prefix_caching=True,
    )


def _table(case: Case, asked: Experiment, draw: int | None) -> tuple[RequestTable, int]:
    """Return the decoders, the long prompt and those after it, and the long prompt's place.

    The decoders' contexts count as found in the prefix cache, so that they decode within a few steps and with the asked context.
    """
    found = formula(case, asked)
    count = int(asked.decoders.sequences)
    later = Later() if draw is None else _later(case, asked, draw)
    lead_s = _lead_s(case, asked)
    steps = _steps_for(len(found.steps), count + 1 + len(later.at_s))
    context = _context(asked)
    return (
        RequestTable(
            np.concatenate([np.zeros(count), [lead_s], lead_s + later.at_s]),
            np.concatenate([np.full(count, context), [asked.prompt_tokens], later.prompts]).astype(np.int64),
            np.concatenate([np.full(count, steps), [_LONG_OUTPUT], later.outputs]).astype(np.int64),
            cached_prompt_tokens=np.concatenate([np.full(count, context - 1), np.zeros(1 + len(later.at_s))]).astype(np.int64),
        ),
        count,
    )


def _context(asked: Experiment) -> int:
    """Return the decoders' tokens before they start, so that they have the asked context when the long prompt comes [token]."""
    return max(1, round(asked.decoders.context_tokens) - _LEAD_STEPS)


def _lead_s(case: Case, asked: Experiment) -> float:
    """Return a time between two decisions when all decoders have decoded for a few steps [s]."""
    count = int(asked.decoders.sequences)
    context = np.full(count, _context(asked), np.int64)
    table = RequestTable(np.zeros(count), context, np.full(count, 4 * _LEAD_STEPS, np.int64), cached_prompt_tokens=context - 1)
    steps = simulate(table, _limits(case, asked), case.coefficients, SimulationOptions(log_steps=True)).steps or []
    full = [index for index, step in enumerate(steps) if len(step.rows) == count and all(row.tokens == 1 for row in step.rows)]
    at = full[min(_LEAD_STEPS // 2, len(full) - 1)]
    return 0.5 * (steps[at - 1].scheduled_at_s + steps[at].scheduled_at_s)


class Later(NamedTuple):
    """Arrivals after the long prompt: times from its arrival [s], prompts and outputs [token]."""

    at_s: Floats = np.zeros(0)
    prompts: Tokens = np.zeros(0, np.int64)
    outputs: Tokens = np.zeros(0, np.int64)


def _later(case: Case, asked: Experiment, draw: int) -> Later:
    """Return the arrivals while an uncapped prefill lasts and shortly after, the same ones under every threshold."""
    count = _later_count(asked, formula(case, asked._replace(threshold_tokens=None)))
    drawn = replace(case, seed=case.seed + draw).requests(count, asked.rate_rps)
    return Later(drawn.arrival_s, drawn.prompt_tokens, drawn.output_tokens)


def _later_count(asked: Experiment, found: LongPrompt) -> int:
    wanted = math.ceil(asked.rate_rps * found.ttft_s * (1.0 + _LATER_SHARE))
    return min(_MOST_ARRIVALS, max(_FEWEST_ARRIVALS, wanted))


def _read(result: SimulationResult, long: int) -> LongRun:
    """Return the run's steps counted from the long prompt's first one."""
    logged = result.steps or []
    first = next(index for index, step in enumerate(logged) if any(row.request == long for row in step.rows))
    zero_s = logged[first].start_s
    shown = logged[max(0, first - 1) :]
    arrivals = _arrivals(result, long, float(result.arrival_s[long]))
    return LongRun(
        steps=tuple(_step(step, result, long, zero_s) for step in shown),
        arrivals=arrivals,
        ttft_s=float(result.first_token_s[long]) - zero_s if np.isfinite(result.first_token_s[long]) else None,
        bars=_bars(shown, result, long, zero_s),
    )


def _step(step: LogStep, result: SimulationResult, long: int, zero_s: float) -> SimulatedStep:
    own = next((row for row in step.rows if row.request == long), None)
    decoding = sum(_decodes(row, result) for row in step.rows)
    return SimulatedStep(
        start_s=step.start_s - zero_s,
        duration_s=step.duration_s,
        chunk_tokens=0 if own is None or _decodes(own, result) else own.tokens,
        past_tokens=0 if own is None else own.context,
        other_prefill_tokens=sum(row.tokens for row in step.rows if row.request != long and not _decodes(row, result)),
        decode_rows=decoding,
        waiting=step.waiting,
    )


def _decodes(row: LogRow, result: SimulationResult) -> bool:
    return bool(row.tokens == 1 and row.context >= result.prompt_tokens[row.request])


def _arrivals(result: SimulationResult, before: int, zero_s: float) -> tuple[Arrival, ...]:
    """Return the requests of a run that came after the long prompt; before : how many stand in front of them."""
    places = [index for index in range(before, len(result.arrival_s)) if result.arrival_s[index] > zero_s]
    return tuple(
        Arrival(
            float(result.arrival_s[place]) - zero_s,
            int(result.prompt_tokens[place]),
            float(result.first_token_s[place] - result.arrival_s[place]),
        )
        for place in places
        if np.isfinite(result.first_token_s[place])
    )


def _bars(steps: list[LogStep], result: SimulationResult, long: int, zero_s: float) -> tuple[Bar, ...]:
    """Return the lanes: the decoders, the long prompt, and a few arrivals with their waits."""
    later = [index for index in range(long + 1, len(result.arrival_s)) if np.isfinite(result.first_token_s[index])]
    picked = [later[round(place)] for place in np.linspace(0, len(later) - 1, min(_LANES, len(later)))] if later else []
    lanes = {long: "long prompt"} | {request: f"arrival {request - long}" for request in picked}
    last_s = max(
        [float(result.first_token_s[request]) for request in lanes if np.isfinite(result.first_token_s[request])], default=0.0
    )
    span = [step for index, step in enumerate(steps) if step.start_s <= last_s or index < _AFTER_STEPS]
    bars = [
        Bar(
            lanes[request],
            float(result.arrival_s[request]) - zero_s,
            float(result.first_scheduled_s[request]) - zero_s,
            "waiting",
            0,
        )
        for request in picked
    ]
    for step in span:
        from_s, to_s = step.start_s - zero_s, step.start_s + step.duration_s - zero_s
        bars.append(Bar("decoders", from_s, to_s, "decode", sum(row.request < long for row in step.rows)))
        bars += [
            Bar(lanes[row.request], from_s, to_s, "decode" if _decodes(row, result) else "prefill chunk", row.tokens)
            for row in step.rows
            if row.request in lanes
        ]
    return tuple(bars)

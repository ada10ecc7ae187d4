"""The two scheduler settings: which are tried, which hold a rate, which carry most, and the map of all of them."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from planner.parallel import in_parallel
from planner.plans.capacity import Demand
from planner.plans.rates import Capacity, Probe, capacity_from, capacity_under, missed_target, misses_of, probe
from planner.plans.results import KnobCell, Knobs, Latency
from planner.plans.starting import BUDGETS, Engine, Question, coarse, default_knobs, plain_blocks, replica_of, with_knobs
from planner.scenario import Scenario, Targets
from planner.step_model import StepShape, step_s

SEQUENCES = (32, 64, 128, 256, 512, 1024)
SAME_CAPACITY = 0.01
_FIRST_DECODERS = 16
_FIRST_STEP_SHARE = 1.0
_CLEAR_MISS = 0.3
_USEFUL_BUDGET = 2048
_CLEARLY_MORE_THAN_HELD = 3.0
_CLOSE_MISS = 0.15  # more than percentiles of the smaller and of the largest sample usually differ by


@dataclass(frozen=True, slots=True)
class Trial:
    """What a layout's settings did at a rate that it would have to carry: those that held it, else those that missed by least.

    demand : the sample that it was tried on
    miss : logarithm of the worse ratio of percentile to target [1]; 0 or less where the targets held
    """

    demand: Demand
    rate_rps: float
    knobs: Knobs
    miss: float

    @property
    def held(self) -> bool:
        """Whether both targets held at the rate."""
        return self.miss <= 0.0


class Seen(NamedTuple):
    """A rate at which a cell was seen [request/s], by how much it missed there [1], and the most sequences at once [seq]."""

    rate_rps: float
    miss: float
    running_peak: int | None


@dataclass(frozen=True, slots=True)
class BestKnobs:
    """The settings to recommend, and what was learnt about the grid on the way.

    top, rate_rps : the settings of the largest capacity of the grid on the sample, and that capacity, to 1 % [request/s]
    near : cells that carry 99 % of it or more, each with the largest rate at which it was seen to hold the targets
    close : these and the cells that only just missed, which another sample may prefer
    """

    knobs: Knobs
    top: Knobs
    rate_rps: float
    near: dict[Knobs, Seen]
    close: frozenset[Knobs]


class _Row(NamedTuple):
    budget: int
    caps: tuple[int, ...]


def knob_options(scenario: Scenario, default: Knobs) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the sequence caps and the token budgets to try; one each where the user holds it fixed."""
    choice = scenario.engine
    sequences = (choice.max_num_seqs,) if choice.max_num_seqs else tuple(sorted({*SEQUENCES, default.max_num_seqs}))
    budgets = (
        (choice.max_num_batched_tokens,)
        if choice.max_num_batched_tokens
        else tuple(sorted({*BUDGETS, default.max_num_batched_tokens}))
    )
    return sequences, budgets


def first_knobs(question: Question, engine: Engine) -> Knobs:
    """Return settings to start a search from: the engine's own, cut to what the TPOT target bears and the KV cache can fill.

    The largest budget whose full step, beside a few decoding sequences, takes no longer than the TPOT target; and a sequence cap
    that the cache can't reach, as a larger one only takes memory from it. A start only.
    """
    start_at, choice = default_knobs(question.scenario, engine.deployment), question.scenario.engine
    target_s, budget = question.scenario.targets.tpot_p99_s, start_at.max_num_batched_tokens
    if target_s is not None and choice.max_num_batched_tokens is None:
        fitting = [each for each in BUDGETS if _full_step_s(question, engine, each) <= _FIRST_STEP_SHARE * target_s]
        budget = min(budget, max(fitting, default=BUDGETS[0]))
    if choice.max_num_seqs is not None:
        return Knobs(choice.max_num_seqs, max(budget, choice.max_num_seqs))
    return Knobs(min(start_at.max_num_seqs, budget, _cap_beyond_cache(question, engine)), budget)


def _cap_beyond_cache(question: Question, engine: Engine) -> int:
    """Return the smallest sequence cap that is clearly more than the KV cache holds under the engine's own settings [seq]."""
    held = plain_blocks(engine.memory, question.demand) * engine.memory.block_size / question.context_mean_tokens
    sequences, _ = knob_options(question.scenario, default_knobs(question.scenario, engine.deployment))
    return min((cap for cap in sequences if cap >= _CLEARLY_MORE_THAN_HELD * held), default=max(sequences))


def _full_step_s(question: Question, engine: Engine, budget: int) -> float:
    context = question.context_mean_tokens
    shape = StepShape(
        scheduled_tokens=float(budget),
        sampled_tokens=float(_FIRST_DECODERS),
        sequences=_FIRST_DECODERS + 1.0,
        decode_sequences=float(_FIRST_DECODERS),
        decode_context_tokens=_FIRST_DECODERS * context,
        decode_window_tokens=_FIRST_DECODERS * min(context, engine.coefficients.window_tokens or context),
        prefill_pairs=budget * question.prompt_mean_tokens / 2.0,
    )
    return float(step_s(shape, engine.coefficients))


def measure(question: Question, engine: Engine, knobs: Knobs, guess_rps: float = 0.0) -> Capacity | None:
    """Return the capacity with some settings; None when the engine would not start with them.

    guess_rps : a rate near it, such as that of neighbouring settings [request/s]; 0 when there is none
    """
    question.check()
    fitted = with_knobs(engine, knobs, question.scenario.engine.logged_kv_tokens)
    if not fitted.memory.fits:
        return None
    return capacity_from(question.demand, replica_of(fitted, question.demand), knobs, question.scenario.targets, guess_rps)


def measure_under(question: Question, engine: Engine, knobs: Knobs, missed_rps: float) -> Capacity | None:
    """Return the capacity with settings that miss the targets at a rate [request/s]; None when the engine would not start."""
    question.check()
    fitted = with_knobs(engine, knobs, question.scenario.engine.logged_kv_tokens)
    if not fitted.memory.fits:
        return None
    return capacity_under(question.demand, replica_of(fitted, question.demand), knobs, question.scenario.targets, missed_rps)


def probe_with(question: Question, engine: Engine, knobs: Knobs, rate_rps: float) -> Probe | None:
    """Say whether some settings carry a rate; None when the engine would not start with them."""
    question.check()
    fitted = with_knobs(engine, knobs, question.scenario.engine.logged_kv_tokens)
    if not fitted.memory.fits:
        return None
    return probe(question.demand, replica_of(fitted, question.demand), knobs, question.scenario.targets, rate_rps)


def tried_at(question: Question, engine: Engine, rate_rps: float) -> Trial:
    """Say whether some token budget holds a rate: on the smaller sample, and on the question's own unless it is clearly missed."""
    trial = _walk(coarse(question), engine, rate_rps, first_knobs(question, engine))
    return trial if trial.miss > _CLEAR_MISS else _walk(question, engine, rate_rps, trial.knobs)


def _walk(question: Question, engine: Engine, rate_rps: float, start_at: Knobs) -> Trial:
    """Go from budget to budget, down where TPOT misses by more and up where TTFT does, until one holds or none is better.

    The other way too where the first one brings nothing: small chunks of long prompts may cost TPOT more than large ones do.
    """
    _, budgets = knob_options(question.scenario, default_knobs(question.scenario, engine.deployment))
    place = budgets.index(start_at.max_num_batched_tokens) if start_at.max_num_batched_tokens in budgets else 0
    found = probe_with(question, engine, start_at, rate_rps)
    best = Trial(question.demand, rate_rps, start_at, 1.0 if found is None else found.miss)
    if best.held or (found is not None and _out_of_reach(found.latency, start_at)):
        return best
    first = _direction(found, question.scenario.targets)
    for step in (first, -first):
        at = place + step
        while 0 <= at < len(budgets):
            knobs = Knobs(min(start_at.max_num_seqs, budgets[at]), budgets[at])
            found = probe_with(question, engine, knobs, rate_rps)
            if found is not None and found.miss >= best.miss:
                break
            if found is not None:
                best = replace(best, knobs=knobs, miss=found.miss)
                if best.held or _out_of_reach(found.latency, knobs):
                    return best
            at += step
        if best.knobs != start_at or best.miss > _CLEAR_MISS:
            break
    return best


def _out_of_reach(latency: Latency, knobs: Knobs) -> bool:
    """Whether an engine doesn't keep up though its budget doesn't hold it back, so that no other budget helps."""
    return not latency.stable and knobs.max_num_batched_tokens >= _USEFUL_BUDGET


def _direction(found: Probe | None, targets: Targets) -> int:
    """Return where a better budget lies: below where TPOT misses by more, above where TTFT does.

    A smaller budget leaves more memory to the KV cache: it lies below, too, where the engine doesn't start, or where offline work
    runs out of blocks.
    """
    if found is None or (targets.offline and not found.latency.kv_free):
        return -1
    return -1 if misses_more_of_tpot(found.latency, targets) else 1


def misses_more_of_tpot(latency: Latency, targets: Targets) -> bool:
    """Whether a run is further off its TPOT target than off its TTFT target."""
    missed = misses_of(latency, targets)
    return missed.tpot > missed.ttft


def settled(question: Question, engine: Engine, start_at: Knobs, guess_rps: float = 0.0) -> tuple[Knobs, Capacity | None]:
    """Return settings near the best and their capacity: the token budget is moved as long as another one carries 1 % more.

    guess_rps : a rate near it [request/s]; 0 when there is none
    """
    best, found = start_at, measure(question, engine, start_at, guess_rps)
    while True:
        better = _better_budget(question, engine, best, _rate(found))
        if better is None:
            return best, found
        beyond_rps = _rate(found) * (1.0 + SAME_CAPACITY)
        best, found = better, measure(question, engine, better, beyond_rps)


def _better_budget(question: Question, engine: Engine, start_at: Knobs, rate_rps: float) -> Knobs | None:
    """Return the budget, below or above, that holds 1 % more than a rate most easily of those up to the first that is no better.

    None when none holds it: one simulation for each side. Where no rate is held yet, the first budget that holds any.
    """
    _, budgets = knob_options(question.scenario, default_knobs(question.scenario, engine.deployment))
    position = budgets.index(start_at.max_num_batched_tokens) if start_at.max_num_batched_tokens in budgets else 0
    for side in (budgets[:position][::-1], budgets[position + 1 :]):
        best: tuple[float, Knobs] | None = None
        for budget in side:
            knobs = Knobs(min(start_at.max_num_seqs, budget), budget)
            missed = _miss_beyond(question, engine, knobs, rate_rps)
            if missed is None or missed > 0.0 or (best is not None and missed >= best[0]):
                break
            best = (missed, knobs)
        if best is not None:
            return best[1]
    return None


def _miss_beyond(question: Question, engine: Engine, knobs: Knobs, rate_rps: float) -> float | None:
    """Return by how much some settings miss at 1 % above a rate; None when the engine would not start with them."""
    if rate_rps <= 0.0:
        found = measure(question, engine, knobs)
        return None if found is None else 0.0 if _rate(found) > 0.0 else 1.0
    tried = probe_with(question, engine, knobs, rate_rps * (1.0 + SAME_CAPACITY))
    return None if tried is None else tried.miss


def best_knobs(question: Question, engine: Engine, start_at: Knobs, guess_rps: float) -> BestKnobs | None:
    """Return the settings to recommend out of the whole grid; None when none has a capacity.

    start_at, guess_rps : settings of a good capacity, and a rate near it [request/s]

    The grid is asked what holds 99 % of the largest capacity known, then which of those hold 1 % more, whose capacity is then the
    largest known; until none does. So each cell costs one or two simulations instead of a search of its own.
    """
    found = measure(question, engine, start_at, guess_rps)
    rate_rps, top = _rate(found), start_at
    if rate_rps <= 0.0:
        return None
    rows = _rows(question, engine)
    seen = _looks(question, engine, rows, rate_rps * (1.0 - SAME_CAPACITY))
    near = {knobs: each for knobs, each in seen.items() if each.miss <= 0.0}
    while True:
        higher = _holding(question, engine, _only(rows, near), rate_rps * (1.0 + SAME_CAPACITY))
        if not higher:
            break
        top = min(higher, key=lambda knobs: higher[knobs].miss)
        rate_rps = max(_rate(measure(question, engine, top, rate_rps * (1.0 + SAME_CAPACITY))), rate_rps * (1.0 + SAME_CAPACITY))
        near = _holding(question, engine, _only(rows, near), rate_rps * (1.0 - SAME_CAPACITY))
    near |= _holding(question, engine, _only(rows, near), rate_rps)
    if top not in near:
        near[top] = Seen(rate_rps, 0.0, found.running_peak if found else None)
    close = frozenset(knobs for knobs, each in seen.items() if each.miss <= _CLOSE_MISS) | near.keys()
    return BestKnobs(recommended(near, engine.own), top, rate_rps, near, close)


def recommended(near: dict[Knobs, Seen], default: Knobs) -> Knobs:
    """Return the cell to recommend: of those within 1 % of the largest capacity, the one nearest to the engine's own budget.

    Of the sequence caps that do as well, the smallest that the batch doesn't reach at capacity: it costs nothing there, and bounds
    the batch, and with it TPOT, when traffic surges. Where every cap is reached, the smallest.
    """

    def distance(knobs: Knobs) -> tuple[float, bool, int]:
        doublings = abs(math.log2(knobs.max_num_batched_tokens / default.max_num_batched_tokens))
        peak = near[knobs].running_peak
        return (doublings, peak is not None and peak >= knobs.max_num_seqs, knobs.max_num_seqs)

    return min(near, key=distance)


def _rows(question: Question, engine: Engine) -> list[_Row]:
    sequences, budgets = knob_options(question.scenario, default_knobs(question.scenario, engine.deployment))
    return [_Row(budget, tuple(cap for cap in sorted(sequences, reverse=True) if cap <= budget)) for budget in budgets]


def _only(rows: Iterable[_Row], cells: Iterable[Knobs]) -> list[_Row]:
    kept = set(cells)
    return [_Row(row.budget, caps) for row in rows if (caps := tuple(cap for cap in row.caps if Knobs(cap, row.budget) in kept))]


def holding(question: Question, engine: Engine, cells: Iterable[Knobs], rate_rps: float) -> dict[Knobs, Seen]:
    """Return which of some cells of the grid carry a rate [request/s]."""
    return _holding(question, engine, _only(_rows(question, engine), cells), rate_rps)


def _holding(question: Question, engine: Engine, rows: Sequence[_Row], rate_rps: float) -> dict[Knobs, Seen]:
    return {knobs: seen for knobs, seen in _looks(question, engine, rows, rate_rps).items() if seen.miss <= 0.0}


def _looks(question: Question, engine: Engine, rows: Sequence[_Row], rate_rps: float) -> dict[Knobs, Seen]:
    """Return what the cells do at a rate, those apart with which the engine would not start.

    Where a larger cap's run is the same as a smaller one's, it isn't repeated.
    """

    def of_row(row: _Row) -> dict[Knobs, Seen]:
        looks: dict[Knobs, Seen] = {}
        above: Probe | None = None
        for cap in row.caps:
            knobs = Knobs(cap, row.budget)
            if above is None or not _same_run(above.latency, cap):
                above = probe_with(question, engine, knobs, rate_rps)
            if above is not None:
                looks[knobs] = Seen(rate_rps, above.miss, above.latency.running_peak)
        return looks

    return {knobs: seen for row in in_parallel(of_row, rows) for knobs, seen in row.items()}


def _same_run(above: Latency, cap: int) -> bool:
    """Whether a run under a larger cap is that of a smaller one: it stayed below it, and the KV blocks that a smaller cap frees
    would have changed nothing.
    """
    return above.kv_free is True and above.running_peak is not None and above.running_peak < cap


def knob_map(question: Question, engine: Engine, best: BestKnobs) -> tuple[KnobCell, ...]:
    """Return the capacity of every pair of settings, by token budget and then by sequence cap; best : what is known of it."""

    def of_row(row: _Row) -> list[KnobCell]:
        cells: list[KnobCell] = []
        above: KnobCell | None = None
        for cap in row.caps:
            knobs = Knobs(cap, row.budget)
            shared = above is not None and knobs not in best.near and _same_capacity(question, engine, above, cap)
            above = replace(above, knobs=knobs) if above is not None and shared else _cell(question, engine, knobs, best)
            cells.append(above)
        return cells[::-1]

    return tuple(cell for row in in_parallel(of_row, _rows(question, engine)) for cell in row)


def _same_capacity(question: Question, engine: Engine, above: KnobCell, cap: int) -> bool:
    """Whether a smaller cap has the capacity of the cell above it: its run there is the same."""
    if above.capacity_rps is None or above.running_peak is None or above.running_peak >= cap:
        return False
    found = probe_with(question, engine, above.knobs, above.capacity_rps)
    return found is not None and _same_run(found.latency, cap)


def _cell(question: Question, engine: Engine, knobs: Knobs, best: BestKnobs) -> KnobCell:
    held = best.near.get(knobs)
    if held is not None:
        beyond = probe_with(question, engine, knobs, best.rate_rps * (1.0 + SAME_CAPACITY))
        binds = missed_target(beyond.latency, question.scenario.targets) if beyond is not None else "memory"
        return KnobCell(knobs, held.rate_rps, binds, held.running_peak)
    found = measure_under(question, engine, knobs, best.rate_rps * (1.0 - SAME_CAPACITY))
    if found is None:
        return KnobCell(knobs, None, "memory", None)
    return KnobCell(knobs, found.rate_rps, found.binds, found.running_peak)


def _rate(capacity: Capacity | None) -> float:
    return capacity.rate_rps or 0.0 if capacity is not None else 0.0

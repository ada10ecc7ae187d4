"""What "Swap or recompute?" shows: sentences, curves and rows."""

from collections.abc import Sequence

from planner.analysis.case import Case
from planner.analysis.preemption import Copies, SwapOrRecompute, copy_bytes_per_s
from planner.analysis.preemption_simulated import (
    HOST_PATHS,
    HostPath,
    LayoutPoint,
    RestorePoint,
    TightRun,
    copy_sizes,
    least_copy_bytes,
)
from planner.ui.charts.curves import Curve, Mark, Rule
from planner.ui.charts.sharing import Dot
from planner.ui.colours import ACCENT, GREY, HUES
from planner.ui.views.questions import Beside
from planner.ui.words import figure, gib, gigabytes_per_second, percent, seconds
from planner.units import GB, KIB, MS, US, plural

LATENCY_US = 10.0


def restore_answer(found: SwapOrRecompute, context_tokens: float, copies: Copies) -> str:
    """Return which way is faster, and by how much."""
    rate = gigabytes_per_second(copy_bytes_per_s(copies))
    faster, slower = sorted((found.swap_s, found.recompute_s))
    way = "Copying out and in" if found.swap_wins else "Computing again"
    context = plural(context_tokens, "token", figure(context_tokens))
    return (
        f"{way} is {figure(slower / max(faster, 1e-12))}× faster: {seconds(found.recompute_s)} to compute {context} again, "
        f"{seconds(found.swap_s)} to copy them both ways at {rate}; vLLM computes again"
    )


def context_curves(points: Sequence[RestorePoint], copies: Copies) -> list[Curve]:
    """Return both costs over the context."""
    again = [(point.context_tokens, point.recompute_s / MS) for point in points]
    moved = [(point.context_tokens, point.swap_s / MS) for point in points]
    above = again[-1][1] >= moved[-1][1]
    rate = gigabytes_per_second(copy_bytes_per_s(copies))
    return [
        Curve("compute again", again, HUES[1], name_at=0.7, name_place="above left" if above else "below right"),
        Curve(f"copy out and in at {rate}", moved, ACCENT, name_at=0.7, name_place="below right" if above else "above left"),
    ]


def context_marks(found: SwapOrRecompute, context_tokens: float) -> list[Mark]:
    """Return both costs of the context that was asked for."""
    times_s = sorted((found.recompute_s, found.swap_s))
    return [
        Mark(context_tokens, times_s[0] / MS, seconds(times_s[0]), place="below right"),
        Mark(context_tokens, times_s[1] / MS, seconds(times_s[1]), place="above left"),
    ]


def context_title(points: Sequence[RestorePoint]) -> str:
    """Return the finding over context lengths."""
    wins = [point.swap_s < point.recompute_s for point in points]
    if all(wins):
        low, high = sorted(point.recompute_s / max(point.swap_s, 1e-12) for point in (points[0], points[-1]))
        return f"Copying is faster at every context, {figure(low)}× to {figure(high)}×: attention makes long ones dearer to compute"
    if not any(wins):
        return "Computing again is faster at every context that is shown"
    first = next(point.context_tokens for point, won in zip(points, wins, strict=True) if won)
    return f"From {figure(first)} tokens on copying is faster: attention makes long contexts dearer to compute"


def copy_curves(copies: Copies) -> list[Curve]:
    """Return the rate over the size of a copy, for each path to the host and for the one that was asked for."""
    own = [(size / KIB, copy_bytes_per_s(copies._replace(copy_bytes=size)) / GB) for size in copy_sizes()]
    found = []
    for path in HOST_PATHS:
        if abs(path.bytes_per_s / copies.bytes_per_s - 1.0) < 0.02:
            continue
        slower = copies._replace(bytes_per_s=path.bytes_per_s)
        points = [(size / KIB, copy_bytes_per_s(slower._replace(copy_bytes=size)) / GB) for size in copy_sizes()]
        found.append(Curve(path.name, points, GREY))
    return [*found, Curve(f"this path, {gigabytes_per_second(copies.bytes_per_s)}", own, ACCENT)]


def copy_rules(found: SwapOrRecompute) -> list[Rule]:
    """Return the break-even rates."""
    once = found.break_even_bytes_per_s
    return [
        Rule("y", once / GB, f"break-even, one way {gigabytes_per_second(once)}"),
        Rule("y", 2.0 * once / GB, f"both ways {gigabytes_per_second(2.0 * once)}"),
    ]


def copy_marks(copies: Copies) -> list[Mark]:
    """Return the copy size that was asked for."""
    if copies.copy_bytes is None:
        return []
    rate = copy_bytes_per_s(copies)
    label = f"{gib(copies.copy_bytes)}: {gigabytes_per_second(rate)}"
    return [Mark(copies.copy_bytes / KIB, rate / GB, label, place="below right")]


def copy_title(found: SwapOrRecompute, copies: Copies) -> str:
    """Return the finding over copy sizes."""
    least = least_copy_bytes(copies, 2.0 * found.break_even_bytes_per_s)
    if least is None:
        return "On this path no size of copy beats computing again"
    return f"Copies below {gib(least)} lose to computing again, both ways counted: copy many blocks at once"


def layout_dots(points: Sequence[LayoutPoint], copies: Copies) -> list[Dot]:
    """Return the break-even rate of models with other attention."""
    rate = copy_bytes_per_s(copies)
    found = []
    for point in points:
        once = point.break_even_bytes_per_s
        verdict = "wins" if 2.0 * once < rate else "loses"
        note = f"{figure(point.kv_bytes_per_token / KIB)} KiB a token; copying both ways {verdict} here"
        said = gigabytes_per_second(2.0 * once)
        found.append(Dot(f"{point.name} ({point.attention})", "break-even", 2.0 * once / GB, said, note))
    return found


def layout_rule(copies: Copies) -> tuple[float, str]:
    """Return what copies reach here: models left of it gain from copying."""
    rate = copy_bytes_per_s(copies)
    return rate / GB, f"here {gigabytes_per_second(rate)}"


def layout_title(points: Sequence[LayoutPoint]) -> str:
    """Return the finding over models."""
    least, most = (pick(points, key=lambda point: point.break_even_bytes_per_s) for pick in (min, max))
    return (
        f"Fewer keys and values for more FLOPs: {least.name} ({least.attention.split(',')[0]}) gains from "
        f"{gigabytes_per_second(2.0 * least.break_even_bytes_per_s)} on, {most.name} ({most.attention}) from "
        f"{gigabytes_per_second(2.0 * most.break_even_bytes_per_s)}"
    )


def tight_curves(runs: Sequence[TightRun]) -> list[Curve]:
    """Return the share of tokens computed twice over the size of the KV cache."""
    named = ((False, "without prefix caching", HUES[1]), (True, "with prefix caching", ACCENT))
    found = []
    for caching, words, hue in named:
        points = sorted((run.kv_tokens, 100.0 * run.lost_share) for run in runs if run.prefix_caching == caching)
        found.append(
            Curve(words, points, hue, name_at=0.0 if caching else 0.15, name_place="below left" if caching else "above right")
        )
    return found


def tight_marks(runs: Sequence[TightRun], share: float) -> list[Mark]:
    """Return the cache that was asked for."""
    plain = _at(runs, share, caching=False)
    return [Mark(plain.kv_tokens, 100.0 * plain.lost_share, f"{percent(share)} of the need", HUES[1])]


def tight_title(runs: Sequence[TightRun], share: float) -> str:
    """Return the finding of the runs on smaller caches."""
    plain = _at(runs, share, caching=False)
    cached = _at(runs, share, caching=True)
    if plain.preemptions == 0:
        return f"With {percent(share)} of the cache that the load needs nothing is preempted"
    return (
        f"With {percent(share)} of the cache it needs, {percent(plain.preemptions / max(plain.requests, 1))} of "
        "requests are preempted and "
        f"{percent(plain.lost_share)} of tokens are computed twice; {percent(cached.lost_share)} with prefix caching"
    )


def _at(runs: Sequence[TightRun], share: float, *, caching: bool) -> TightRun:
    own = sorted((run for run in runs if run.prefix_caching == caching), key=lambda run: run.kv_tokens)
    return min(own, key=lambda run: abs(run.kv_tokens - share * own[-1].kv_tokens))


def restore_rows(
    case: Case, found: SwapOrRecompute, measured_s: float | None, runs: Sequence[TightRun] | None, share: float
) -> list[Beside]:
    """Return formula beside simulation."""
    plain = None if runs is None else _at(runs, share, caching=False)
    cached = None if runs is None else _at(runs, share, caching=True)
    each = None if plain is None or not plain.preemptions else plain.lost_tokens / plain.preemptions
    kept = None if cached is None or not cached.preemptions else cached.lost_tokens / cached.preemptions
    best = None if plain is None or plain.tpot_p99_s is None or plain.ttft_p99_s is None else plain
    waits = None if best is None else f"TTFT {seconds(best.ttft_p99_s)}, TPOT {seconds(best.tpot_p99_s)}"
    context = figure(case.context_tokens)
    return [
        Beside(
            "Compute the context again",
            seconds(found.recompute_s),
            None if measured_s is None else seconds(measured_s),
            "Simulated on an idle engine, which also reads the weights and runs the head; beside other work a step "
            "does these anyway.",
        ),
        Beside(
            "Tokens lost to one preemption",
            context,
            None if each is None else figure(each),
            "The formula takes the mean context of a running sequence. The youngest is preempted, and a long one is "
            "likelier to be hit.",
        ),
        Beside(
            "The same with prefix caching",
            "0",
            None if kept is None else figure(kept),
            "Were all its blocks still there, only the last would be computed. Those whom it made room for take some first.",
        ),
        Beside("p99 on the small cache", None, waits),
    ]


def restore_notes(case: Case, path: HostPath, runs: Sequence[TightRun] | None, rate_rps: float) -> list[str]:
    """Return what the figures rest on."""
    notes = [
        (
            "Since V1, vLLM has no swap: a preempted request loses its blocks and its tokens are computed again, save "
            "what the prefix cache "
            "still holds. With --kv-offloading-size (or LMCache, Mooncake) blocks are also kept in host memory and "
            "loaded when it resumes."
        ),
        f"Own path: {path.name}, {gigabytes_per_second(path.bytes_per_s)} ({path.source.kind}: {path.source.ref}). "
        f"{LATENCY_US:g} µs a copy "
        "is an assumption; no measured curve is shipped. Others: "
        + "; ".join(f"{each.name} {each.source.kind}" for each in HOST_PATHS),
        (
            "The offloading connector copied one layer's part of a block at a time, 8 to 72 KB, until 0.12.0; since then "
            "a block's layers lie "
            "together, 2 MB for Llama-3.1-8B (blog.vllm.ai, 8 January 2026; vLLM #27743), though not for MLA (#37090)."
        ),
        "Other models: 16-bit keys and values on one GPU, at the FLOP/s that this case's linear layers reach; attention left out.",
    ]
    if runs is not None:
        notes.append(
            f"Simulated: {max(run.requests for run in runs):,} requests at {figure(rate_rps)} a second, seed "
            f"{case.seed}, on caches from "
            "what the run needs down to two fifths. No prompt shares a prefix with another."
        )
    return notes


def restore_formulas(kv_bytes_per_token: float, found: SwapOrRecompute, whole: SwapOrRecompute, copies: Copies) -> list[str]:
    """Return the derivations with the numbers put in; whole : with copies so large that their latency vanishes."""
    held = f"{kv_bytes_per_token:,.0f}"
    sized = gigabytes_per_second(copy_bytes_per_s(copies))
    return [
        _ratio(whole, held, f"{gigabytes_per_second(copies.bytes_per_s)}, large copies"),
        _ratio(found, held, sized if copies.copy_bytes is None else f"{sized}, copies of {gib(copies.copy_bytes)}"),
        f"break-even = {held} B ÷ {found.recompute_s_per_token / US:.4g} µs = {found.break_even_bytes_per_s / GB:.4g} GB/s one way",
    ]


def _ratio(found: SwapOrRecompute, held: str, rate: str) -> str:
    again, moved = f"{found.recompute_s_per_token / US:.4g} µs", f"{found.transfer_s_per_token / US:.4g} µs"
    ratio = f"{found.one_way:.4g} one way, {found.round_trip:.3g} both"
    return f"{again} to compute a token again ÷ {moved} to copy {held} B at {rate} = {ratio}"


def restore_setting(found: SwapOrRecompute, runs: Sequence[TightRun] | None, share: float) -> str:
    """Return what to set."""
    plain = None if runs is None else _at(runs, share, caching=False)
    first = "Avoid preemption: lower --max-num-seqs until vllm:num_preemptions stands still"
    if plain is not None and plain.preemptions == 0:
        first = "Nothing is preempted here; keep an eye on vllm:num_preemptions"
    if found.swap_wins:
        return f"{first}. Keep prefix caching on, and give it host memory if contexts come back; measure your own link first"
    return f"{first}. Keep prefix caching on; host memory would be slower than computing again at this copy size"


def restore_code(found: SwapOrRecompute) -> str:
    """Return the flags, with memory of the host only where copying wins, and the command that measures the host's link."""
    flags = "--enable-prefix-caching"
    if found.swap_wins:
        flags += " --kv-offloading-size 64   # GiB of host memory, over all GPUs of the replica"
    return (
        f"{flags}\n"
        "python planner/calibration/collect_links.py --quick --out links.jsonl   # measures your copies by size, each way\n"
    )

"""What "Whom to admit?" shows: sentences, curves and rows."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from planner.analysis.admission import AdmissionLimit
from planner.analysis.admission_simulated import BURSTY_CV, Arrivals, Gate, GateRun, Mistakes, Offered, Remainder, RemainderRun
from planner.analysis.case import Case
from planner.analysis.overload import rejection
from planner.analysis.predictor import Aims, DoorBounds
from planner.ui.charts.curves import Curve, Mark, Place, Rule
from planner.ui.colours import GREY, HUES
from planner.ui.views.questions import Beside
from planner.ui.words import DASH, figure, percent, plural, rate, seconds

GATES: dict[Gate, str] = {"none": "no admission", "cap": "queue cap", "predicted": "predicted"}
REMAINDERS: dict[str, Remainder] = {
    "come back when told": "come back",
    "are rejected for good": "reject",
    "go to a second pool": "second pool",
    "wait as batch class": "batch class",
    "queue all the same": "queue",
}
_TOLD: tuple[Remainder, ...] = ("queue", "second pool", "come back")
_HUES: dict[Gate, str] = {"none": GREY, "cap": HUES[1], "predicted": HUES[0]}
_AT: dict[Gate, tuple[float, Place]] = {
    "none": (0.75, "above right"),
    "cap": (0.75, "below left"),
    "predicted": (1.0, "above left"),
}


class Studied(NamedTuple):
    """What the simulations found.

    gates : every gate at every load, both kinds of arrivals; mistakes : of the prediction at the load asked for, by error
    """

    gates: list[GateRun]
    mistakes: list[Mistakes]
    remainders: list[RemainderRun]


def admit_answer(found: AdmissionLimit, aims: Aims) -> str:
    """Return the rule in one sentence."""
    if found.chunk.chunk_tokens == 0:
        return "Admit nobody: the sequences that decode already miss the TPOT target"
    return (
        f"Admit while at most {figure(found.backlog_tokens)} prompt tokens wait: TPOT allows chunks of "
        f"{found.chunk.chunk_tokens:,} tokens, "
        f"which prefill {figure(found.chunk.prefill_tokens_per_s)} tokens/s, and TTFT allows {seconds(aims.ttft_s)} of them"
    )


def gate_curves(runs: Sequence[GateRun], arrivals: Arrivals) -> list[Curve]:
    """Return the goodput over the load for each gate, and the load itself."""
    own = [run for run in runs if run.offered.arrivals == arrivals]
    drawn = []
    for gate, words in GATES.items():
        points = sorted((run.offered.load * 100.0, run.good_rps) for run in own if run.gate == gate)
        at, place = _AT[gate]
        drawn.append(Curve(words, points, _HUES[gate], name_at=at, name_place=place))
    return drawn


def gate_title(runs: Sequence[GateRun], arrivals: Arrivals, load: float) -> str:
    """Return the finding at the load asked for."""
    none, cap, predicted = (gate_at(runs, arrivals, gate, load) for gate in GATES)
    named = "Poisson arrivals" if arrivals == "Poisson" else f"Bursty arrivals (gaps of CV {BURSTY_CV:g})"
    return (
        f"{named}: prediction keeps {percent(predicted.good)} good at {percent(load)} load, a queue cap "
        f"{percent(cap.good)}, no admission "
        f"{percent(none.good)}"
    )


def gate_at(runs: Sequence[GateRun], arrivals: Arrivals, gate: Gate, load: float) -> GateRun:
    """Return one gate's run at a load."""
    return next(run for run in runs if (run.gate, run.offered.arrivals, run.offered.load) == (gate, arrivals, load))


def gate_marks(runs: Sequence[GateRun], arrivals: Arrivals, load: float) -> list[Mark]:
    """Return the load asked for on the prediction's curve."""
    run = gate_at(runs, arrivals, "predicted", load)
    return [Mark(100.0 * load, run.good_rps, f"{figure(run.good_rps)} good/s", HUES[0], "below right")]


def gate_rules(offered: Offered) -> list[Rule]:
    """Return what a full engine carries: one that lets everybody in."""
    return [Rule("y", offered.capacity_rps, f"full engine {rate(offered.capacity_rps)}")]


def error_curves(found: Sequence[Mistakes]) -> list[Curve]:
    """Return what the prediction's error costs."""
    admits = [(each.sigma, 100.0 * each.run.false_admits) for each in found]
    away = [(each.sigma, 100.0 * each.rejected) for each in found]
    good = [(each.sigma, 100.0 * each.run.good) for each in found]
    return [
        Curve("good, of all", good, HUES[0], name_at=0.4, name_place="above right"),
        Curve("turned away, of all", away, HUES[1], name_at=0.4, name_place="above right"),
        Curve("false admits, of those let in", admits, HUES[2], name_at=0.5, name_place="above right"),
    ]


def error_title(found: Sequence[Mistakes], sigma: float) -> str:
    """Return the finding on the prediction's error."""
    exact = found[0]
    own = next(each for each in found if each.sigma == sigma)
    if sigma == 0.0:
        worst = found[-1]
        off = f"A prediction off by σ {figure(worst.sigma)} would keep {percent(worst.run.good)} good"
        return f"{off}; this exact one keeps {percent(exact.run.good)}"
    return f"A prediction off by σ {figure(sigma)} keeps {percent(own.run.good)} good; an exact one {percent(exact.run.good)}"


def remainder_title(runs: Sequence[RemainderRun]) -> str:
    """Return the finding on those who fail the prediction."""
    found: dict[Remainder, RemainderRun] = {run.remainder: run for run in runs}
    queue, pool, back = (percent(found[way].good) for way in _TOLD)
    return f"Queued all the same they leave {queue} good; if they come back when told it is {back}, with a second pool {pool}"


def remainder_frame(runs: Sequence[RemainderRun]) -> pd.DataFrame:
    """Return what becomes of those who fail the prediction, way by way."""
    named = {way: words for words, way in REMAINDERS.items()}
    return pd.DataFrame(
        {
            "Those who fail": [named[run.remainder] for run in runs],
            "Good, of all": [percent(run.good) for run in runs],
            "Good, of those admitted": [percent(run.good_first) for run in runs],
            "Answered": [percent(run.answered) for run in runs],
            "Their median wait": [DASH if run.median_s is None else seconds(run.median_s) for run in runs],
            "Load of the second pool": [DASH if run.pool_load is None else percent(run.pool_load) for run in runs],
        }
    )


def admit_rows(offered: Offered, bounds: DoorBounds, sigma: float, studied: Studied | None) -> list[Beside]:
    """Return what formulas say of the gate beside what simulation finds."""
    excess = max(1.0 - bounds.batch.rate_rps / offered.rate_rps, 0.0)
    own = None if studied is None else next(each for each in studied.mistakes if each.sigma == sigma)
    carried = None if studied is None else gate_at(studied.gates, "Poisson", "predicted", offered.load)
    alone = None if own is None or own.alone is None else percent(own.alone)
    harmless = None if own is None or own.false_rejects is None else percent(own.false_rejects)
    return [
        Beside(
            "Goodput of the gate",
            rate(min(bounds.batch.rate_rps, offered.rate_rps)),
            None if carried is None else rate(carried.good_rps),
            "The formula is the flow through the batch that holds TPOT; a short run ends with the batch full, which adds a little. "
            + _beyond(offered, bounds),
        ),
        Beside(
            "Turned away",
            percent(excess),
            None if own is None else percent(own.rejected),
            "The formula turns away what exceeds that flow; a gate also turns away in the peaks of a load that it "
            "carries on average.",
        ),
        Beside(
            "False admits, of those let in",
            "0 %",
            None if own is None else percent(own.run.false_admits),
            "The rule counts prompts that wait now. Outputs of unknown length, the prompts of those who come after, "
            "and the prediction's "
            "error make it wrong.",
        ),
        Beside(
            "False rejects, of those turned away",
            None,
            harmless,
            "They would have met both targets, let in alone, and cost nobody else theirs. "
            + ("" if alone is None else f"Others' targets aside it is {alone}: one more always fits, many don't."),
        ),
    ]


def _beyond(offered: Offered, bounds: DoorBounds) -> str:
    """Return why a gate carries more than an engine that lets everybody in, where it does."""
    if bounds.batch.rate_rps <= offered.capacity_rps:
        return ""
    return (
        f"That is more than the {rate(offered.capacity_rps)} of a full engine, which runs as many as max_num_seqs "
        f"and the KV cache take, preempted ones again; here at most {plural(bounds.unfinished, 'request')} are inside."
    )


def admit_formulas(found: AdmissionLimit) -> tuple[str, str]:
    """Return the derivation of the chunk, and of what may wait."""
    return found.chunk.explanation.formula, f"{found.explanation.formula} = {found.backlog_tokens:,.0f} prompt tokens"


def admit_notes(case: Case, offered: Offered, studied: Studied | None) -> list[str]:
    """Return what the figures rest on."""
    notes = [
        (
            "The door counts whole prompts of requests without a first token, and predicts the wait for a place where "
            "max_num_seqs or the "
            "KV cache is full. It knows no output length, so it needs none predicted."
        ),
        (
            "There is no admission by prediction in vLLM: --max-num-queued-reqs and --max-num-queued-tokens are its bounds, and "
            "a gateway does the "
            "rest."
        ),
        "The error is log-normal with median 1: σ 0.2 puts half of the predictions within 14 %. It is assumed; measure yours.",
    ]
    if studied is not None:
        sampled = studied.mistakes[0].sampled
        notes.append(
            f"Simulated: {offered.requests:,} requests a run at seed {case.seed}; each of up to {sampled} of those "
            "turned away is let in "
            "alone, in a run of its own."
        )
    return notes


def admit_setting(chosen: Remainder, studied: Studied | None) -> str:
    """Return what to set for those who fail."""
    texts: dict[Remainder, str] = {
        "come back": "Reject with 503 and Retry-After at the door; clients add jitter",
        "reject": "Reject with 503 at the door, and send the client elsewhere",
        "second pool": "Let the gateway send what is rejected to a second pool, perhaps of a smaller model, whose "
        "load shrinks with it",
        "batch class": "Send them as a lower class with --scheduling-policy priority. A running request never loses "
        "its place to one of "
        "higher priority, so cap the class (Sharing)",
        "queue": "Nothing: they wait in the same queue, and whoever comes after them waits too",
    }
    load = None if studied is None else next(run.pool_load for run in studied.remainders if run.remainder == "second pool")
    if chosen != "second pool" or load is None:
        return texts[chosen]
    return f"{texts[chosen]}. Here they would load a second replica like this one to {percent(load)} of what it carries"


def admit_code(chosen: Remainder, found: AdmissionLimit, bounds: DoorBounds, aims: Aims) -> tuple[str, str]:
    """Return what to copy, and its language."""
    tokens = max(int(found.backlog_tokens), 1)
    flags = f"--max-num-queued-reqs {bounds.unfinished} --max-num-queued-tokens {tokens}"
    if chosen in ("come back", "reject"):
        response = rejection(2.0 * aims.ttft_s, aims.ttft_s).response
        return f"# vLLM\n{flags}\n\n# what the gateway answers\n{response}", "http"
    if chosen == "second pool":
        return (
            (
                f"# vLLM of the first pool: {flags}\n"
                "location /v1/ "
                "{\n    proxy_pass http://first_pool;\n    proxy_intercept_errors on;\n    error_page 503 = @second_pool;\n}\n"
                "location @second_pool {\n    proxy_pass http://second_pool;\n}\n"
            ),
            "nginx",
        )
    if chosen == "batch class":
        return (
            (
                f"--scheduling-policy priority --max-num-seqs {bounds.batch.sequences}\n"
                '# and in the request that failed the prediction: "priority": 1\n'
            ),
            "bash",
        )
    return "# no flag: vLLM's queue has no bound by default\n", "bash"

"""What the view on tenants shows: its bars, curves, dots and figures beside each other, its sentences."""

from collections.abc import Sequence

from planner.analysis.case import Case
from planner.analysis.fairness import Request, ServiceShares, TokenWeights
from planner.analysis.fairness_simulated import (
    BY_REQUESTS,
    COUNTER,
    NO_LIFT,
    Behaviour,
    SimulatedTenants,
    TenantRun,
    Tenants,
)
from planner.analysis.head_of_line_simulated import FIRST_COME
from planner.analysis.steps import Decoders
from planner.ui.charts.curves import Curve, Rule
from planner.ui.charts.sharing import Dot, Part
from planner.ui.colours import ACCENT, HUES
from planner.ui.views.questions import Beside
from planner.ui.words import figure, percent, plural, seconds

FIRST, SECOND = "documents", "chat"
BEHAVIOURS: dict[str, Behaviour] = {
    "Both always wait": "both wait",
    "Chat comes back from a pause": "second returns",
    "Documents flood, chat is modest": "first floods",
}
TEXTBOOK_DECODERS = Decoders(64.0, 2048.0)
_TEXTBOOK = (Request(16_384.0, 200.0), Request(200.0, 100.0))
_DOCUMENT_FACTOR = 16.0
_LABELS = {FIRST_COME: " (vLLM by itself)", NO_LIFT: " (what it prevents)"}


def decoders_of(case: Case) -> Decoders:
    """Return the batch in which output tokens decode: the textbook's, else a full one, in which tenants compete."""
    if case.textbook:
        return TEXTBOOK_DECODERS
    return case.decoders(case.full_batch)


def default_requests(case: Case) -> tuple[Request, Request]:
    """Return the tenants that the view opens with: the textbook's, else the workload's mean request and one with a long prompt."""
    if case.textbook:
        return _TEXTBOOK
    usual = Request(float(round(case.lengths.prompt_mean_tokens)), float(max(round(case.lengths.output_mean_tokens), 1)))
    most = min(case.kv_tokens, case.limits.max_model_len or case.kv_tokens) // 2
    return Request(float(min(round(_DOCUMENT_FACTOR * usual.prompt_tokens), most)), usual.output_tokens), usual


def label(name: str) -> str:
    """Return the name of a way to count, with what vLLM has of it."""
    return f"{name}{_LABELS.get(name, '')}"


def share_parts(found: SimulatedTenants) -> Sequence[Part]:
    """Return both tenants' shares under each way."""
    parts: list[Part] = []
    for run in found.runs:
        first, second = run.shares
        parts.append(Part(label(run.name), FIRST, 0.0, first, f"{percent(first)}"))
        parts.append(Part(label(run.name), SECOND, first, 1.0, f"{percent(second)}"))
    return parts


def share_rule(tenants: Tenants) -> tuple[float, str]:
    """Return what the documents are owed."""
    owed = tenants.owed[0] / sum(tenants.owed)
    return owed, f"owed {percent(owed)}"


def share_title(tenants: Tenants, found: SimulatedTenants) -> str:
    """Return the finding on shares."""
    by_request, counter = found.run(BY_REQUESTS), found.run(COUNTER)
    if tenants.behaviour == "second returns":
        gone = found.run(NO_LIFT).shares[1]
        return (
            f"Chat comes back to {percent(counter.shares[1])} of the engine under the counter; with the credit of its idle time it "
            f"takes {percent(gone)}"
        )
    return (
        f"Counting requests gives documents {percent(by_request.shares[0])} of the engine, the virtual token counter "
        f"{percent(counter.shares[0])}"
    )


def service_curves(run: TenantRun) -> Sequence[Curve]:
    """Return both tenants' service over time under one way."""
    times_s = run.times_s.tolist()
    first, second = (list(zip(times_s, run.service_s[:, column].tolist(), strict=True)) for column in (0, 1))
    above = run.service_s[-1, 0] >= run.service_s[-1, 1]
    return (
        Curve(FIRST, first, ACCENT, name_place="above left" if above else "below left"),
        Curve(SECOND, second, HUES[1], name_place="below left" if above else "above left"),
    )


def service_rules(tenants: Tenants, found: SimulatedTenants) -> Sequence[Rule]:
    """Return when chat comes back."""
    if tenants.behaviour != "second returns":
        return ()
    return (Rule("x", found.contended_s, "chat comes back"),)


def service_title(run: TenantRun) -> str:
    """Return the finding on one way's service over time."""
    return f"{run.name}: Jain index {run.jain:.2f}, service drifts apart by up to {seconds(run.gap_s)}"


def wait_dots(found: SimulatedTenants) -> Sequence[Dot]:
    """Return the longest wait of each tenant's requests under each way."""
    dots: list[Dot] = []
    for run in found.runs:
        for name, wait in zip((FIRST, SECOND), run.waits, strict=True):
            note = f"median {seconds(wait.median_s)}" + (
                f", {plural(wait.unserved, 'request')} still waiting" if wait.unserved else ""
            )
            at_least = "at least " if wait.unserved else ""
            dots.append(Dot(label(run.name), name, wait.worst_s, f"{at_least}{seconds(wait.worst_s)}", note))
    return dots


def wait_title(found: SimulatedTenants) -> str:
    """Return what a flood does to the modest tenant's wait."""
    first, counter = found.run(FIRST_COME).waits[1], found.run(COUNTER).waits[1]
    return (
        f"A flood of documents makes chat wait {seconds(first.worst_s)} or more under first come, {seconds(counter.worst_s)} at "
        "worst under the counter"
    )


def tenant_rows(closed: ServiceShares, bound_s: float, tenants: Tenants, found: SimulatedTenants | None) -> tuple[Beside, ...]:
    """Return what formulas say beside the simulated shares."""
    by_request = None if found is None else found.run(BY_REQUESTS)
    counter = None if found is None else found.run(COUNTER)
    both = tenants.behaviour == "both wait"
    parts = (
        "Agrees while both always have requests waiting and are owed alike: they then take turns"
        if both
        else "The formula takes both to wait always; here one doesn't, and what it leaves goes to the other"
    )
    return (
        Beside(
            "Documents' share, requests counted",
            percent(closed.linear[0]),
            None if by_request is None else percent(by_request.shares[0]),
            parts,
        ),
        Beside(
            "The same, prompts' attention counted",
            percent(closed.full[0]),
            None,
            "A weight for each token leaves out attention, which grows with the square of the prompt: long prompts cost more than "
            "any weighted count of tokens says",
        ),
        Beside(
            "Jain index, requests counted", f"{closed.jain_index:.2f}", None if by_request is None else f"{by_request.jain:.2f}"
        ),
        Beside(
            "Service apart, virtual token counter",
            f"at most {seconds(bound_s)}",
            None if counter is None else seconds(counter.gap_s),
            (
                "The bound of Sheng et al. (OSDI 2024) is twice a cache full of output tokens, for tenants owed alike that both "
                "wait: it holds from the moment on at which both do, and is loose where the cache is large"
            ),
        ),
    )


def tenant_notes(case: Case, found: SimulatedTenants | None) -> tuple[str, ...]:
    """Return what the figures rest on."""
    notes = [
        (
            "Service is GPU time by these weights, whatever a way counts. The counter follows Sheng et al., Fairness in Serving "
            "Large Language Models (OSDI 2024), whose own weights are 1 and 2; a tenant that comes back starts level with the "
            "others (the lift), so that idle time banks no credit. Jain's index: Jain, Chiu, Hawe, DEC-TR-301 (1984)."
        )
    ]
    if found is not None:
        notes.append(
            f"Simulated for {seconds(found.span_s)}, shares from {seconds(found.contended_s)} on; {found.sent[0]:,} requests of "
            f"documents and {found.sent[1]:,} of chat sent; seed {case.seed}; the same requests under each way. Requests that "
            "still wait at the end count with their wait so far."
        )
    return tuple(notes)


def tenant_setting(weights: TokenWeights) -> str:
    """Return what to set."""
    return (
        f"No engine here knows tenants, vLLM among them, so that the gateway must count: 1 for a prompt token, "
        f"{figure(weights.weight)} for an output token, the least served tenant's request sent on whenever the engine has room. "
        "llm-d's gateway queues by the header x-llm-d-inference-fairness-id (its reference of HTTP headers, 0.8)"
    )


def tenant_code(weights: TokenWeights, tenants: Tenants) -> str:
    """Return the counter to copy."""
    first, second = tenants.owed
    return (
        "from collections import defaultdict, deque\n\n"
        f"PROMPT, OUTPUT = 1.0, {weights.weight:.3g}\n"
        f'OWED = defaultdict(lambda: 1.0, {{"{FIRST}": {first:g}, "{SECOND}": {second:g}}})\n'
        "queues, served = defaultdict(deque), defaultdict(float)\n\n\n"
        "def arrive(tenant, request):\n"
        "    waiting = [served[other] for other in queues if queues[other]]\n"
        "    if not queues[tenant] and waiting:\n"
        "        served[tenant] = max(served[tenant], min(waiting))  # the lift: no credit for idle time\n"
        "    queues[tenant].append(request)\n\n\n"
        "def next_request():  # call it while fewer than max_num_seqs requests are in the engine\n"
        "    tenant = min((each for each in queues if queues[each]), key=served.__getitem__, default=None)\n"
        "    if tenant is None:\n"
        "        return None\n"
        "    request = queues[tenant].popleft()\n"
        "    served[tenant] += PROMPT * request.prompt_tokens / OWED[tenant]\n"
        "    return tenant, request\n\n\n"
        "def streamed(tenant, tokens):  # as output tokens come\n"
        "    served[tenant] += OUTPUT * tokens / OWED[tenant]\n"
    )


def compared(tenants: Tenants) -> str:
    """Return the way whose service over time stands beside the counter's: what the lift prevents, or counting requests."""
    return NO_LIFT if tenants.behaviour == "second returns" else BY_REQUESTS

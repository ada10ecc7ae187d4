"""What a replay simulates: the requests, and the engine of a planned candidate with some settings changed."""

from dataclasses import dataclass, replace

from planner.errors import InputError
from planner.memory import memory_budget
from planner.plans import Candidate, Plan
from planner.plans.capacity import SEARCH_REQUESTS, demand_for
from planner.plans.results import Knobs
from planner.plans.starting import Engine, default_knobs, replica_of, with_knobs
from planner.replay.settings import ReplaySettings
from planner.simulator import EngineLimits
from planner.step_coefficients import coefficients_for
from planner.step_model import StepCoefficients
from planner.workloads import GammaArrivals, Requests, RowsLengths, TraceArrivals, Workload, load_trace

_MOST_BLOCK_IDENTITIES = 40_000_000


@dataclass(frozen=True, slots=True)
class Setup:
    """One engine, ready to serve.

    request_s : time that a request spends outside the engine before its first token [s]
    """

    limits: EngineLimits
    coefficients: StepCoefficients
    request_s: float


def setup_of(plan: Plan, candidate: Candidate, settings: ReplaySettings) -> Setup:
    """Return the candidate's engine with the settings' changes; without any, the one that the plan simulated.

    Raises InputError for settings with which the engine would refuse to start.
    """
    engine = _engine_of(candidate)
    deployment = engine.deployment
    knobs = candidate.knobs or default_knobs(plan.scenario, deployment)
    logged = plan.scenario.engine.logged_kv_tokens
    wanted = Knobs(settings.max_num_seqs or knobs.max_num_seqs, settings.max_num_batched_tokens or knobs.max_num_batched_tokens)
    engine = with_knobs(engine, wanted, logged)
    if settings.async_scheduling not in (None, deployment.engine.async_scheduling):
        engine = _rescheduled(engine, logged, asynchronous=bool(settings.async_scheduling))
    if not engine.memory.fits:
        reason = engine.memory.shortfall.reason if engine.memory.shortfall is not None else "the engine would not start"
        raise InputError(
            "max_num_batched_tokens",
            wanted.max_num_batched_tokens,
            f"leaves too little memory: {reason}",
            "Lower it or max_num_seqs",
        )
    replica = replica_of(engine, demand_for(plan.workload, SEARCH_REQUESTS, plan.scenario.seed))
    limits = replica.limits(wanted)._replace(enable_prefix_caching=bool(settings.enable_prefix_caching))
    return Setup(limits, replica.coefficients, replica.request_s)


def starts(candidate: Candidate) -> bool:
    """Say whether the candidate's engine would start, whatever its latencies."""
    memory = candidate.memory
    return candidate.deployment is not None and candidate.record is not None and memory is not None and memory.fits


def _engine_of(candidate: Candidate) -> Engine:
    deployment, record, memory = candidate.deployment, candidate.record, candidate.memory
    if deployment is None or record is None or memory is None or not memory.fits:
        raise InputError("plan", candidate.label, "has no engine that starts", "Choose another candidate")
    own = Knobs(deployment.engine.max_num_seqs, deployment.engine.max_num_batched_tokens)
    return Engine(deployment, record, candidate.coefficients or coefficients_for(deployment, record), memory, own)


def _rescheduled(engine: Engine, logged_kv_tokens: int | None, *, asynchronous: bool) -> Engine:
    """Return the engine with scheduling hidden behind the GPU or not: step times and memory follow."""
    config = engine.deployment.engine.replace(async_scheduling=asynchronous)
    deployment = replace(engine.deployment, engine=config)
    coefficients = coefficients_for(deployment, engine.record)
    return replace(engine, deployment=deployment, coefficients=coefficients, memory=memory_budget(deployment, logged_kv_tokens))


def can_replay_recorded(workload: Workload) -> bool:
    """Say whether the workload has rows with arrival times that can be replayed in their order."""
    return _refusal_of_recorded(workload) is None


def requests_for(workload: Workload, settings: ReplaySettings, rate_rps: float, seed: int) -> Requests:
    """Return the requests to serve; same arguments, same requests.

    rate_rps : mean rate; the same requests at another rate have their arrival times stretched [request/s]

    Synthetic requests are the plan's own sample of the workload, as long as their number and seed are. A workload with an hourly
    profile is sampled within its planned hour.
    """
    within = Workload.model_validate_json(demand_for(workload, settings.requests, seed).key)
    if settings.order == "recorded":
        within = _recorded(within)
    elif settings.arrival_cv is not None:
        within = within.model_copy(update={"arrivals": GammaArrivals(cv=settings.arrival_cv)})
    _check_identities(within, settings.requests)
    requests = within.sample_requests(settings.requests, 1.0, seed)
    hashes = requests.block_hashes if settings.enable_prefix_caching else None
    return replace(requests, arrival_s=requests.arrival_s / rate_rps, block_hashes=hashes)


def knows_prefixes(workload: Workload, settings: ReplaySettings) -> bool:
    """Say whether the requests come with the content of their prompts' blocks, without which a prefix cache finds nothing."""
    lengths = workload.lengths
    in_order = isinstance(lengths, RowsLengths) and (settings.order == "recorded" or lengths.draw == "in_order")
    return in_order and isinstance(lengths, RowsLengths) and load_trace(lengths.trace).block_hashes is not None


def _recorded(workload: Workload) -> Workload:
    refusal = _refusal_of_recorded(workload)
    if refusal is not None or not isinstance(workload.lengths, RowsLengths):
        raise InputError("order", "recorded", f"{refusal}", "Replay synthetic requests, or upload a trace with arrival times")
    trace = workload.lengths.trace
    lengths = workload.lengths.model_copy(update={"draw": "in_order"})
    return workload.model_copy(update={"lengths": lengths, "arrivals": TraceArrivals(trace=trace, window="first")})


def _refusal_of_recorded(workload: Workload) -> str | None:
    lengths = workload.lengths
    if not isinstance(lengths, RowsLengths):
        return f"{workload.name} has no rows to replay"
    if lengths.keep is not None or lengths.prompt_factor != 1 or lengths.output_factor != 1:
        return f"{workload.name} filters or scales its rows"
    if any(each.lengths is not None for each in workload.classes):
        return f"{workload.name} mixes classes with lengths of their own"
    trace = load_trace(lengths.trace)
    if trace.arrival_s is None or len(trace) < 2 or trace.arrival_s[-1] <= trace.arrival_s[0]:
        return f"{workload.name} has rows without arrival times"
    return None


def _check_identities(workload: Workload, count: int) -> None:
    """Refuse so many requests that the identities of their prompt blocks would fill the memory."""
    if not isinstance(workload.lengths, RowsLengths) or workload.lengths.draw != "in_order":
        return
    trace = load_trace(workload.lengths.trace)
    if trace.block_hashes is None:
        return
    most = int(_MOST_BLOCK_IDENTITIES * len(trace) / max(len(trace.block_hashes.flat), 1))
    if count > most:
        raise InputError("requests", count, f"must be at most {most} for a trace with block identities", "Replay fewer requests")

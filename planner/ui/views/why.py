"""The derivation of each figure: the formula with the numbers put in, and where they come from."""

from dataclasses import dataclass

from planner.calibration.records import CalibrationRecord
from planner.deployment import Deployment
from planner.plans.results import Candidate, Plan
from planner.provenance import Source
from planner.step_coefficients import compute_dtype_on, weight_class
from planner.ui.views.rows import planned_step
from planner.ui.words import day, figure, gib, gigabytes_per_second, percent, plural, rate, seconds, span, stop, teraflops, usd
from planner.units import DAY_S, HOURS_PER_DAY

_BASIS = {
    "fitted": "fitted to measurements of this GPU and engine",
    "published": "published measurements of this GPU",
    "prior": "a prior: other GPUs' measurements, scaled",
    "textbook": "the textbook setting",
}


@dataclass(frozen=True, slots=True)
class SourceRow:
    """One figure with its origin.

    value : as text with its unit; empty where the figure is a law or a whole table
    """

    figure: str
    value: str
    kind: str
    confidence: str
    date: str
    reference: str


@dataclass(frozen=True, slots=True)
class Derivation:
    """How one figure of the answer came about.

    lines : the steps in order, each a formula with its numbers
    """

    title: str
    lines: tuple[str, ...]
    sources: tuple[SourceRow, ...]


def derivations(plan: Plan) -> tuple[Derivation, ...]:
    """Return the derivation of every figure of the answer; of the load alone when there is none."""
    chosen = plan.chosen
    if chosen is None or plan.details is None:
        return (_load(plan),)
    return (_load(plan), _memory(chosen), _capacity(plan, chosen), _replicas(chosen), _latency(plan, chosen), _cost(plan, chosen))


def source_row(name: str, value: str, source: Source) -> SourceRow:
    """Return a figure with its source for a table."""
    reference = f"{source.ref} ({source.note})" if source.note else source.ref
    return SourceRow(name, value, source.kind, source.confidence, day(source.retrieved), reference)


def _load(plan: Plan) -> Derivation:
    load, lengths = plan.load, plan.lengths
    prompt, output = lengths.prompt_mean_tokens, lengths.output_mean_tokens
    total = prompt + output
    return Derivation(
        f"Load: {rate(load.peak_rps)} of {figure(prompt)} prompt and {figure(output)} output tokens",
        (
            f"Stated: {load.stated}.",
            f"Mean {rate(load.mean_rps)} × peak factor {figure(load.peak_factor)} = {rate(load.peak_rps)} to plan for.",
            stop(load.peak_source),
            _lengths(
                "Prompt",
                (lengths.prompt_mean_tokens, lengths.prompt_p50_tokens, lengths.prompt_p95_tokens, lengths.prompt_p99_tokens),
            ),
            _lengths(
                "Output",
                (lengths.output_mean_tokens, lengths.output_p50_tokens, lengths.output_p95_tokens, lengths.output_p99_tokens),
            ),
            f"A sequence that runs holds {figure(lengths.running_context_mean_tokens)} tokens on average: E[O (P + O/2)] ÷ E[O].",
            (
                f"Tokens a day at the mean rate: {rate(load.mean_rps)} × {figure(total)} × {DAY_S:,.0f} s = "
                f"{figure(load.mean_rps * total * DAY_S)}."
            ),
        ),
        tuple(source_row(name, "", plan.workload.source_for(name)) for name in ("lengths", "arrivals")),
    )


def _lengths(name: str, values: tuple[float, float, float, float]) -> str:
    mean, p50, p95, p99 = (figure(value) for value in values)
    return f"{name}: mean {mean}, p50 {p50}, p95 {p95}, p99 {p99} tokens."


def _memory(chosen: Candidate) -> Derivation:
    memory, deployment = chosen.memory, chosen.deployment
    if memory is None or deployment is None:
        return Derivation("KV cache", (), ())
    taken = [part for part in memory.parts() if part.name not in {"kv cache", "not used"} and part.bytes > 0.0]
    return Derivation(
        f"KV cache: {figure(memory.kv_tokens)} tokens on each replica",
        (
            (
                f"{gib(memory.total_bytes)} that the driver reports × gpu_memory_utilization "
                f"{figure(deployment.engine.gpu_memory_utilization)} = {gib(memory.requested_bytes)}."
            ),
            f"Less {', '.join(f'{part.name} {gib(part.bytes)}' for part in taken)} = {gib(memory.kv_bytes)} for the KV cache.",
            (
                f"{gib(memory.kv_bytes)} ÷ {gib(memory.layout.bytes_per_block)} a block of {memory.block_size} tokens = "
                f"{figure(memory.num_gpu_blocks)} blocks, {figure(memory.kv_tokens)} tokens as the engine prints it."
            ),
        ),
        tuple(source_row(part.name, gib(part.bytes), part.source) for part in memory.parts() if part.bytes > 0.0),
    )


def _capacity(plan: Plan, chosen: Candidate) -> Derivation:
    targets, knobs, details = plan.scenario.targets, chosen.knobs, plan.details
    if knobs is None or chosen.latency is None or details is None:
        return Derivation("Capacity of one replica", (), ())
    wanted = [
        f"p99 {name} ≤ {seconds(value_s)}"
        for name, value_s in (("TTFT", targets.ttft_p99_s), ("TPOT", targets.tpot_p99_s))
        if value_s
    ]
    default = details.default
    lines = [
        (
            f"The largest arrival rate at which {' and '.join(wanted) if wanted else 'the queue does not grow'}: "
            f"{rate(chosen.capacity_rps)} a replica ({chosen.latency.method}). What stops it: {chosen.binds}."
        ),
        (
            f"Searched {plural(len(details.knob_map), 'pair')} of settings; the best is max_num_seqs {figure(knobs.max_num_seqs)}, "
            f"max_num_batched_tokens {figure(knobs.max_num_batched_tokens)}."
        ),
        f"The engine's own settings (max_num_seqs {figure(default.knobs.max_num_seqs)}, max_num_batched_tokens "
        f"{figure(default.knobs.max_num_batched_tokens)}) reach "
        + (rate(default.capacity_rps) if default.capacity_rps is not None else "no rate within the targets")
        + f"; {default.binds} binds.",
        (
            f"Over the calibration's error the capacity lies between {rate(details.capacity_rps.low)} and "
            f"{rate(details.capacity_rps.high)}. {stop(details.interval_source)}"
        ),
    ]
    return Derivation(f"Capacity: {rate(chosen.capacity_rps)} a replica", tuple(lines), _calibration_sources(chosen))


def _replicas(chosen: Candidate) -> Derivation:
    replicas = chosen.replicas
    if replicas is None:
        return Derivation("Replicas", (), ())
    return Derivation(
        f"Replicas: {replicas.total:,}",
        (
            (
                f"⌈{rate(replicas.rate_rps)} ÷ ({rate(replicas.capacity_rps)} × (1 − {percent(replicas.headroom)} headroom))⌉ "
                f"= {plural(replicas.needed, 'replica')}, plus {plural(replicas.spares, 'spare')} = {replicas.total:,}."
            ),
            f"{replicas.total:,} × {plural(chosen.tensor_parallel, 'GPU')} = {replicas.total * chosen.tensor_parallel:,} in all.",
            (
                f"Each runs at {percent(replicas.utilisation)} of its capacity with the spares down, "
                f"{percent(replicas.utilisation_all_up)} with all up. One more is needed above "
                f"{rate(replicas.next_replica_at_rps)}."
            ),
        ),
        (),
    )


def _latency(plan: Plan, chosen: Candidate) -> Derivation:
    latency, record, deployment = chosen.latency, chosen.record, chosen.deployment
    if latency is None or record is None or deployment is None:
        return Derivation("Latency", (), ())
    gpu = deployment.gpu
    lines = [
        (
            f"At {rate(latency.rate_rps)} a replica {figure(latency.running_mean)} sequences run on average and fill "
            f"{percent(latency.kv_utilisation)} of the KV cache ({latency.method})."
        ),
        (
            f"TTFT: mean {seconds(latency.ttft_mean_s)}, p99 {seconds(latency.ttft_p99_s)}. "
            f"TPOT: mean {seconds(latency.tpot_mean_s)}, p99 {seconds(latency.tpot_p99_s)}."
        ),
    ]
    step = planned_step(plan)
    if step is not None:
        parts = ", ".join(f"{name.replace('_', ' ')} {seconds(part_s)}" for name, part_s in step.parts().items() if part_s > 0.0)
        lines.append(
            f"A decode step at that load: {parts}; hidden behind other work {seconds(step.hidden_s)}; "
            f"together {seconds(step.total_s)}."
        )
    if chosen.link is not None:
        speed = gigabytes_per_second(chosen.link.unidirectional_bytes_per_s)
        lines.append(f"All-reduces go over {chosen.link.kind}, {speed} one way: {chosen.link.reason}.")
    if plan.details is not None and plan.details.mean_field is not None:
        check = plan.details.mean_field
        lines.append(
            f"Cross-check by the mean-field formulas: p99 TTFT {seconds(check.ttft_p99_s)}, p99 TPOT {seconds(check.tpot_p99_s)}."
        )
    lines.append(_evidence(record))
    dtype = _compute_dtype(deployment)
    bandwidth, peak = gigabytes_per_second(gpu.memory_bytes_per_s), teraflops(gpu.dense_flops_per_s.get(dtype))
    datasheet = (
        source_row("memory bandwidth", bandwidth, gpu.source_for("memory_bytes_per_s")),
        source_row(f"dense {dtype}", peak, gpu.source_for(f"dense_flops_per_s.{dtype}")),
    )
    return Derivation(
        f"Latency: p99 TTFT {seconds(latency.ttft_p99_s)}, p99 TPOT {seconds(latency.tpot_p99_s)}",
        tuple(lines),
        (*datasheet, *_calibration_sources(chosen)),
    )


def _evidence(record: CalibrationRecord) -> str:
    basis = f"Calibration {record.id}: {_BASIS.get(record.basis, record.basis)}."
    if record.evidence is None or not record.evidence.rows:
        return f"{basis} No measurement of this GPU stands behind it; measure a few steps on yours before you rely on it."
    worst = max((group.median_abs_pct for group in record.evidence.groups), default=None)
    held = [group.held_out_median_abs_pct for group in record.evidence.groups if group.held_out_median_abs_pct is not None]
    error = f" Median error on the measured steps up to {figure(worst)} %" if worst is not None else ""
    held_out = f", up to {figure(max(held))} % on steps that were left out of the fit" if held else ""
    return f"{basis} {plural(record.evidence.rows, 'measured step')}.{error}{held_out}{'.' if error else ''}"


def _compute_dtype(deployment: Deployment) -> str:
    return compute_dtype_on(deployment.gpu, deployment.quantization, deployment.engine.engine)


def _calibration_sources(chosen: Candidate) -> tuple[SourceRow, ...]:
    """Return the calibration's figures that this deployment uses: its own dtypes and TP size."""
    record, deployment = chosen.record, chosen.deployment
    if record is None or deployment is None:
        return ()
    weights, compute = weight_class(deployment.quantization.weight_bits), _compute_dtype(deployment)
    used = {f"memory_efficiency.{weights}", f"compute_efficiency.{compute}", f"all_reduce.{chosen.tensor_parallel}"}
    rows = []
    for name, parameter in record.parameters():
        table, _, rest = name.partition(".")
        if rest and f"{table}.{rest.partition('.')[0]}" not in used:
            continue
        write = gigabytes_per_second if name.endswith("bytes_per_s") else seconds if name.endswith("_s") else figure
        value = f"{write(parameter.value)} ({span(write(parameter.low), write(parameter.high))})"
        rows.append(source_row(name, value, parameter.source))
    return tuple(rows)


def _cost(plan: Plan, chosen: Candidate) -> Derivation:
    cost = chosen.cost
    if cost is None:
        return Derivation("Cost", (), ())
    tariff, placement, lengths = cost.tariff, cost.placement, plan.lengths
    per_day = plan.load.mean_rps * (lengths.prompt_mean_tokens + lengths.output_mean_tokens) * DAY_S
    row = SourceRow(
        f"{tariff.instance}, {tariff.region}",
        f"{usd(tariff.usd_per_instance_hour)}/h",
        "published" if tariff.as_of else "given by you",
        "—",
        day(tariff.as_of),
        tariff.source,
    )
    return Derivation(
        f"Cost: {usd(cost.usd_per_day)}/day, {usd(cost.usd_per_million_tokens)} per million tokens",
        (
            (
                f"{plural(placement.instances, 'machine')} × {usd(tariff.usd_per_instance_hour)}/h × {HOURS_PER_DAY:.0f} h = "
                f"{usd(cost.usd_per_day)}/day: {tariff.provider} {tariff.instance}, {tariff.region}, {tariff.basis}."
            ),
            (
                f"GPUs of one machine: {figure(tariff.gpus_per_instance)}; {figure(placement.gpus_used)} of "
                f"{figure(placement.gpus_paid)} paid GPUs hold a replica."
            ),
            (
                f"{usd(cost.usd_per_day)} ÷ {figure(per_day)} tokens a day = {usd(cost.usd_per_million_tokens)} per million, "
                "idle hours, headroom and spares included."
            ),
            (
                f"Split by the GPU time of a token: {usd(cost.usd_per_million_prompt_tokens)} per million prompt tokens, "
                f"{usd(cost.usd_per_million_output_tokens)} per million output tokens."
            ),
        ),
        (row,),
    )

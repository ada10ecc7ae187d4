"""Prometheus alert rules for a planned fleet: when to look, what the plan says of it, and what to do.

Metric names, labels and histogram buckets as vLLM 0.32.0 exposes them at /metrics (v1/metrics/loggers.py and buckets.py; read
from a running server's text, November 2026).
"""

import bisect
import json
from collections.abc import Sequence
from dataclasses import dataclass

from planner.analysis.alerting import queue_threshold
from planner.errors import InputError
from planner.exporters.flags import served_name
from planner.models import ModelSpec
from planner.plans.results import Candidate, Plan
from planner.units import duration

TTFT_BUCKETS_S = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0,
    640.0, 2560.0,
)  # fmt: skip
TPOT_BUCKETS_S = (
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
)  # fmt: skip
DRIFT_SHARE = 0.2
KV_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule.

    expression : PromQL that is true while something is wrong
    hold_minutes : how long it must be true before anyone is told
    severity : "page" wakes somebody, "ticket" is read by day
    sign : what is seen, in a few words; summary, action : what is seen and what to do, a sentence each
    """

    name: str
    expression: str
    hold_minutes: int
    severity: str
    sign: str
    summary: str
    action: str


def alerts_for(plan: Plan) -> tuple[Alert, ...]:
    """Return the rules that watch what the plan rests on; raises InputError for a plan without an answer or for offline work.

    Latency and queue are watched against the targets, arrivals against the rate that the fleet carries, replicas against the number
    that must be up, lengths against the workload's means (20 % either way, an assumed bound).
    """
    chosen = plan.chosen
    if chosen is None or chosen.replicas is None or chosen.latency is None or chosen.deployment is None:
        raise InputError("plan", plan.summary, "has no fleet to watch", "Change the scenario until the plan has an answer")
    selector = selector_of(chosen.deployment.model)
    return (
        *_latencies(plan, selector),
        *_queue(plan, chosen, selector),
        *_load(plan, chosen, selector),
        *_memory(selector),
        *_lengths(plan, selector),
    )


def selector_of(model: ModelSpec) -> str:
    """Return the labels, in braces, that pick a served model's series."""
    return f"{{model_name={json.dumps(served_name(model))}}}"


def _latencies(plan: Plan, selector: str) -> list[Alert]:
    found: list[Alert] = []
    targets = plan.scenario.targets
    named = (
        ("TTFT", "time_to_first_token_seconds", targets.ttft_p99_s, TTFT_BUCKETS_S),
        ("TPOT", "request_time_per_output_token_seconds", targets.tpot_p99_s, TPOT_BUCKETS_S),
    )
    for label, metric, target_s, buckets in named:
        if target_s is None:
            continue
        rates = f"sum by (le) (rate(vllm:{metric}_bucket{selector}[5m]))"
        found.append(
            Alert(
                f"Headroom{label}Target",
                f"histogram_quantile(0.99, {rates}) > {target_s:g}",
                10,
                "page",
                f"p99 {label} above {duration(target_s)}",
                f"p99 {label} is above its target of {duration(target_s)}.{_resolution(target_s, buckets)}",
                "Shed batch work first, then add a replica; compare arrivals and lengths with the plan.",
            )
        )
    return found


def _resolution(target_s: float, buckets: Sequence[float]) -> str:
    """Return what the histogram can't tell around a target; nothing where a bucket ends on it."""
    if target_s in buckets or not buckets[0] < target_s < buckets[-1]:
        return "" if target_s in buckets else " The target lies outside the metric's buckets."
    place = bisect.bisect(buckets, target_s)
    return f" The metric interpolates between {buckets[place - 1]:g} and {buckets[place]:g} s; use --custom-histogram-buckets."


def _queue(plan: Plan, chosen: Candidate, selector: str) -> list[Alert]:
    target_s = plan.scenario.targets.ttft_p99_s
    if target_s is None or chosen.capacity_rps is None:
        return []
    return [queue_alert(chosen.capacity_rps, target_s, selector)]


def queue_alert(capacity_rps: float, ttft_s: float, selector: str = "") -> Alert:
    """Return the rule on the queue of one replica.

    capacity_rps : rate at which it serves [request/s]; ttft_s : target [s]; selector : labels in braces, or nothing
    """
    most = queue_threshold(capacity_rps, ttft_s)
    return Alert(
        "HeadroomQueue",
        f"max(avg_over_time(vllm:num_requests_waiting{selector}[2m])) > {most}",
        5,
        "page",
        f"over {most} requests waiting on a replica",
        f"Over {most} requests wait on one replica: the last of them misses a TTFT of {duration(ttft_s)}.",
        "Reject or divert new requests (429 with Retry-After) until the queue is short; then add a replica.",
    )


def prefill_alert(prompt_tokens_per_s: float, ttft_s: float, selector: str = "") -> Alert:
    """Return the rule that a replica prefills more than is planned for.

    prompt_tokens_per_s : at the planned utilisation [token/s]; ttft_s : target [s]; selector : labels in braces, or nothing
    """
    return Alert(
        "HeadroomPrefill",
        f"sum by (instance) (rate(vllm:prompt_tokens_total{selector}[5m])) > {prompt_tokens_per_s:.0f}",
        5,
        "ticket",
        f"over {prompt_tokens_per_s:.0f} prompt tokens a second on a replica",
        f"A replica gets over {prompt_tokens_per_s:.0f} prompt tokens a second, more than it is planned for: p99 TTFT will pass "
        f"{duration(ttft_s)}.",
        "Add a replica; the target is missed soon past this load.",
    )


def rejections_alert(selector: str = "") -> Alert:
    """Return the rule on requests that the engine's own bounds turn away; the counter is of vLLM 0.33 (v1/metrics/loggers.py)."""
    return Alert(
        "HeadroomRejections",
        f"sum(rate(vllm:admission_rejections_total{selector}[1m])) > 0",
        2,
        "ticket",
        "requests turned away",
        "The bounds on the queue turn requests away: clients see 503.",
        "Compare arrivals with the plan; if it lasts, plan again at the seen rate.",
    )


def arrivals_expression(selector: str = "") -> str:
    """Return PromQL for the requests that come each second: those that end, and what their number inside grows by.

    vLLM counts requests when they end (v1/metrics/loggers.py), at the rate of a full engine however many more come; the rest is in
    the growth of running and waiting. What its own bounds turn away is in neither.
    """
    inside = " + ".join(f"sum(deriv(vllm:num_requests_{state}{selector}[10m]))" for state in ("running", "waiting"))
    return f"sum(rate(vllm:request_success_total{selector}[10m])) + {inside}"


def _load(plan: Plan, chosen: Candidate, selector: str) -> list[Alert]:
    replicas = chosen.replicas
    if replicas is None:
        return []
    carried_rps = replicas.next_replica_at_rps
    return [
        Alert(
            "HeadroomLoad",
            f"{arrivals_expression(selector)} > {carried_rps:.4g}",
            10,
            "ticket",
            f"over {carried_rps:.4g} requests a second",
            f"Requests come faster than the fleet is sized for: {replicas.needed} replicas carry {carried_rps:.4g} a second within "
            f"their headroom, planned were {plan.load.peak_rps:.4g}.",
            f"Plan again at the seen rate; the next replica is due at {carried_rps:.4g} requests a second.",
        ),
        Alert(
            "HeadroomReplicas",
            f"count(vllm:num_requests_running{selector}) < {replicas.needed} or absent(vllm:num_requests_running{selector})",
            5,
            "page",
            f"fewer than {replicas.needed} replicas",
            f"Fewer replicas report than the {replicas.needed} that the load needs.",
            f"Bring them back; {replicas.total} are planned, {replicas.spares} of them spare.",
        ),
    ]


def _memory(selector: str) -> list[Alert]:
    return [
        Alert(
            "HeadroomKVCache",
            f"max(avg_over_time(vllm:kv_cache_usage_perc{selector}[5m])) > {KV_SHARE}",
            10,
            "ticket",
            "a KV cache over 90 % full",
            "A KV cache is over 90 % full: the next requests wait for blocks.",
            "Lower --max-num-seqs, cap the longest contexts, or plan with longer requests.",
        ),
        Alert(
            "HeadroomPreemptions",
            f"sum(rate(vllm:num_preemptions_total{selector}[10m])) > 0",
            15,
            "ticket",
            "preemptions all the time",
            "Requests are preempted all the time and compute their prompts again.",
            "Lower --max-num-seqs until it stops; the plan counts on none.",
        ),
    ]


def _lengths(plan: Plan, selector: str) -> list[Alert]:
    named = (
        ("Prompts", "request_prompt_tokens", plan.lengths.prompt_mean_tokens),
        ("Outputs", "request_generation_tokens", plan.lengths.output_mean_tokens),
    )
    return [
        Alert(
            f"Headroom{label}Drift",
            f"abs(sum(rate(vllm:{metric}_sum{selector}[6h])) / sum(rate(vllm:{metric}_count{selector}[6h])) / {mean:.4g} - 1)"
            f" > {DRIFT_SHARE}",
            60,
            "ticket",
            f"{label.lower()} 20 % longer or shorter",
            f"{label} are over 20 % longer or shorter than the {mean:.4g} tokens of the plan, over six hours.",
            "Check the new traffic against the plan (Overload, Traffic drifted?) and plan again.",
        )
        for label, metric, mean in named
    ]


def prometheus_rules(plan: Plan) -> str:
    """Return a plan's rules as a file that Prometheus loads (rule_files)."""
    return rules_file(alerts_for(plan))


def rules_file(alerts: Sequence[Alert]) -> str:
    """Return rules as a file that Prometheus loads; texts are quoted as JSON, which YAML reads."""
    lines = ["groups:", "  - name: headroom", "    rules:"]
    for alert in alerts:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expression)}",
            f"        for: {alert.hold_minutes}m",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary, ensure_ascii=False)}",
            f"          action: {json.dumps(alert.action, ensure_ascii=False)}",
        ]
    return "\n".join(lines) + "\n"

"""The alert rules: loadable, about metrics that the engine has, with thresholds out of the plan."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.analysis.served import saturated_rps
from planner.cases import textbook_case
from planner.errors import InputError
from planner.exporters.alerts import (
    Alert,
    alerts_for,
    arrivals_expression,
    prefill_alert,
    prometheus_rules,
    queue_alert,
    rejections_alert,
    rules_file,
)
from planner.plans import plan
from planner.plans.results import Plan
from planner.scenario import scenario_from_dict
from tests.exporters.promql import check_promql

ONE_GPU: dict[str, Any] = {"hardware": {"gpu_ids": ["h100-80g-sxm"], "tensor_parallel": [1]}}
# Names in the text of /metrics of vLLM 0.32.0.
METRICS = {
    "time_to_first_token_seconds_bucket",
    "request_time_per_output_token_seconds_bucket",
    "num_requests_waiting",
    "num_requests_running",
    "request_success_total",
    "kv_cache_usage_perc",
    "num_preemptions_total",
    "request_prompt_tokens_sum",
    "request_prompt_tokens_count",
    "request_generation_tokens_sum",
    "request_generation_tokens_count",
}


@pytest.fixture(scope="module")
def planned() -> Plan:
    return plan(scenario_from_dict(ONE_GPU))


def named(alerts: tuple[Alert, ...], name: str) -> Alert:
    return next(alert for alert in alerts if alert.name == name)


def test_the_file_is_a_rule_group_that_prometheus_reads(planned: Plan) -> None:
    groups = yaml.safe_load(prometheus_rules(planned))["groups"]
    assert [group["name"] for group in groups] == ["headroom"]
    for rule in groups[0]["rules"]:
        assert set(rule) == {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"\d+m", rule["for"])
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert rule["labels"]["severity"] in {"page", "ticket"}
        assert rule["annotations"]["summary"].endswith(".")
    assert len({rule["alert"] for rule in groups[0]["rules"]}) == len(groups[0]["rules"]) == len(alerts_for(planned))


def test_only_metrics_of_the_engine_are_named(planned: Plan) -> None:
    used = set(re.findall(r"vllm:(\w+)", prometheus_rules(planned)))
    assert used == METRICS


def test_thresholds_are_the_plans_own(planned: Plan) -> None:
    chosen = planned.chosen
    assert chosen is not None
    assert chosen.replicas is not None
    assert chosen.capacity_rps is not None
    alerts = alerts_for(planned)
    assert named(alerts, "HeadroomTTFTTarget").expression.endswith("> 1")
    assert named(alerts, "HeadroomTPOTTarget").expression.endswith("> 0.03")
    assert named(alerts, "HeadroomQueue").expression.endswith(f"> {round(chosen.capacity_rps)}")
    assert f"< {chosen.replicas.needed} or" in named(alerts, "HeadroomReplicas").expression
    assert named(alerts, "HeadroomLoad").expression.endswith(f"> {chosen.replicas.next_replica_at_rps:.4g}")
    assert chosen.replicas.next_replica_at_rps > planned.load.peak_rps


def test_load_is_what_comes_not_what_a_full_engine_ends() -> None:
    assert arrivals_expression('{model_name="m"}') == (
        'sum(rate(vllm:request_success_total{model_name="m"}[10m]))'
        ' + sum(deriv(vllm:num_requests_running{model_name="m"}[10m]))'
        ' + sum(deriv(vllm:num_requests_waiting{model_name="m"}[10m]))'
    )


def test_ends_and_growth_are_the_arrivals_of_an_overloaded_engine() -> None:
    case = textbook_case().with_limits(max_num_seqs=8)
    offered_rps = 2.0 * (saturated_rps(case, 500) or 0.0)
    result = case.serve(case.requests(2000, offered_rps))
    first_s, last_s = 0.2 * result.arrival_s[-1], 0.8 * result.arrival_s[-1]
    ended = ((result.finish_s > first_s) & (result.finish_s <= last_s)).sum()
    inside = [int(((result.arrival_s <= at) & (result.finish_s > at)).sum()) for at in (first_s, last_s)]
    lasted_s = last_s - first_s
    assert ended / lasted_s < 0.6 * offered_rps, "ends alone saturate"
    assert (ended + inside[1] - inside[0]) / lasted_s == pytest.approx(offered_rps, rel=0.1)


def test_a_target_between_buckets_says_so_and_one_on_a_bucket_does_not(planned: Plan) -> None:
    alerts = alerts_for(planned)
    assert "between 0.025 and 0.05 s" in named(alerts, "HeadroomTPOTTarget").summary
    assert "interpolates" not in named(alerts, "HeadroomTTFTTarget").summary


def test_offline_work_is_watched_without_latencies() -> None:
    offline = plan(scenario_from_dict({**ONE_GPU, "targets": {"ttft_p99_s": None, "tpot_p99_s": None}}))
    names = {alert.name for alert in alerts_for(offline)}
    assert "HeadroomReplicas" in names
    assert not names & {"HeadroomTTFTTarget", "HeadroomTPOTTarget", "HeadroomQueue"}


def test_a_plan_without_an_answer_has_nothing_to_watch(planned: Plan) -> None:
    with pytest.raises(InputError, match="no fleet to watch"):
        alerts_for(replace(planned, chosen=None))


def test_the_rule_on_prefill_is_of_each_replica_and_loads() -> None:
    (rule,) = yaml.safe_load(rules_file([prefill_alert(12_345.4, 0.8, '{model_name="m"}')]))["groups"][0]["rules"]
    assert rule["expr"] == 'sum by (instance) (rate(vllm:prompt_tokens_total{model_name="m"}[5m])) > 12345'
    assert rule["labels"] == {"severity": "ticket"}
    assert "p99 TTFT will pass 800 ms" in rule["annotations"]["summary"]


SCENARIOS: dict[str, dict[str, Any]] = {
    "usual": {},
    "a rate near none": {"workload": {"load": {"kind": "rate", "requests_per_s": 0.001}}},
    "a high rate": {"workload": {"load": {"kind": "rate", "requests_per_s": 20_000}}},
    "no TTFT target": {"targets": {"ttft_p99_s": None}},
    "offline": {"targets": {"ttft_p99_s": None, "tpot_p99_s": None}},
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_expression_is_promql_that_yields_a_vector(name: str, tmp_path: Path) -> None:
    answer = plan(scenario_from_dict({**ONE_GPU, **SCENARIOS[name]}))
    text = prometheus_rules(answer)
    rules = yaml.safe_load(text)["groups"][0]["rules"]
    assert [check_promql(rule["expr"]) for rule in rules] == ["v"] * len(rules)
    _load(text, tmp_path)


def test_the_views_own_rules_are_promql(tmp_path: Path) -> None:
    odd = '{model_name="a \\"b\\" \\\\ c"}'
    alerts = [prefill_alert(1e6, 0.8, odd), rejections_alert(), rejections_alert(odd), queue_alert(1e9, 3600.0)]
    assert [check_promql(alert.expression) for alert in alerts] == ["v"] * len(alerts)
    _load(rules_file(alerts), tmp_path)


@pytest.mark.parametrize(
    "broken",
    [
        "rate(vllm:x_total) > 1",
        "sum(rate(vllm:x_total[5m]) > 1",
        "vllm:x_total[5m]",
        "1 > 2",
        'vllm:x{model="m} > 1',
        "vllm:x > 1e",
        "vllm:x > inf or 3",
        "rates(vllm:x[5m]) > 1",
        "vllm:x[5] > 1",
        "sum by le (vllm:x) > 1",
        "vllm:x > 1 2",
    ],
)
def test_what_prometheus_refuses_is_refused(broken: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_promql(broken)


def _load(text: str, folder: Path) -> None:
    """Let Prometheus' own tool check the file, where it is installed (2.42.0 accepts every file made here)."""
    tool = shutil.which("promtool")
    if tool is None:
        return
    file = folder / "rules.yml"
    file.write_text(text, encoding="utf-8")
    found = subprocess.run([tool, "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr

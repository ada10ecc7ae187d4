"""The link of the machine that a plan rents: step times, order of candidates and words follow from it."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.calibration.all_reduce_priors import PCIE_SHARE
from planner.calibration.records import load_record, record_for
from planner.deployment import Link, link_for
from planner.hardware import list_gpus, load_gpu, load_node
from planner.models import load_model
from planner.plans import plan
from planner.plans.candidates import deployment_for, layouts, quantization_for
from planner.plans.machines import by_link, machines_by_name, record_over
from planner.pricing import Tariff
from planner.scenario import Scenario, scenario_from_dict
from planner.step_coefficients import all_reduce_cost, coefficients_for

BRIDGED, UNBRIDGED = "rented.bridged", "rented.plain"
NODE = """
schema_version = 1
id = "mycloud-{id}"
name = "My cloud's {id}"
provider = "mycloud"
instance = "{id}"
gpu_id = "a100-80g-pcie"
gpu_count = 2
link_domain_gpus = {joined}
topology = "{topology}"

[sources."*"]
kind = "published"
ref = "a test's own price list"
confidence = "high"
"""
HEADER = "provider,instance,gpu_id,gpu_count,region,on_demand_usd_per_hour,spot_usd_per_hour,as_of,source,licence,note"


def tariff(instance: str, gpus: float = 2, usd: float = 4.0) -> Tariff:
    return Tariff("mycloud", instance, "home", gpus, usd, "on demand", "a test", None)


def offer(home: Path, *rows: tuple[str, float], machines: tuple[str, ...] = (BRIDGED, UNBRIDGED)) -> None:
    """Write a cloud's machines with two A100 PCIe each, and what they cost an hour."""
    nodes, prices = home / "hardware_profiles" / "nodes", home / "hardware_profiles" / "prices"
    nodes.mkdir(parents=True)
    prices.mkdir(parents=True)
    for name in machines:
        joined, topology = (2, "pairs") if name == BRIDGED else (1, "host")
        (nodes / f"mycloud-{name}.toml").write_text(NODE.format(id=name, joined=joined, topology=topology))
    lines = [f"mycloud,{name},a100-80g-pcie,2,home,{usd},,2026-11-30,a test,Apache-2.0," for name, usd in rows]
    (prices / "mycloud.csv").write_text("\n".join([HEADER, *lines]) + "\n")


def asked(**hardware: object) -> Scenario:
    chosen = {"gpu_ids": ["a100-80g-pcie"], "tensor_parallel": [2], "provider": "mycloud"} | hardware
    return scenario_from_dict({"model": {"id": "llama-3.1-8b-instruct"}, "hardware": chosen})


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    return tmp_path


def test_an_all_reduce_over_pcie_takes_bytes_over_the_share_of_pcie() -> None:
    """Closed form: 2 (n - 1) / n · bytes / (share of 31.5 GB/s), for every layer's two messages of hidden · 2 bytes."""
    scenario, model = Scenario(), load_model("llama-3.1-8b-instruct")
    gpu = load_gpu("a100-80g-pcie")
    layout = next(one for one in layouts(asked(provider=None), model, quantization_for(scenario, model)) if one.gpu.id == gpu.id)
    deployment = deployment_for(scenario, layout, model, 4096)
    record = record_for(gpu, "vllm", "0.24.0")
    slow = record_over(record, gpu, link_for(gpu, 2, load_node("a100-pcie-80g-host")))
    found = coefficients_for(deployment, slow)
    message_bytes = 2 * model.layers * model.hidden * 2
    assert gpu.pcie is not None
    assert found.all_reduce_s_per_token == pytest.approx(message_bytes / (PCIE_SHARE[2] * gpu.pcie.theoretical_bytes_per_s))
    bridged = record_over(record, gpu, link_for(gpu, 2, load_node("a100-pcie-80g-pair")))
    fast = coefficients_for(deployment, bridged)
    assert fast == coefficients_for(deployment, record)
    assert found.all_reduce_s_per_token > 5 * fast.all_reduce_s_per_token
    assert found._replace(all_reduce_s=0.0, all_reduce_s_per_token=0.0) == fast._replace(
        all_reduce_s=0.0, all_reduce_s_per_token=0.0
    )


@settings(max_examples=40, deadline=None)
@given(
    gpu=st.sampled_from([gpu for gpu in list_gpus() if gpu.pcie is not None and gpu.vendor in {"NVIDIA", "AMD"}]),
    size=st.sampled_from([2, 3, 4, 6, 8, 16]),
    share=st.floats(0.05, 1.0),
)
def test_a_slower_link_never_makes_an_all_reduce_cheaper(gpu, size: int, share: float) -> None:  # noqa: ANN001
    assert gpu.pcie is not None
    rate = gpu.pcie.theoretical_bytes_per_s
    record = record_for(gpu, "vllm", "0.24.0")
    own, over, slower = (
        all_reduce_cost(each, size).s_per_byte
        for each in (
            record,
            record_over(record, gpu, Link("PCIe", "host", rate, in_fast_domain=False, reason="a test")),
            record_over(record, gpu, Link("PCIe", "host", share * rate, in_fast_domain=False, reason="a test")),
        )
    )
    link = link_for(gpu, size)
    if link is not None and (link.unidirectional_bytes_per_s or 0.0) >= 1.1 * rate:  # links reach 0.57 of their rate, PCIe 0.60
        assert own <= over * (1 + 1e-9)
    assert over <= slower * (1 + 1e-9)


def test_a_measured_link_that_the_machine_lacks_gives_way_to_the_prior_and_says_so() -> None:
    gpu = load_gpu("h100-80g-sxm")
    record = record_for(gpu, "vllm", "0.24.0")
    assert record.all_reduce[8].beta_bytes_per_s.informed_by == "data"
    found = record_over(record, gpu, Link("PCIe", "host", 63e9, in_fast_domain=False, reason="a test"))
    cost = found.all_reduce[8].beta_bytes_per_s
    assert (cost.informed_by, cost.value) == ("prior", pytest.approx(PCIE_SHARE[8] * 63e9))
    assert "PCIe's rate" in cost.source.ref
    assert record_over(record, gpu, link_for(gpu, 8)) is record
    assert record_over(record, gpu, None) is record
    textbook = load_record("textbook")
    assert all_reduce_cost(record_over(textbook, gpu, link_for(gpu, 8, load_node("aws-p5.4xlarge"))), 8).s_per_byte == 0.0


def test_where_the_bridge_is_known_to_be_its_absence_leaves_the_interval() -> None:
    gpu = load_gpu("a100-80g-pcie")
    record = record_for(gpu, "vllm", "0.24.0")
    unsure = record.all_reduce[2].beta_bytes_per_s
    sure = record_over(record, gpu, link_for(gpu, 2, load_node("a100-pcie-80g-pair"))).all_reduce[2].beta_bytes_per_s
    assert unsure.low < 31.5e9 < sure.low
    assert (sure.value, sure.high, sure.low) == (unsure.value, unsure.high, pytest.approx(0.8 * unsure.value))
    assert "no bridge" in unsure.source.ref
    assert "no bridge" not in sure.source.ref


def test_what_was_measured_without_knowing_the_bridge_stays() -> None:
    gpu = load_gpu("h100-94g-nvl")
    record = record_for(gpu, "vllm", "0.24.0")
    cost = record.all_reduce[2]
    measured = cost.model_copy(update={"beta_bytes_per_s": cost.beta_bytes_per_s.model_copy(update={"informed_by": "data"})})
    own = record.model_copy(update={"all_reduce": record.all_reduce | {2: measured}})
    plain = Link("PCIe", "host", 63e9, in_fast_domain=False, reason="a test")
    assert record_over(own, gpu, plain).all_reduce[2] == measured
    assert record_over(record, gpu, plain).all_reduce[2].beta_bytes_per_s.value == pytest.approx(PCIE_SHARE[2] * 63e9)


def test_cards_without_a_link_keep_what_was_measured_on_their_host() -> None:
    """19.2 GB/s among two L40S by the operator table (aiconfigurator-core 0.12.0)."""
    gpu = load_gpu("l40s")
    record = record_for(gpu, "vllm", "0.24.0")
    over = record_over(record, gpu, link_for(gpu, 2))
    assert over.all_reduce[2].beta_bytes_per_s.value == pytest.approx(19.2e9, rel=0.01)


def test_machines_are_told_apart_by_their_link_fastest_first() -> None:
    gpu = load_gpu("a100-80g-pcie")
    pair, host = load_node("a100-pcie-80g-pair"), load_node("a100-pcie-80g-host")
    machines = {("mycloud", "pair", gpu.id): pair, ("mycloud", "host", gpu.id): host}
    offers = [tariff("host", 8), tariff("pair"), tariff("nobody knows", 2), tariff("small", 1)]
    found = by_link(gpu, 2, offers, machines)
    assert [(link and link.kind, [each.instance for each in members]) for link, members in found] == [
        ("NVLink3 bridge", ["pair"]),
        ("PCIe", ["host", "nobody knows"]),
    ]
    assert by_link(gpu, 1, offers, machines) == [(None, tuple(offers))]
    beyond = by_link(gpu, 16, offers, machines)
    assert len(beyond) == 1
    assert beyond[0][1] == tuple(offers)


def test_machines_with_pcie_of_two_speeds_are_two_layouts() -> None:
    gpu, node = load_gpu("a100-80g-pcie"), load_node("a100-pcie-80g-host")
    assert gpu.pcie is not None
    slower = gpu.pcie.model_copy(update={"theoretical_bytes_per_s": gpu.pcie.theoretical_bytes_per_s / 2})
    machines = {("mycloud", "old", gpu.id): node.model_copy(update={"pcie": slower}), ("mycloud", "new", gpu.id): node}
    found = by_link(gpu, 2, [tariff("old"), tariff("new"), tariff("new", usd=5.0)], machines)
    assert [[(each.instance, each.usd_per_instance_hour) for each in members] for _, members in found] == [
        [("new", 4.0), ("new", 5.0)],
        [("old", 4.0)],
    ]
    fast, slow = (link for link, _ in found)
    assert fast is not None
    assert slow is not None
    assert slow.unidirectional_bytes_per_s == gpu.pcie.theoretical_bytes_per_s / 2
    assert fast.unidirectional_bytes_per_s == gpu.pcie.theoretical_bytes_per_s


def test_no_machine_of_the_catalogue_is_timed_over_a_link_that_it_lacks() -> None:
    machines = machines_by_name()
    model = load_model("llama-3.1-70b-instruct")
    for layout in layouts(Scenario(), model, quantization_for(Scenario(), model)):
        for each in layout.tariffs:
            node = machines.get((each.provider, each.instance, layout.gpu.id))
            if node is not None and layout.tensor_parallel <= each.gpus_per_instance and layout.tensor_parallel > 1:
                own = link_for(layout.gpu, layout.tensor_parallel, node)
                assert own is not None
                assert layout.link is not None
                assert layout.link[:4] == own[:4]


def test_azures_pairs_are_bridged_and_its_fours_are_not() -> None:
    """Microsoft Learn, NC A100 v4-series (2023-09-19): NVIDIA NVLink Interconnect supported; a bridge joins two cards."""
    gpu = load_gpu("a100-80g-pcie")
    two, four = (link_for(gpu, tp, load_node("azure-nc96ads-a100-v4")) for tp in (2, 4))
    assert two is not None
    assert (two.kind, two.unidirectional_bytes_per_s) == ("NVLink3 bridge", 300e9)
    assert four is not None
    assert (four.kind, four.unidirectional_bytes_per_s) == ("PCIe", 31.5e9)


def test_the_bridge_wins_at_one_price_and_carries_more(home: Path) -> None:
    offer(home, (UNBRIDGED, 4.0), (BRIDGED, 4.0))
    found = plan(asked())
    assert [(each.label, each.feasible) for each in found.candidates] == [
        ("A100 80GB PCIe × 2 over NVLink3 bridge", True),
        ("A100 80GB PCIe × 2 over PCIe", True),
    ]
    fast, slow = found.candidates
    assert fast.capacity_rps is not None
    assert slow.capacity_rps is not None
    assert slow.capacity_rps < fast.capacity_rps
    assert fast.tariff is not None
    assert fast.tariff.instance == BRIDGED
    assert any("sold separately" in each and BRIDGED in each for each in found.warnings)


def test_the_plain_machine_wins_where_the_bridge_costs_too_much(home: Path) -> None:
    offer(home, (UNBRIDGED, 1.0), (BRIDGED, 40.0))
    found = plan(asked())
    assert found.chosen is not None
    assert found.chosen.link is not None
    assert (found.chosen.link.kind, found.chosen.label.endswith("over PCIe")) == ("PCIe", True)
    assert any(f"My cloud's {UNBRIDGED} has no NVLink3 bridge" in each for each in found.warnings)


def test_a_machine_without_the_bridge_never_costs_less_at_one_price(home: Path) -> None:
    offer(home, (UNBRIDGED, 4.0), (BRIDGED, 4.0))
    fast, slow = plan(asked()).candidates
    assert fast.cost is not None
    assert slow.cost is not None
    assert fast.cost.usd_per_day <= slow.cost.usd_per_day


def test_a_price_of_ones_own_brings_no_bridge() -> None:
    found = plan(asked(provider=None, usd_per_gpu_hour={"a100-80g-pcie": 2.0}))
    assert found.chosen is not None
    assert found.chosen.link is not None
    assert found.chosen.link.kind == "PCIe"
    assert "sold separately" in found.chosen.link.reason

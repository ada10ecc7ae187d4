"""Nodes: what one rents or buys, with the fast link where it really ends."""

from pathlib import Path

import pytest

from planner.errors import InputError
from planner.hardware import list_gpus, list_nodes, list_prices, load_gpu, load_node, node_json_schema, nodes_for
from planner.units import GIB

NODE = """
id = "my-box"
name = "My box"
gpu_id = "l40s"
gpu_count = 4
link_domain_gpus = 1
topology = "host"
[sources."*"]
kind = "assumed"
ref = "counted"
"""


@pytest.fixture
def user_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hardware_profiles" / "nodes"
    folder.mkdir(parents=True)
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    return folder


@pytest.mark.parametrize(
    ("node_id", "gpu_id", "count", "domain", "topology"),
    [
        ("dgx-h100", "h100-80g-sxm", 8, 8, "switch"),
        ("aws-p5.48xlarge", "h100-80g-sxm", 8, 8, "switch"),
        ("aws-p5.4xlarge", "h100-80g-sxm", 1, 1, "host"),
        ("aws-g6e.48xlarge", "l40s", 8, 1, "host"),
        ("l40s-host", "l40s", 8, 1, "host"),
        ("rtx-4090-host", "rtx-4090", 1, 1, "host"),
        ("gb200-nvl72", "gb200", 72, 72, "switch"),
        ("azure-nd128isr-ndr-gb200-v6", "gb200", 4, 72, "switch"),
        ("mi300x-platform", "mi300x", 8, 8, "mesh"),
        ("h100-nvl-pair", "h100-94g-nvl", 2, 2, "pairs"),
        ("tpu-v5e-8", "tpu-v5e", 8, 8, "torus"),
    ],
)
def test_shapes(node_id: str, gpu_id: str, count: int, domain: int, topology: str) -> None:
    node = load_node(node_id)
    assert (node.gpu_id, node.gpu_count, node.link_domain_gpus, node.topology) == (gpu_id, count, domain, topology)
    assert node.largest_linked_gpus == min(count, domain)


def test_the_dgx_h100_draws_well_over_its_gpus() -> None:
    node = load_node("dgx-h100")
    tdp_w = load_gpu(node.gpu_id).tdp_w
    assert node.power_w is not None
    assert tdp_w is not None
    assert 1.4 <= node.power_w / (node.gpu_count * tdp_w) <= 1.9
    assert node.source_for("power_w").kind == "published"


def test_host_figures_carry_their_source() -> None:
    node = load_node("aws-g5.48xlarge")
    assert node.host is not None
    assert (node.host.vcpus, node.host.memory_bytes) == (192, 768 * GIB)
    assert "AWS Batch" in node.source_for("host.vcpus").ref
    assert load_node("azure-nd96isr-h100-v5").host is not None
    assert load_node("azure-nd96isr-h100-v5").host.memory_bytes is None  # type: ignore[union-attr]


def test_every_accelerator_comes_in_some_node_but_the_recorded_cpu() -> None:
    assert [gpu.id for gpu in list_gpus() if not nodes_for(gpu.id)] == ["cpu-recorded"]


def test_every_priced_instance_is_a_node_with_the_same_gpus() -> None:
    nodes = {(node.provider, node.instance): node for node in list_nodes() if node.instance is not None}
    for price in list_prices():
        node = nodes[price.provider, price.instance]
        assert (node.gpu_id, node.gpu_count) == (price.gpu_id, price.gpu_count)


def test_no_node_joins_more_than_its_accelerators_link_can() -> None:
    for node in list_nodes():
        link = load_gpu(node.gpu_id).link
        assert node.link_domain_gpus <= (link.domain_gpus if link else 1)
        if link is None or node.link_domain_gpus == 1:
            assert node.topology == "host"
        else:
            assert node.topology == link.topology


def test_nodes_for_lists_the_smallest_first() -> None:
    counts = [node.gpu_count for node in nodes_for("h100-80g-sxm")]
    assert counts == sorted(counts)
    assert len(counts) >= 5
    with pytest.raises(InputError, match="gpu_id"):
        nodes_for("h1000")


def test_a_user_adds_a_node_with_one_file(user_nodes: Path) -> None:
    (user_nodes / "my-box.toml").write_text(NODE)
    assert load_node("my-box") in nodes_for("l40s")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("gpu_count = 4", "gpu_count = 0", "gpu_count is 0"),
        ("gpu_count = 4", "gpu_count = 2.5", "gpu_count is 2.5"),
        ("gpu_count = 4", "gpu_count = nan", "gpu_count is nan"),
        ("link_domain_gpus = 1", "link_domain_gpus = 4", "host means 1"),
        ('topology = "host"', 'topology = "switch"', "host means 1"),
        ('topology = "host"', 'topology = "star"', "topology is 'star'"),
        (
            'link_domain_gpus = 1\ntopology = "host"',
            'link_domain_gpus = 4\ntopology = "switch"',
            "at most 1, what the link of L40S",
        ),
        ('gpu_id = "l40s"', 'gpu_id = "l40z"', "gpu_id is 'l40z': is not a known accelerator"),
        ('gpu_id = "l40s"', 'gpu_id = "../l40s"', "gpu_id is '../l40s'"),
        ('name = "My box"', 'name = "<b>"', "name is '<b>'"),
        ('name = "My box"', 'name = "My box"\nprovider = "aws"', "must be given with provider"),
        ('[sources."*"]', '[host]\n[sources."*"]', "host.vcpus"),
        ('[sources."*"]', "[sources.host]", 'must hold "*"'),
        ('id = "my-box"', 'id = "our-box"', "must equal the file's name"),
    ],
)
def test_a_bad_node_is_refused(user_nodes: Path, old: str, new: str, says: str) -> None:
    assert old in NODE
    (user_nodes / "my-box.toml").write_text(NODE.replace(old, new))
    with pytest.raises(InputError) as caught:
        load_node("my-box")
    assert says in str(caught.value)
    assert "my-box.toml" in caught.value.field


@pytest.mark.parametrize("node_id", ["dgx-h1000", "../dgx-h100", "", None])
def test_an_unknown_node_is_an_input_error(node_id: str) -> None:
    with pytest.raises(InputError, match="node_id"):
        load_node(node_id)


def test_a_node_file_whose_name_is_no_id_is_named_when_listing(user_nodes: Path) -> None:
    (user_nodes / "My Box.toml").write_text(NODE)
    with pytest.raises(InputError, match=r"My Box\.toml"):
        list_nodes()
    assert load_node("dgx-h100").gpu_count == 8


def test_schema_is_that_of_the_file() -> None:
    assert "link_domain_gpus" in node_json_schema()["properties"]

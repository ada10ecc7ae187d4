"""Releases: which are known, and what changed in which."""

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.engines import ENGINE_VERSIONS, VLLM_KNOB_SINCE, check_version, vllm_facts
from planner.errors import InputError

RECORDED = Path(__file__).resolve().parent.parent / "recorded" / "vllm_flags.json"
MINORS = st.integers(11, 33)


@pytest.mark.parametrize(
    ("fact", "since"),
    [
        ("graphs_in_budget", 20),
        ("async_scheduling", 14),
        ("admits_whole_sequence", 19),
        ("large_gpu_tier", 28),
        ("gb10_is_small", 33),
        ("capacity_from_concurrency", 20),
        ("window_holds_all_in_flight", 26),
        ("v2_profiles_processing", 33),
    ],
)
def test_a_behaviour_starts_with_one_release_and_stays(fact: str, since: int) -> None:
    assert [minor for minor in range(11, 34) if getattr(vllm_facts(f"0.{minor}.0"), fact)] == list(range(since, 34))


def test_utilisation_rose_with_graph_accounting() -> None:
    assert vllm_facts("0.19.1").gpu_memory_utilization == 0.90
    assert vllm_facts("0.20.0").gpu_memory_utilization == 0.92


def test_groups_are_padded_more_readily_over_time() -> None:
    assert [vllm_facts(f"0.{minor}.0").group_padding for minor in (11, 12, 17, 18, 33)] == [1.0, 1.25, 1.25, 1.5, 1.5]


@given(MINORS, st.integers(0, 9))
@settings(max_examples=30, deadline=None)
def test_patches_of_a_release_share_its_facts(minor: int, patch: int) -> None:
    assert vllm_facts(f"0.{minor}.{patch}") == vllm_facts(f"v0.{minor}.0")


@pytest.mark.parametrize(
    ("engine", "version", "nearest"),
    [
        ("vllm", "0.10.2", "0.11.0"),
        ("vllm", "0.34.0", "0.33.0"),
        ("vllm", "1.0.0", "0.33.0"),
        ("vllm", "latest", "0.33.0"),
        ("vllm", "0.33.0; rm -rf /", "0.33.0"),
        ("vllm", "", "0.33.0"),
        ("sglang", "0.5.22", "0.5.23"),
        ("sglang", "0.5.231", "0.5.23"),
        ("tensorrt-llm", "1.1.0", "1.2.0"),
    ],
)
def test_unknown_releases_name_the_nearest(engine: str, version: str, nearest: str) -> None:
    with pytest.raises(InputError) as caught:
        check_version(engine, version)  # type: ignore[arg-type]
    assert caught.value.field == "engine.version"
    assert nearest in caught.value.remedy


def test_every_listed_release_is_accepted() -> None:
    for engine, versions in ENGINE_VERSIONS.items():
        assert [check_version(engine, version) for version in versions] == list(versions)


def test_settings_appear_with_their_flag() -> None:
    first = json.loads(RECORDED.read_text(encoding="utf-8"))["first_minor"]
    assert {first["--" + name.replace("_", "-")] for name in VLLM_KNOB_SINCE} == set(VLLM_KNOB_SINCE.values())
    assert all(first["--" + name.replace("_", "-")] == since for name, since in VLLM_KNOB_SINCE.items())

"""Shipped workloads and traces: published figures, licences, sampling, the user's folder."""

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from planner.errors import InputError
from planner.paths import WORKLOADS_DIR
from planner.workloads import (
    Gamma,
    GammaLengths,
    PoissonArrivals,
    RequestClass,
    Workload,
    constant_lengths,
    list_traces,
    list_workloads,
    load_profile,
    load_trace,
    load_workload,
    save_workload,
    streams,
    workload_from_rows,
)

# Computed independently from the same rows: prompt mean, p50, p95, p99; output likewise; mean running context; total p99.
PUBLISHED = {
    "azure-conversation-2023": (1155, 1020, 4083, 4142, 211, 129, 451, 601, 1227, 4259),
    "azure-code-2023": (2048, 1469, 7303, 7436, 28, 13, 90, 252, 2131, 7462),
    "mooncake-conversation": (12035, 6909, 39551, 85400, 343, 350, 698, 1119, 13126, 85851),
    "agent": (15326, 11587, 48905, 66456, 149, 69, 519, 768, 7292, 66467),
    "lmsys-chat": (92, 28, 432, 750, 207, 140, 520, 850, 302, 1158),
    "sharegpt": (295, 36, 1624, 3473, 324, 280, 846, 999, 607, 3783),
    "sharegpt-8k": (2340, 1730, 6563, 7434, 439, 415, 920, 998, 2691, 7863),
    "summarisation": (2588, 2730, 3813, 3933, 291, 167, 736, 3271, 2420, 4077),
    "translation": (1067, 1037, 1584, 1800, 1613, 1601, 2342, 2533, 1968, 4064),
}
PUBLISHED_SIDES = {
    "servegen-m-large": (914, 601, 2404, 5452, 155, 53, 539, 872),
    "servegen-m-mid": (307, 173, 864, 2583, 51, 34, 131, 397),
    "servegen-m-small": (120, 40, 573, 1478, 15, 3, 71, 142),
    "reasoning": (1268, 208, 6714, 23423, 1527, 792, 5701, 12607),
}
DIGITISED = {
    "azure-conversation-2024": (1612, 905, 4880, 6551, 100, 39, 446, 671),
    "azure-code-2024": (2494, 1916, 7665, 7681, 21, 6, 72, 250),
}
NAMED = {"chat", "code-assistant", "rag", "reasoning", "agent", "summarisation", "translation"}


@pytest.mark.parametrize("workload_id", PUBLISHED)
def test_lengths_of_shipped_rows(workload_id: str) -> None:
    stats = load_workload(workload_id).length_stats()
    figures = (*stats[:9], stats.total_p99_tokens)
    assert figures == pytest.approx(PUBLISHED[workload_id], rel=0.003, abs=0.6)
    assert stats.method == "exact"


@pytest.mark.parametrize("workload_id", PUBLISHED_SIDES)
def test_lengths_of_shipped_histograms(workload_id: str) -> None:
    assert load_workload(workload_id).length_stats()[:8] == pytest.approx(PUBLISHED_SIDES[workload_id], rel=0.003, abs=0.6)


@pytest.mark.parametrize("workload_id", DIGITISED)
def test_lengths_read_off_plots_hold_to_their_pixels(workload_id: str) -> None:
    """Resolution of the plots: prompts ±18 tokens, outputs ±11 tokens; means as published with the readings."""
    stats = load_workload(workload_id).length_stats()
    published = DIGITISED[workload_id]
    assert stats[:4] == pytest.approx(published[:4], abs=18)
    assert stats[4:8] == pytest.approx(published[4:], abs=11)
    assert (stats.prompt_mean_tokens, stats.output_mean_tokens) == pytest.approx((published[0], published[4]), rel=0.05)


def test_every_preset_says_what_it_is() -> None:
    workloads = {workload.id: workload for workload in list_workloads()}
    assert workloads.keys() >= NAMED | PUBLISHED.keys() | PUBLISHED_SIDES.keys() | DIGITISED.keys()
    for workload in workloads.values():
        assert "\n" not in workload.description
        assert workload.description.endswith(".")
        assert workload.attribution
        for field in ("lengths", "arrivals", "peak_factor"):
            assert workload.source_for(field).ref
        stats, expected = workload.length_stats(), workload.expected_means
        assert expected is not None
        assert expected.prompt_mean_tokens == pytest.approx(stats.prompt_mean_tokens, rel=0.005, abs=0.5)
        assert expected.output_mean_tokens == pytest.approx(stats.output_mean_tokens, rel=0.02, abs=0.5)
        assert workload.peak_factor is not None
        assert workload.profile is not None
        profile = load_profile(workload.profile)
        assert profile.peak_factor == pytest.approx(workload.peak_factor, abs=0.01)
        assert profile.peak_minute_factor == workload.peak_minute_factor


def test_borrowed_peaks_are_called_assumed() -> None:
    assert load_workload("lmsys-chat").source_for("peak_factor").kind == "assumed"
    assert load_workload("azure-code-2024").source_for("peak_factor").kind == "published"


def test_every_trace_states_source_licence_and_bytes() -> None:
    metas = list_traces()
    assert len(metas) >= 15
    for meta in metas:
        assert meta.sha256 is not None
        assert meta.licence
        assert meta.attribution
        assert meta.transformation
        assert meta.source.kind == "published"
        assert "@" in meta.source.ref
    sharegpt = [meta for meta in metas if "sharegpt" in meta.id]
    assert len(sharegpt) == 2
    assert all("no licence" in meta.licence for meta in sharegpt)


def test_shipped_data_stay_small() -> None:
    assert sum(path.stat().st_size for path in WORKLOADS_DIR.rglob("*") if path.is_file()) < 3_000_000


@pytest.mark.parametrize("workload_id", sorted(NAMED))
def test_sample_is_deterministic_and_has_the_stated_means(workload_id: str) -> None:
    workload = load_workload(workload_id)
    first, again = workload.sample_requests(4000, 10.0, 5), workload.sample_requests(4000, 10.0, 5)
    assert first.to_frame().equals(again.to_frame())
    stats = workload.length_stats()
    assert first.prompt_tokens.mean() == pytest.approx(stats.prompt_mean_tokens, rel=0.15)
    assert first.output_tokens.mean() == pytest.approx(stats.output_mean_tokens, rel=0.25)
    assert len(first) / first.arrival_s[-1] == pytest.approx(10.0, rel=0.06)


def test_streams_are_one_per_cause() -> None:
    poisson = load_workload("chat")
    bursty = poisson.model_copy(update={"arrivals": load_workload("mooncake-conversation").arrivals})
    first, second = poisson.sample_requests(500, 3.0, 9), bursty.sample_requests(500, 3.0, 9)
    assert first.prompt_tokens.tobytes() == second.prompt_tokens.tobytes()
    assert first.arrival_s.tobytes() != second.arrival_s.tobytes()
    states = [generator.random() for generator in streams(9)]
    assert len(set(states)) == len(states)
    assert states == [generator.random() for generator in streams(9)]


def test_sample_takes_a_generator() -> None:
    workload = load_workload("chat")
    first = workload.sample(100, 1.0, np.random.default_rng(3))
    again = workload.sample(100, 1.0, np.random.default_rng(3))
    assert first.to_frame().equals(again.to_frame())
    rng = np.random.default_rng(3)
    assert workload.sample(100, 1.0, rng).arrival_s[0] != workload.sample(100, 1.0, rng).arrival_s[0]


def test_replay_keeps_rows_times_and_blocks_together() -> None:
    trace, requests = load_trace("mooncake-conversation"), load_workload("mooncake-conversation").sample_requests(3000, 3.0, 1)
    assert requests.prompt_tokens.tolist() == trace.prompt_tokens[:3000].tolist()
    assert requests.block_hashes is not None
    assert trace.block_hashes is not None
    assert requests.block_hashes.row(2999).tolist() == trace.block_hashes.row(2999).tolist()
    counts = np.diff(requests.block_hashes.offsets)
    assert (counts == np.ceil(requests.prompt_tokens / 512)).all()


def with_classes(**changes: object) -> Workload:
    document = load_workload("chat").model_dump() | changes
    return Workload.model_validate(document)


def test_classes_have_their_shares_and_lengths() -> None:
    batch = RequestClass(name="batch", share=0.25, priority=10, lengths=constant_lengths(4000, 1000))
    workload = with_classes(classes=(RequestClass(name="live", share=0.75), batch))
    requests = workload.sample_requests(40_000, 5.0, 2)
    assert requests.class_index.mean() == pytest.approx(0.25, abs=0.01)
    assert (requests.prompt_tokens[requests.class_index == 1] == 4000).all()
    stats = workload.length_stats()
    assert stats.prompt_mean_tokens == pytest.approx(0.75 * 1154.7 + 0.25 * 4000, rel=1e-3)
    assert stats.output_mean_tokens == pytest.approx(0.75 * 211.1 + 0.25 * 1000, rel=1e-3)
    work = 0.75 * 211.1 * 1227.0 + 0.25 * 1000 * 4500
    assert stats.running_context_mean_tokens == pytest.approx(work / stats.output_mean_tokens, rel=1e-3)
    assert requests.output_tokens.mean() == pytest.approx(stats.output_mean_tokens, rel=0.02)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"classes": [{"name": "a", "share": 0.5}]}, "must sum to 1"),
        ({"classes": []}, "classes"),
        ({"name": "<script>alert(1)</script>"}, "name"),
        ({"id": "../evil"}, "id"),
        ({"peak_factor": 0.5}, "peak_factor"),
        ({"peak_factor": float("nan")}, "peak_factor"),
        ({"sources": {"lengths": {"kind": "assumed", "ref": "x"}}}, "is required"),
        ({"sources": {"nonsense": {"kind": "assumed", "ref": "x"}}}, "must name a field"),
        (
            {
                "lengths": {"kind": "rows", "trace": "mooncake-conversation", "draw": "in_order"},
                "arrivals": {"kind": "trace", "trace": "mooncake-conversation"},
            },
            "must be first",
        ),
        ({"surprise": 1}, "surprise"),
    ],
)
def test_wrong_workloads_are_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(ValueError, match=field):
        with_classes(**changes)


def test_unknown_id_lists_close_ones() -> None:
    with pytest.raises(InputError, match="azure-code-2023"):
        load_workload("azure-code-203")
    with pytest.raises(InputError, match=r"workload\.id"):
        load_workload("../../etc/passwd")
    with pytest.raises(InputError, match="must be a known workload"):
        load_workload("x" * 10**6)


def test_json_round_trip_of_every_preset() -> None:
    for workload in list_workloads():
        assert Workload.model_validate_json(workload.model_dump_json()) == workload


def test_user_folder_wins_and_is_seen_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    folder = tmp_path / "workloads"
    folder.mkdir()
    text = (WORKLOADS_DIR / "chat.toml").read_text(encoding="utf-8")
    (folder / "chat.toml").write_text(text.replace('name = "Chat"', 'name = "Our chat"'), encoding="utf-8")
    assert load_workload("chat").name == "Our chat"
    (folder / "chat.toml").write_text(text.replace('name = "Chat"', 'name = "Our newer chat"'), encoding="utf-8")
    assert load_workload("chat").name == "Our newer chat"
    (folder / "chat.toml").write_text(text.replace('name = "Chat"', "name = 3"), encoding="utf-8")
    with pytest.raises(InputError, match="name is 3"):
        load_workload("chat")
    (folder / "chat.toml").write_text("a = [" * 5000, encoding="utf-8")
    with pytest.raises(InputError, match=r"chat\.toml"):
        load_workload("chat")
    (folder / "chat.toml").write_text("#" * 10**6, encoding="utf-8")
    with pytest.raises(InputError, match="must be at most"):
        load_workload("chat")
    (folder / "chat.toml").write_text(text.replace('id = "chat"', 'id = "talk"'), encoding="utf-8")
    with pytest.raises(InputError, match="must be chat"):
        load_workload("chat")


def test_saved_workload_is_read_back_with_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = b"arrival_s,prompt_tokens,output_tokens\n" + b"".join(b"%d.25,%d,%d\n" % (i, 100 + i, 1 + i % 7) for i in range(300))
    workload = workload_from_rows(rows, "My service")
    with pytest.raises(InputError, match="PLANNER_HOME"):
        save_workload(workload)
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    path = save_workload(workload)
    document = json.loads(path.read_text())
    assert document["lengths"]["trace"] == workload.id
    monkeypatch.setattr("planner.workloads.trace._memory", type("Empty", (), {"get": staticmethod(lambda _id: None)})())
    monkeypatch.setattr("planner.workloads.catalogue._memory", type("Empty", (), {"get": staticmethod(lambda _id: None)})())
    again = load_workload(workload.id)
    assert again == workload
    assert again.sample_requests(50, 1.0, 1).to_frame().equals(workload.sample_requests(50, 1.0, 1).to_frame())
    assert workload.id in {each.id for each in list_workloads()}


def test_changed_trace_bytes_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    folder = tmp_path / "workloads" / "traces"
    folder.mkdir(parents=True)
    shipped = WORKLOADS_DIR / "traces"
    (folder / "azure-code-2023.toml").write_bytes((shipped / "azure-code-2023.toml").read_bytes())
    (folder / "azure-code-2023.parquet").write_bytes((shipped / "azure-code-2023.parquet").read_bytes()[:-9])
    with pytest.raises(InputError, match="sha256"):
        load_trace("azure-code-2023")
    (folder / "bare.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="description beside it"):
        load_trace("bare")


def test_presets_are_written_with_a_source_for_each_figure() -> None:
    for path in sorted(WORKLOADS_DIR.glob("*.toml")):
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        assert {"lengths", "arrivals", "peak_factor"} <= document["sources"].keys()


def test_own_workload_needs_no_file() -> None:
    lengths = GammaLengths(
        prompt=Gamma(mean_tokens=900, cv=1, cap_tokens=8192), output=Gamma(mean_tokens=150, cv=1, cap_tokens=2048)
    )
    workload = with_classes(id="mine", lengths=lengths, arrivals=PoissonArrivals())
    assert workload.length_stats().prompt_mean_tokens == pytest.approx(900, rel=0.01)

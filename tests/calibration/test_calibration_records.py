"""Records: what is shipped, which one holds, old and hostile files."""

import datetime as dt
import json
from pathlib import Path
from typing import Any

import pytest

from planner.calibration import reading
from planner.calibration.catalogue import shipped_ids
from planner.calibration.reading import host_from_json
from planner.calibration.records import (
    CalibrationRecord,
    host_for,
    is_aged,
    list_hosts,
    list_records,
    load_host,
    load_record,
    own_record_ids,
    record_for,
    record_from_json,
    save_record,
    version_key,
)
from planner.errors import InputError
from planner.hardware import load_gpu
from planner.paths import PROFILES_DIR

H100 = "h100-80g-sxm/vllm-0.24.0"
FITTED = {
    H100, "h100-80g-sxm/tensorrt-llm-1.3.0rc20", "h200-141g-sxm/vllm-0.24.0", "a100-80g-sxm/vllm-0.14.0", "l40s/vllm-0.24.0",
    "rtx-pro-6000-bw-server/vllm-0.19.0", "rtx-4090/vllm-0.19.0", "h100-94g-nvl/vllm-0.19.0", "cpu-recorded/vllm-0.32.0",
}  # fmt: skip


def document(record_id: str = H100) -> dict[str, Any]:
    return json.loads((PROFILES_DIR / "calibrations" / f"{record_id}.json").read_text(encoding="utf-8"))


def parsed(doc: dict[str, Any]) -> CalibrationRecord:
    return record_from_json(json.dumps(doc), "test.json")


@pytest.fixture
def user_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    return tmp_path / "hardware_profiles" / "calibrations"


def test_shipped_records_are_whole_and_say_what_they_rest_on() -> None:
    records = {record.id: record for record in list_records()}
    assert {name for name, record in records.items() if record.basis == "fitted"} == FITTED
    assert {name for name, record in records.items() if record.basis == "published"} >= {"b200-sxm/vllm-0.24.0"}
    for record in records.values():
        for path, parameter in record.parameters():
            assert parameter.low <= parameter.value <= parameter.high, (record.id, path)
            assert parameter.source.ref
        if record.basis == "fitted":
            assert record.evidence is not None
            assert record.evidence.rows == sum(group.rows for group in record.evidence.groups)
            assert record.reference is not None
            assert record.covariance is not None
            assert set(record.covariance.names) <= {path for path, _ in record.parameters()}


@pytest.mark.parametrize(
    ("record_id", "limit"),
    [(H100, 3.0), ("h200-141g-sxm/vllm-0.24.0", 3.0), ("a100-80g-sxm/vllm-0.14.0", 5.0), ("l40s/vllm-0.24.0", 5.0)],
)
def test_dense_groups_reach_the_accuracy_that_is_asked(record_id: str, limit: float) -> None:
    evidence = load_record(record_id).evidence
    assert evidence is not None
    dense = [group for group in evidence.groups if group.group.startswith("llama") and " bf16 " in group.group]
    assert all(group.median_abs_pct <= min(limit, 4.0) for group in dense)
    assert all(group.held_out_median_abs_pct is None or group.held_out_median_abs_pct <= limit for group in dense)


def test_one_group_is_said_not_to_be_held_out() -> None:
    evidence = load_record("l40s/vllm-0.24.0").evidence
    assert evidence is not None
    assert evidence.held_out.startswith("nothing")
    assert evidence.groups[0].held_out_median_abs_pct is None


def test_a_record_survives_being_written_and_read(user_folder: Path) -> None:
    record = load_record(H100)
    path = save_record(record, user_folder)
    assert path == user_folder / f"{H100}.json"
    assert record_from_json(path.read_bytes(), path.name) == record
    assert load_record(H100) == record


def test_the_users_record_wins(user_folder: Path) -> None:
    own = load_record(H100).model_copy(update={"description": "measured here"})
    save_record(own, user_folder)
    assert load_record(H100).description == "measured here"
    assert record_for(load_gpu("h100-80g-sxm"), "vllm", "0.24.0").description == "measured here"


def with_release(base: CalibrationRecord, version: str) -> CalibrationRecord:
    return base.model_copy(update={"id": f"{base.gpu_id}/vllm-{version}", "engine_version": version})


def test_nearest_release_is_taken_and_a_measured_dtype_first(user_folder: Path) -> None:
    gpu = load_gpu("rtx-3090")
    base = load_record(H100).model_copy(update={"gpu_id": gpu.id})
    save_record(with_release(base, "0.24.0"), user_folder)
    for version in ("0.19.0", "0.30.0"):
        save_record(with_release(base.only(["memory_efficiency.bf16", "compute_efficiency.bf16"]), version), user_folder)
    assert record_for(gpu, "vllm", "0.33.0").engine_version == "0.30.0"
    assert record_for(gpu, "vllm", "0.25.0").engine_version == "0.24.0"
    assert record_for(gpu, "vllm", "0.11.0").engine_version == "0.19.0"
    assert record_for(gpu, "vllm", "0.33.0", "fp8").engine_version == "0.24.0"


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_own_record_of_another_id_must_be_named(user_folder: Path, engine: str) -> None:
    before = record_for(load_gpu("h100-80g-sxm"), engine, "0.33.0")
    save_record(with_release(load_record(H100), "0.33.0"), user_folder)
    assert record_for(load_gpu("h100-80g-sxm"), engine, "0.33.0") == before
    assert own_record_ids() == {"h100-80g-sxm/vllm-0.33.0"}
    assert H100 in shipped_ids()
    assert "h100-80g-sxm/vllm-0.33.0" not in shipped_ids()


def test_an_own_record_of_an_engine_that_nothing_is_shipped_for_is_used(user_folder: Path) -> None:
    mine = load_record(H100).model_copy(update={"id": "h100-80g-sxm/mine", "engine": "sglang", "engine_version": "0.5.23"})
    save_record(mine, user_folder)
    assert record_for(load_gpu("h100-80g-sxm"), "sglang", "0.5.23").id == mine.id


def test_versions_compare_by_number() -> None:
    assert version_key("0.9.2") < version_key("0.24.0") < version_key("1.3.0rc20")
    assert version_key(None) == ()


def test_another_engines_record_becomes_a_prior_with_wider_intervals() -> None:
    gpu = load_gpu("h200-141g-sxm")
    own, other = record_for(gpu, "vllm", "0.24.0"), record_for(gpu, "sglang", "0.5.23")
    assert (own.basis, other.basis) == ("fitted", "prior")
    assert other.layer_s.value == own.layer_s.value
    assert other.layer_s.high - other.layer_s.low > 1.9 * (own.layer_s.high - own.layer_s.low)
    assert other.layer_s.informed_by == "prior"
    assert other.host == host_for("sglang")


def test_what_a_record_lacks_is_filled_in_and_says_so() -> None:
    record = record_for(load_gpu("a100-80g-sxm"), "vllm", "0.33.0")
    assert record.compute_efficiency["bf16"].informed_by == "data"
    assert record.compute_efficiency["int8"].informed_by in {"prior", "assumed"}
    assert record.compute_efficiency["int8"].value < record.compute_efficiency["bf16"].value
    assert record.expert_layer_s is not None
    assert record.expert_layer_s.informed_by == "prior"


def test_offline_use_changes_the_host_terms_alone() -> None:
    gpu = load_gpu("h100-80g-sxm")
    server, offline = record_for(gpu, "vllm", "0.24.0"), record_for(gpu, "vllm", "0.24.0", usage="offline")
    assert server.host.id == "vllm"
    assert offline.host.id == "vllm-offline"
    assert offline.with_host(server.host) == server
    assert offline.host.exposed_host_s_per_sequence.value < server.host.exposed_host_s_per_sequence.value


def test_every_set_of_host_terms_is_read() -> None:
    assert {"none", "vllm", "vllm-offline", "vllm-tuned", "sglang", "tensorrt-llm"} <= {host.id for host in list_hosts()}
    assert load_host("none").exposed_host_s_per_sequence.value == 0.0


def test_values_and_parameters_are_replaced_by_path() -> None:
    record = load_record(H100)
    changed = record.with_values(
        {"layer_s": 1e-5, "all_reduce.8.alpha_s": 2e-6, "compute_efficiency.bf16": 0.5, "host.host_s": 3e-3}
    )
    known = dict(changed.parameters())
    assert known["layer_s"].value == 1e-5
    assert known["all_reduce.8.alpha_s"].value == 2e-6
    assert known["compute_efficiency.bf16"].value == 0.5
    assert known["host.host_s"].value == 3e-3
    untouched = {path: parameter for path, parameter in known.items() if parameter == dict(record.parameters())[path]}
    assert len(untouched) == len(known) - 4
    with pytest.raises(KeyError):
        record.with_values({"no_such_parameter": 1.0})


# Old and hostile records


def test_an_older_schema_is_upgraded_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def rename(old: dict[str, Any]) -> dict[str, Any]:
        return {("layer_s" if key == "per_layer_s" else key): value for key, value in old.items()}

    monkeypatch.setattr(reading, "UPGRADES", {0: rename})
    doc = document()
    doc["per_layer_s"] = doc.pop("layer_s")
    doc["schema_version"] = 0
    assert parsed(doc) == load_record(H100)


@pytest.mark.parametrize("version", [0, 2, -1, "1", None, True, 10**30])
def test_an_unknown_schema_is_refused(version: object) -> None:
    with pytest.raises(InputError, match="schema_version"):
        parsed(document() | {"schema_version": version})


HOSTILE: list[tuple[str, Any, str]] = [
    ("compute_efficiency.bf16.value", 1.2, "between|low"),
    ("compute_efficiency.bf16.high", 1.2, "compute_efficiency.bf16"),
    ("compute_efficiency.bf16.value", -0.5, "value"),
    ("memory_efficiency.bf16.low", 0.0, "memory_efficiency.bf16"),
    ("layer_s.value", -1e-6, "value"),
    ("layer_s.high", 47.0, "layer_s"),
    ("layer_s.value", "47 µs", "value"),
    ("layer_s.value", None, "value"),
    ("layer_s.value", 10**400, "value|JSON"),
    ("layer_s.informed_by", "vibes", "informed_by"),
    ("mix_factor.value", 0.5, "mix_factor|low"),
    ("all_reduce.8.beta_bytes_per_s.low", 348.0, "beta_bytes_per_s"),
    ("host.exposed_host_s_per_sequence.high", 70.0, "exposed_host_s_per_sequence"),
    ("achieved.memory_bytes_per_s.bf16", 3.3e12, "efficiency times reference"),
    ("gpu_id", "../../etc/passwd", "gpu_id"),
    ("id", "<script>alert(1)</script>", "id"),
    ("basis", "guessed", "basis"),
    ("surprise", 1, "surprise"),
    ("evidence.rows", -5, "rows"),
    ("covariance.matrix", [[1.0]], "covariance"),
]


@pytest.mark.parametrize(("path", "value", "named"), HOSTILE, ids=[f"{path}={value!r:.30}" for path, value, _ in HOSTILE])
def test_a_hostile_record_is_refused_by_name(path: str, value: object, named: str) -> None:
    doc = document()
    *parents, last = path.split(".")
    inner = doc
    for parent in parents:
        inner = inner[parent]
    inner[last] = value
    with pytest.raises(InputError, match=named) as caught:
        parsed(doc)
    assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity"])
def test_not_a_number_is_refused(text: str) -> None:
    raw = json.dumps(document()).replace('"value": 0.', f'"value": {text}, "x": 0.', 1)
    with pytest.raises(InputError, match=r"NaN|JSON"):
        record_from_json(raw, "test.json")


@pytest.mark.parametrize(("field", "value"), [("layer_s", "{}"), ("gpu_id", '"h100-80g-sxm"'), ("value", "0.9")])
def test_a_key_stated_twice_is_refused_by_name(field: str, value: str) -> None:
    raw = json.dumps(document()).replace(f'"{field}": ', f'"{field}": {value}, "{field}": ', 1)
    with pytest.raises(InputError, match=rf"^test\.json: {field} is .*stated twice"):
        record_from_json(raw, "test.json")


def test_a_key_of_host_terms_stated_twice_is_refused_by_name() -> None:
    raw = (PROFILES_DIR / "calibrations" / "hosts" / "vllm.json").read_text(encoding="utf-8")
    with pytest.raises(InputError, match=r"host_s is .*stated twice"):
        host_from_json(raw.replace('"host_s":', '"host_s": 0.001, "host_s":', 1), "hosts/vllm.json")


def test_all_reduce_sizes_are_bounded() -> None:
    doc = document()
    doc["all_reduce"]["1"] = doc["all_reduce"]["2"]
    with pytest.raises(InputError, match="all_reduce"):
        parsed(doc)


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{", b'"text"', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 5_000, b"{}", b" " * 300_000, b'{"schema_version": 1}'],
    ids=["empty", "array", "cut", "string", "binary", "deep array", "deep object", "no fields", "huge", "nothing else"],
)
def test_what_is_no_record_is_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        record_from_json(data, "test.json")


@pytest.mark.parametrize(
    "name", ["", "nope", "../textbook", "h100-80g-sxm", "H100/x", "a/b/c", "hosts/vllm", "x" * 10_000, None, 3]
)
def test_an_unknown_name_lists_the_known_ones(name: Any) -> None:
    with pytest.raises(InputError, match="textbook"):
        load_record(name)


def test_a_record_must_lie_where_its_id_says(user_folder: Path) -> None:
    path = user_folder / "h100-80g-sxm" / "vllm-9.9.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(document()), encoding="utf-8")
    with pytest.raises(InputError, match="id"):
        load_record("h100-80g-sxm/vllm-9.9")


def test_a_truncated_file_is_named(user_folder: Path) -> None:
    path = user_folder / "h100-80g-sxm" / "vllm-0.24.0.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(document())[:-200], encoding="utf-8")
    with pytest.raises(InputError, match=r"vllm-0\.24\.0\.json"):
        load_record(H100)


def test_dates_are_read() -> None:
    assert load_record("textbook").created == dt.date(2026, 11, 30)


# An engine's age


@pytest.mark.parametrize(
    ("version", "aged"), [("0.5.5", True), ("0.7.3", True), ("0.8.0", False), ("0.33.0", False), (None, False), ("", False)]
)
def test_old_releases_take_the_host_terms_of_their_time(version: str | None, aged: bool) -> None:
    assert is_aged("vllm", version) == aged
    for usage, name in (("server", "vllm"), ("offline", "vllm-offline")):
        host = host_for("vllm", usage, version)  # type: ignore[arg-type]
        assert host.id == (name.replace("vllm", "vllm-before-0.8") if aged else name)
    assert not is_aged("sglang", version)


def test_a_records_own_host_terms_give_way_to_those_of_an_old_release() -> None:
    gpu = load_gpu("a100-80g-sxm")
    old, new = record_for(gpu, "vllm", "0.5.5"), record_for(gpu, "vllm", "0.14.0")
    assert old.host.host_s.value > 2 * new.host.host_s.value
    assert old.layer_s == new.layer_s

"""A user's own files: override by id, extends, and everything that may be wrong with them."""

import itertools
import os
import time
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.hardware import catalogue, gpu_from_toml, gpu_json_schema, list_gpus, load_gpu, survey_gpus
from planner.paths import PROFILES_DIR

NEW_GPU = """
id = "acme-1"
name = "Acme One"
vendor = "Acme"
form = "PCIe"
arch = "A1"
launch_year = 2026
memory_type = "HBM4"
memory_marketed_gb = 100
memory_reported_bytes = 107e9
memory_bytes_per_s = 5e12
[dense_flops_per_s]
bf16 = 1e15
[sources."*"]
kind = "datasheet"
ref = "Acme One data sheet"
"""

MIG_SLICE = """
id = "h100-1g.10gb"
extends = "h100-80g-sxm"
remove = ["link"]
name = "H100 MIG 1g.10gb"
memory_marketed_gb = 10
memory_reported_bytes = 10_468_982_784  # 9,984 MiB
memory_bytes_per_s = 418.75e9           # one of eight memory slices
multiprocessors = 16
[dense_flops_per_s]
fp32 = 8.1e12
tf32 = 60e12
bf16 = 119.9e12
fp16 = 119.9e12
fp8 = 239.9e12
int8 = 239.9e12
[sources."*"]
kind = "assumed"
ref = "16 of 132 SMs and one of eight memory slices"
confidence = "medium"
"""


@pytest.fixture
def user_profiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "hardware_profiles"
    folder.mkdir()
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path))
    return folder


def test_adding_an_accelerator_touches_one_file(user_profiles: Path) -> None:
    before = {gpu.id for gpu in list_gpus()}
    (user_profiles / "acme-1.toml").write_text(NEW_GPU)
    assert {gpu.id for gpu in list_gpus()} - before == {"acme-1"}
    assert load_gpu("acme-1").peak_flops_per_s("bf16") == 1e15
    (user_profiles / "acme-1.toml").unlink()
    with pytest.raises(InputError, match="acme-1"):
        load_gpu("acme-1")


def test_a_changed_file_is_read_again(user_profiles: Path) -> None:
    path = user_profiles / "acme-1.toml"
    path.write_text(NEW_GPU)
    assert load_gpu("acme-1").memory_bytes_per_s == 5e12
    assert load_gpu("acme-1") is load_gpu("acme-1")
    path.write_text(NEW_GPU.replace("5e12", "6e12"))
    os.utime(path, ns=(1, 1))
    assert load_gpu("acme-1").memory_bytes_per_s == 6e12


def test_listing_all_takes_little_even_cold() -> None:
    def cold_s() -> float:
        for cache in (catalogue._table, catalogue._complete_file, catalogue._gpu):
            cache.cache_clear()
        start = time.process_time()
        list_gpus()
        return time.process_time() - start

    assert min(cold_s() for _ in range(3)) < 0.12  # 0.025 s on one free core; the rest is for a busy machine


def test_the_users_file_wins_by_id(user_profiles: Path) -> None:
    shipped = (PROFILES_DIR / "t4.toml").read_text()
    (user_profiles / "t4.toml").write_text(shipped.replace("tdp_w = 70", "tdp_w = 60"))
    assert load_gpu("t4").tdp_w == 60
    assert len(list_gpus()) == 54


def test_a_users_file_may_extend_the_shipped_one_of_its_own_id(user_profiles: Path) -> None:
    (user_profiles / "h100-80g-sxm.toml").write_text('id = "h100-80g-sxm"\nextends = "h100-80g-sxm"\ntdp_w = 500\n')
    gpu = load_gpu("h100-80g-sxm")
    assert (gpu.tdp_w, gpu.memory_bytes_per_s) == (500, 3.35e12)


def test_a_power_cap_changes_what_it_says_and_its_source(user_profiles: Path) -> None:
    parent = load_gpu("h100-80g-sxm")
    gpu = gpu_from_toml('id = "h100-450w"\nextends = "h100-80g-sxm"\ntdp_w = 450\n[dense_flops_per_s]\nbf16 = 800e12\n', "cap.toml")
    assert gpu.tdp_w == 450
    assert gpu.peak_flops_per_s("bf16") == 800e12
    assert gpu.peak_flops_per_s("fp16") == parent.peak_flops_per_s("fp16")
    assert gpu.source_for("tdp_w").kind == gpu.source_for("dense_flops_per_s.bf16").kind == "assumed"
    assert "cap.toml" in gpu.source_for("tdp_w").ref
    assert gpu.source_for("tdp_w").confidence == "low"
    assert gpu.source_for("dense_flops_per_s.fp16") == parent.source_for("dense_flops_per_s.fp16")
    assert gpu.source_for("memory_bytes_per_s") == parent.source_for("memory_bytes_per_s")
    assert load_gpu("h100-80g-sxm") == parent


def test_a_mig_slice_states_its_figures_and_has_no_link() -> None:
    gpu = gpu_from_toml(MIG_SLICE, "slice.toml")
    assert gpu.link is None
    assert gpu.memory_reported_bytes == 9984 * 2**20
    assert gpu.source_for("memory_bytes_per_s").ref.startswith("16 of 132")
    assert gpu.source_for("l2_bytes").kind == "datasheet"


def test_a_removed_rate_is_gone_with_its_source() -> None:
    gpu = gpu_from_toml('id = "x"\nextends = "h100-80g-sxm"\nremove = ["dense_flops_per_s.fp8"]', "x.toml")
    assert "fp8" not in gpu.dense_flops_per_s
    assert "dense_flops_per_s.fp8" not in gpu.sources


def test_extends_goes_through_the_users_own_files(user_profiles: Path) -> None:
    (user_profiles / "acme-1.toml").write_text(NEW_GPU)
    (user_profiles / "acme-2.toml").write_text('id = "acme-2"\nextends = "acme-1"\nmemory_bytes_per_s = 6e12\n')
    (user_profiles / "acme-3.toml").write_text('id = "acme-3"\nextends = "acme-2"\nlaunch_year = 2027\n')
    gpu = load_gpu("acme-3")
    assert (gpu.launch_year, gpu.memory_bytes_per_s, gpu.peak_flops_per_s("bf16")) == (2027, 6e12, 1e15)


@pytest.mark.parametrize("ring", [["a", "a"], ["a", "b", "a"], ["a", "b", "c", "b"]])
def test_a_circle_is_refused(user_profiles: Path, ring: list[str]) -> None:
    for name, parent in itertools.pairwise(ring):
        (user_profiles / f"{name}.toml").write_text(f'id = "{name}"\nextends = "{parent}"\n')
    with pytest.raises(InputError, match="circle"):
        load_gpu("a")
    with pytest.raises(InputError, match="circle"):
        gpu_from_toml('id = "z"\nextends = "a"', "z.toml")


def test_one_bad_file_hides_no_other(user_profiles: Path) -> None:
    (user_profiles / "broken.toml").write_text("id = ")
    (user_profiles / "Not An Id.toml").write_text(NEW_GPU)
    survey = survey_gpus()
    assert len(survey.profiles) == 54
    assert sorted(error.field for error in survey.errors) == ["Not An Id.toml", "broken.toml"]
    assert load_gpu("t4").id == "t4"
    with pytest.raises(InputError):
        list_gpus()


def test_an_id_other_than_the_files_name_is_refused(user_profiles: Path) -> None:
    (user_profiles / "acme-2.toml").write_text(NEW_GPU)
    with pytest.raises(InputError, match=r"acme-2.toml: id is 'acme-1': must equal the file's name"):
        load_gpu("acme-2")


def test_a_missing_home_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLANNER_HOME", str(tmp_path / "nowhere"))
    assert len(list_gpus()) == 54


@pytest.mark.parametrize("data", ["é".encode("latin-1"), b"\xff\xfe\x00", b"\x80"])
def test_a_file_that_is_not_utf8_is_refused(user_profiles: Path, data: bytes) -> None:
    (user_profiles / "acme-1.toml").write_bytes(NEW_GPU.encode() + b"# " + data)
    with pytest.raises(InputError, match="UTF-8"):
        load_gpu("acme-1")


def test_a_byte_order_mark_is_read_over(user_profiles: Path) -> None:
    (user_profiles / "acme-1.toml").write_text(NEW_GPU, encoding="utf-8-sig")
    assert load_gpu("acme-1").id == "acme-1"


def test_a_file_too_large_is_refused_unparsed(user_profiles: Path) -> None:
    (user_profiles / "acme-1.toml").write_text(NEW_GPU + "# padding\n" * 20_000)
    with pytest.raises(InputError, match="65,536 bytes"):
        load_gpu("acme-1")


@pytest.mark.parametrize(
    "gpu_id", ["h100", "H100-80G-SXM", "../t4", "t4/../t4", "/etc/passwd", "", "x" * 5000, "t4\x00", None, 4, ["t4"]]
)
def test_an_unknown_or_hostile_id_is_an_input_error(gpu_id: Any) -> None:
    with pytest.raises(InputError) as caught:
        load_gpu(gpu_id)
    assert caught.value.field == "gpu_id"


@pytest.mark.parametrize(
    ("wanted", "near"),
    [
        ("H100", "h100-80g-sxm"),
        ("H100-80G-SXM", "h100-80g-sxm"),
        ("NVIDIA H100 80GB HBM3", "h100-80g-sxm"),
        ("AMD Instinct MI300X", "mi300x"),
    ],
)
def test_a_gpu_as_a_driver_or_a_price_list_writes_it_is_pointed_to_its_id(wanted: str, near: str) -> None:
    with pytest.raises(InputError) as caught:
        load_gpu(wanted, "hardware.gpu_ids")
    assert caught.value.field == "hardware.gpu_ids"
    assert near in caught.value.remedy
    assert len(str(caught.value)) < 600


def test_an_unknown_id_lists_near_ones() -> None:
    with pytest.raises(InputError, match="h100-80g-sxm"):
        load_gpu("h100")
    with pytest.raises(InputError, match="rtx-4090"):
        load_gpu("rtx4090")


# (lines that replace the same in NEW_GPU or stand before it, what the error must name)
FAULTS = [
    ("memory_bytes_per_s = nan", "memory_bytes_per_s is nan: must be a finite number. Give memory bandwidth"),
    ("memory_bytes_per_s = inf", "memory_bytes_per_s is inf"),
    ("memory_bytes_per_s = -5e12", "memory_bytes_per_s is -5"),
    ("memory_bytes_per_s = 0", "memory_bytes_per_s is 0"),
    ("memory_bytes_per_s = 1e300", "memory_bytes_per_s is 1e"),
    ('memory_bytes_per_s = "5e12"', "memory_bytes_per_s is '5e12': must be a valid number"),
    ("memory_bytes_per_s = true", "memory_bytes_per_s is True"),
    ("memory_bytes_per_s = [5e12]", "memory_bytes_per_s"),
    ("memory_bytes_per_s = 99999999999999999999", "integer of over 19 digits"),
    (f"memory_bytes_per_s = 0x{'f' * 1500}", "integer of over 19 digits"),
    ("launch_year = 1066", "launch_year is 1066"),
    ("launch_year = 2026.5", "launch_year is 2026.5"),
    ('name = "<script>alert(1)</script>"', "name is '<script>"),
    (f'name = "{"x" * 1000}"', "name is 'xxx"),
    ('id = "../acme"', "id is '../acme'"),
    ('id = "Acme"', "id is 'Acme'"),
    ("tpd_w = 300", "tpd_w is 300: is not a known key. Known near it: tdp_w"),
    ("pcie = 5", "pcie is 5"),
    ('sources = "me"', "sources is 'me'"),
    ("schema_version = 2", "schema_version is 2"),
]


@pytest.mark.parametrize(("line", "says"), FAULTS)
def test_a_fault_is_named_with_field_value_bound_and_remedy(line: str, says: str) -> None:
    key = line.partition(" ")[0]
    kept = [old for old in NEW_GPU.splitlines() if not old.startswith(f"{key} ")]
    text = "\n".join([line, *kept])
    if key == "sources":
        text = text.replace('[sources."*"]\nkind = "datasheet"\nref = "Acme One data sheet"', "")
    with pytest.raises(InputError) as caught:
        gpu_from_toml(text, "up.toml")
    assert says in str(caught.value)
    assert caught.value.field.startswith("up.toml")
    assert caught.value.bound
    assert caught.value.remedy


@pytest.mark.parametrize("key", ["id", "name", "memory_reported_bytes", "memory_bytes_per_s", "launch_year"])
def test_a_missing_figure_is_named_not_defaulted(key: str) -> None:
    text = "\n".join(line for line in NEW_GPU.splitlines() if not line.startswith(f"{key} "))
    with pytest.raises(InputError, match=rf"up.toml: {key} is None: is missing"):
        gpu_from_toml(text, "up.toml")


def test_a_source_without_kind_is_refused() -> None:
    with pytest.raises(InputError, match=r"sources\.\*\.kind is None: is missing"):
        gpu_from_toml(NEW_GPU.replace('kind = "datasheet"', ""), "up.toml")


BOMBS = {
    "arrays": ("a = " + "[" * 1_900, "nest"),
    "closed arrays": ("a = " + "[" * 300 + "]" * 300, "nest"),
    "inline tables": ("a = " + "{a=" * 600, "nest"),
    "dotted key": (".".join("a" * 30_000) + " = 1", "line 1"),
    "short dotted key": (".".join("a" * 20) + " = 1", "nest"),
    "long line": ("# \na = '" + "x" * 60_000 + "'", "line 2"),
    "large": ("# x\n" * 40_000, "65,536 bytes"),
    "digits": ("a = " + "9" * 1_900, "19 digits"),
    "no toml": ("\x00\x01", "not valid TOML"),
    "surrogate": ("a = '\ud800'", "bomb.toml"),
    "empty": ("", "is missing"),
    "array of tables": ("[[sources]]\nkind = 1", "bomb.toml"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_an_input_error(name: str) -> None:
    text, says = BOMBS[name]
    with pytest.raises(InputError) as caught:
        gpu_from_toml(text, "bomb.toml")
    assert "bomb.toml" in caught.value.field
    assert says in str(caught.value)
    assert len(str(caught.value)) < 800


def test_the_worst_text_that_the_bounds_allow_is_read_in_a_moment() -> None:
    text = "\n".join(f"x{n}." + ".".join("a" * 980) + " = 1" for n in range(33))
    start = time.process_time()
    with pytest.raises(InputError, match="nest"):
        gpu_from_toml(text, "bomb.toml")
    assert time.process_time() - start < 5


@pytest.mark.parametrize("parent", ['"../t4"', '"t5"', "5", '["t4"]', "{a = 1}", '""'])
def test_extends_takes_a_known_id_only(parent: str) -> None:
    with pytest.raises(InputError, match=r"up.toml: extends"):
        gpu_from_toml(f'id = "x"\nextends = {parent}\n', "up.toml")


@pytest.mark.parametrize("remove", ['"link"', "[1]", '["lnk"]', '["link.kind.x"]', '["dense_flops_per_s.fp4"]'])
def test_remove_takes_a_list_of_present_figures(remove: str) -> None:
    with pytest.raises(InputError, match=r"up.toml: remove"):
        gpu_from_toml(f'id = "x"\nextends = "h100-80g-sxm"\nremove = {remove}\n', "up.toml")


def test_removing_what_must_be_there_is_named() -> None:
    with pytest.raises(InputError, match=r"up.toml: memory_bytes_per_s is None: is missing"):
        gpu_from_toml('id = "x"\nextends = "h100-80g-sxm"\nremove = ["memory_bytes_per_s"]\n', "up.toml")


def test_the_example_of_the_readme_works() -> None:
    text = (PROFILES_DIR / "README.md").read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    gpu = gpu_from_toml(text, "example.toml")
    assert (gpu.tdp_w, gpu.source_for("tdp_w").kind, gpu.source_for("memory_bytes_per_s").kind) == (450, "measured", "datasheet")


def test_the_schema_knows_both_ways_of_writing_a_profile() -> None:
    schema = gpu_json_schema()
    assert schema["additionalProperties"] is False
    assert {"extends", "remove", "memory_bytes_per_s"} <= set(schema["properties"])
    assert "memory_bytes_per_s" in schema["else"]["required"]
    assert schema["required"] == ["id"]
    assert "9.0" in schema["properties"]["compute_capability"]["description"]

"""The shipped accelerators: all load, and a dozen agree with their data sheets; the errors of other catalogues are not in them."""

import itertools

import pytest

from planner.errors import InputError
from planner.hardware import FigureSource, figure_names, list_gpus, load_gpu
from planner.paths import PROFILES_DIR
from planner.units import GB, GIB, MIB, TFLOPS

GPU_IDS = sorted(path.stem for path in PROFILES_DIR.glob("*.toml"))

# NVIDIA, AMD, Intel, Google and AWS data sheets: memory as the driver reports it [MiB], bandwidth [GB/s], dense rates [TFLOP/s],
# power [W], link in one direction [GB/s].
DATASHEETS = [
    ("a100-80g-sxm", 81920, 2039, {"bf16": 312, "int8": 624, "tf32": 156}, 400, 300),
    ("a100-40g-pcie", 40960, 1555, {"bf16": 312}, 250, 300),
    ("h100-80g-sxm", 81559, 3350, {"bf16": 989.4, "fp8": 1978.9, "fp32": 67}, 700, 450),
    ("h100-80g-pcie", 81559, 2000, {"bf16": 756, "fp8": 1513}, 350, 300),
    ("h100-94g-nvl", 95830, 3938, {"bf16": 835.5, "fp8": 1670.5}, 400, 300),
    ("h200-141g-sxm", 143771, 4800, {"bf16": 989.4}, 700, 450),
    ("b200-sxm", 183359, 8000, {"bf16": 2250, "fp8": 4500, "fp4": 9000}, 1000, 900),
    ("gb200", 189471, 8000, {"bf16": 2500, "fp8": 5000, "fp4": 10000}, 1200, 900),
    ("l4", 23034, 300, {"bf16": 121, "fp8": 242.5}, 72, None),
    ("l40s", 46068, 864, {"bf16": 362, "fp8": 733}, 350, None),
    ("a10g", 23028, 600, {"bf16": 70}, 300, None),
    ("t4", 15360, 320, {"fp16": 65, "int8": 130}, 70, None),
    ("rtx-4090", 24564, 1008, {"bf16": 165.2, "fp8": 330.3}, 450, None),
    ("rtx-5090", 32607, 1792, {"bf16": 209.5, "fp8": 419, "fp4": 1676}, 575, None),
    ("mi300x", 196592, 5300, {"bf16": 1307.4, "fp8": 2614.9}, 750, 448),
    ("mi355x", 294896, 8000, {"bf16": 2516.6, "fp4": 10066}, 1400, 535.5),
    ("gaudi3", 131072, 3700, {"bf16": 1678, "fp8": 1678}, 900, 525),
    ("tpu-v5e", 16384, 819, {"bf16": 197, "int8": 394}, None, 200),
]

# What shipped packages got wrong: (id, figure, the wrong value seen). The right one is in the profile.
SEEN_ELSEWHERE = [
    ("h100-80g-sxm", "bf16", 1979),  # with sparsity
    ("gh200-96g", "bf16", 1979),
    ("b100", "bf16", 3500),
    ("gb200", "bf16", 4500),
    ("h200-141g-sxm", "bf16", 2000),
    ("l40s", "fp8", 1466),
    ("l4", "fp8", 485),
    ("h100-94g-nvl", "bf16", 1979),  # the pair
    ("a40", "bf16", 37.4),  # vector rate
    ("rtx-a6000", "bf16", 38.7),
    ("rtx-4090", "bf16", 82.6),
    ("rtx-3090", "bf16", 35.6),
    ("rtx-4090", "fp16", 330),  # with FP16 accumulate
    ("a10g", "bf16", 125),  # the A10's
    ("b300-sxm", "int8", 4500),  # removed on Blackwell Ultra
    ("gb300", "int8", 5000),
    ("mi250x", "bf16", 383),  # the package
    ("gaudi3", "bf16", 1835),  # white paper's clock
]

WEAK = [
    "b100",
    "gb10-dgx-spark",
    "jetson-agx-orin-64g",
    "jetson-thor",
    "rtx-pro-6000-bw-server",
    "rtx-pro-6000-bw-ws",
    "rtx-5090",
    "h20-96g",
    "h800-80g-sxm",
    "gh200-144g",
    "b300-sxm",
    "gb300",
    "gaudi2",
    "gaudi3",
]


def test_all_fifty_four_load_and_are_named_as_their_files() -> None:
    assert [gpu.id for gpu in list_gpus()] == GPU_IDS
    assert len(GPU_IDS) == 54


@pytest.mark.parametrize("row", DATASHEETS, ids=lambda row: str(row[0]))
def test_figures_are_those_of_the_data_sheet(row: tuple[str, int, float, dict[str, float], float | None, float | None]) -> None:
    gpu_id, mib, gb_per_s, tflops, watts, link_gb_per_s = row
    gpu = load_gpu(gpu_id)
    assert gpu.memory_reported_bytes == mib * MIB
    assert gpu.memory_bytes_per_s == pytest.approx(gb_per_s * GB, rel=1e-12)
    for dtype, rate in tflops.items():
        assert gpu.peak_flops_per_s(dtype) == pytest.approx(rate * TFLOPS, rel=1e-12)
    assert gpu.tdp_w == watts
    assert (gpu.link.unidirectional_bytes_per_s if gpu.link else None) == (link_gb_per_s and link_gb_per_s * GB)


@pytest.mark.parametrize(("gpu_id", "dtype", "wrong_tflops"), SEEN_ELSEWHERE)
def test_rates_are_not_the_wrong_ones_of_other_catalogues(gpu_id: str, dtype: str, wrong_tflops: float) -> None:
    assert load_gpu(gpu_id).peak_flops_per_s(dtype) != pytest.approx(wrong_tflops * TFLOPS, rel=0.02)


def test_the_two_editions_of_the_rtx_pro_6000_differ_in_bandwidth() -> None:
    assert load_gpu("rtx-pro-6000-bw-server").memory_bytes_per_s == 1597e9
    assert load_gpu("rtx-pro-6000-bw-ws").memory_bytes_per_s == 1792e9


def test_mi325x_has_256_gb_not_the_288_announced() -> None:
    assert load_gpu("mi325x").memory_marketed_gb == 256
    assert load_gpu("mi325x").memory_reported_bytes == 256 * GIB


def test_mi250x_is_one_of_two_devices() -> None:
    gpu = load_gpu("mi250x")
    assert (gpu.memory_marketed_gb, gpu.multiprocessors, gpu.tdp_w) == (64, 110, 280)
    assert gpu.peak_flops_per_s("bf16") == 383e12 / 2


@pytest.mark.parametrize(("gpu_id", "gb_per_s"), [("h100-80g-sxm", 450), ("b200-sxm", 900), ("a100-80g-sxm", 300)])
def test_a_switch_gives_any_two_gpus_the_whole_link(gpu_id: str, gb_per_s: float) -> None:
    link = load_gpu(gpu_id).link
    assert link is not None
    assert link.topology == "switch"
    assert link.between_two_bytes_per_s == gb_per_s * GB


@pytest.mark.parametrize(("gpu_id", "gb_per_s"), [("mi300x", 64), ("mi325x", 64), ("mi355x", 76.5), ("gaudi3", 75), ("mi210", 50)])
def test_a_mesh_gives_two_gpus_one_share_of_it(gpu_id: str, gb_per_s: float) -> None:
    link = load_gpu(gpu_id).link
    assert link is not None
    assert link.between_two_bytes_per_s == pytest.approx(gb_per_s * GB)


@pytest.mark.parametrize("gpu_id", ["a100-80g-pcie", "h100-80g-pcie", "h100-94g-nvl", "a40", "rtx-a6000"])
def test_a_bridge_joins_pairs_and_is_not_there_unless_bought(gpu_id: str) -> None:
    gpu = load_gpu(gpu_id)
    assert gpu.link is not None
    assert (gpu.link.topology, gpu.link.domain_gpus, gpu.link.sold_separately) == ("pairs", 2, True)
    assert gpu.usual_link is None
    assert load_gpu("h100-80g-sxm").usual_link is not None


@pytest.mark.parametrize(("gpu_id", "gb_per_s"), [("t4", 15.75), ("l40s", 31.5), ("h100-80g-sxm", 63.0), ("b300-sxm", 121.0)])
def test_pcie_is_the_payload_rate_of_one_direction(gpu_id: str, gb_per_s: float) -> None:
    pcie = load_gpu(gpu_id).pcie
    assert pcie is not None
    assert pcie.theoretical_bytes_per_s == pytest.approx(gb_per_s * GB, rel=1e-9)


def test_achieved_pcie_is_measured_on_the_h200_and_assumed_elsewhere() -> None:
    kinds = {
        gpu.id: gpu.source_for("pcie.achieved_bytes_per_s").kind
        for gpu in list_gpus()
        if gpu.pcie and gpu.pcie.achieved_bytes_per_s
    }
    assert {gpu_id for gpu_id, kind in kinds.items() if kind == "measured"} == {"h200-141g-sxm"}
    assert set(kinds.values()) == {"measured", "assumed"}
    assert load_gpu("h200-141g-sxm").pcie.achieved_bytes_per_s == 55.4e9  # type: ignore[union-attr]


@pytest.mark.parametrize("gpu_id", ["t4", "v100-16g-sxm", "v100-16g-pcie", "v100-32g-sxm"])
def test_an_absent_dtype_is_absent_and_the_error_names_those_present(gpu_id: str) -> None:
    gpu = load_gpu(gpu_id)
    assert "bf16" not in gpu.dense_flops_per_s
    with pytest.raises(InputError, match=r"dtype is 'bf16': must be a rate that .* has: fp32, fp16"):
        gpu.peak_flops_per_s("bf16")


@pytest.mark.parametrize("gpu_id", WEAK)
def test_weak_rows_say_so(gpu_id: str) -> None:
    assert load_gpu(gpu_id).confidence in ("low", "medium")


@pytest.mark.parametrize("gpu_id", GPU_IDS)
def test_every_figure_has_an_origin(gpu_id: str) -> None:
    gpu = load_gpu(gpu_id)
    for field in figure_names():
        source = gpu.source_for(field)
        assert source.ref
        assert source.kind in ("datasheet", "published", "measured", "assumed")
        assert source.retrieved is not None


def test_a_source_of_one_figure_keeps_the_kind_of_its_tables_source() -> None:
    source = load_gpu("gb10-dgx-spark").source_for("dense_flops_per_s.bf16")
    assert source.kind == "assumed"
    assert isinstance(source, FigureSource)
    assert source.agreeing == 1
    assert load_gpu("h100-80g-sxm").source_for("dense_flops_per_s.bf16").kind == "datasheet"


@pytest.mark.parametrize("gpu_id", GPU_IDS)
def test_files_keep_themselves_readable(gpu_id: str) -> None:
    text = (PROFILES_DIR / f"{gpu_id}.toml").read_text(encoding="utf-8")
    assert text.startswith("# ")
    assert len(text) < 8_000
    assert max(map(len, text.splitlines())) <= 200


def test_profiles_go_into_caches_and_differ() -> None:
    gpus = list_gpus()
    assert len({hash(gpu) for gpu in gpus}) == len(gpus)
    assert all(a != b for a, b in itertools.pairwise(gpus))


def test_an_unknown_figure_has_no_source() -> None:
    with pytest.raises(InputError, match=r"tdp is no|field is 'tdp'.*tdp_w"):
        load_gpu("t4").source_for("tdp")

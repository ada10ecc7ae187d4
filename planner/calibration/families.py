"""What linear layers reach of their peak on each family of accelerators, and how dtypes compare: the evidence behind the priors."""

from typing import NamedTuple

from planner.calibration.schema import InformedBy
from planner.hardware import GpuProfile
from planner.units import US


class Family(NamedTuple):
    """What one family of accelerators reaches, and why.

    vendor, arch, form, gpu : beginnings of the profile's fields and of its id; "" fits any
    compute_efficiency : share of the 16-bit peak that linear layers reach [1]
    informed_by, reason : of the compute efficiency
    memory_efficiency : share of memory bandwidth at which 16-bit weights stream [1]; None: the median of all engines
    layer_s : constant of one layer [s]; None: the median of all engines
    kv_read_ratio : share at which attention reads the cache ÷ the share at which weights stream [1]; None: not told apart
    """

    vendor: str
    arch: str
    form: str
    compute_efficiency: float
    informed_by: InformedBy
    reason: str
    memory_efficiency: float | None = None
    layer_s: float | None = None
    gpu: str = ""
    kv_read_ratio: float | None = None


_FIT = "fit to whole steps composed of operator tables (aiconfigurator-core 0.12.0, Apache-2.0)"
_CARDS = "MLPerf Inference v5.0 offline, Mixtral-8x7B: {} a GPU (openshift-psap/performance-dashboard; not verified by MLCommons)"
_NVL = (
    "between 0.67, from the SXM share and 0.73 of its tokens/s ("
    + _CARDS.format("4,714 to 4,875 tokens/s on H100 NVL, 6,381 to 6,591 on SXM")
    + "), and 0.49, from Poisson sweeps of Llama-3.1-8B on an H100 NVL (vllm-cost-meter, MIT): 400 W can't hold the clocks"
)
_H200_NVL = "the SXM share and 0.83 of its tokens/s (" + _CARDS.format("6,265 to 6,526 on H200 NVL, 7,589 to 7,939 on SXM") + ")"
_A100_PCIE = (
    "between 0.75, A100 SXM's share times 0.93 of its best matrix product (stas00/ml-engineering, MAMF table, CC-BY-SA-4.0), "
    "and 0.59, from Poisson sweeps of Llama-3.1-8B on an A100 PCIe (vllm-cost-meter, MIT): 300 W can't hold the clocks"
)
_MAMF = "best matrix product (stas00/ml-engineering, MAMF table, CC-BY-SA-4.0) times 0.92, the fitted share against the best one"
_RTX = "fit to steps composed of LLMServingSim's kernel times (commit 5daddb2, MIT) on RTX PRO 6000"
FAMILIES = (
    Family("NVIDIA", "Hopper", "PCIe", 0.75, "prior", _H200_NVL, 0.89, 47 * US, gpu="h200", kv_read_ratio=1.05),
    Family("NVIDIA", "Hopper", "PCIe", 0.58, "prior", _NVL, 0.89, 60 * US, kv_read_ratio=1.05),
    Family("NVIDIA", "Hopper", "", 0.77, "prior", f"H100 and H200 SXM {_FIT}", 0.89, 47 * US, kv_read_ratio=1.05),
    Family("NVIDIA", "Ampere GA100", "PCIe", 0.66, "prior", _A100_PCIE, 0.76, 80 * US),
    Family("NVIDIA", "Ampere GA100", "", 0.81, "prior", f"A100 SXM {_FIT}", 0.76, 72 * US),
    Family("NVIDIA", "Ampere", "", 0.65, "assumed", "between A100 and L40S: GDDR cards with a low power limit, not measured"),
    Family("NVIDIA", "Ada", "", 0.61, "prior", f"L40S {_FIT}", 0.81, 62 * US),
    Family("NVIDIA", "Blackwell GB20", "", 0.85, "prior", _RTX, 0.92, 50 * US),
    Family("NVIDIA", "Blackwell", "SoC", 0.60, "assumed", "low power limit and shared memory, not measured"),
    Family(
        "NVIDIA", "Blackwell", "", 0.66, "prior", "B200 fit to operator tables with the same step form, published", 0.94, 44 * US
    ),
    Family("NVIDIA", "", "", 0.55, "assumed", "older tensor cores, not measured"),
    Family("AMD", "CDNA3", "OAM", 0.51, "prior", f"MI300X 0.51 and MI325X 0.60: {_MAMF}"),
    Family("AMD", "CDNA4", "", 0.63, "prior", f"MI355X 0.68: {_MAMF}"),
    Family("AMD", "", "", 0.50, "assumed", "older matrix cores, not measured"),
    Family("Intel", "Gaudi2", "", 0.80, "prior", f"0.97: {_MAMF}, less for shapes that are not the best one"),
    Family("Intel", "Gaudi3", "", 0.68, "prior", f"0.74: {_MAMF}"),
    Family("", "", "", 0.50, "assumed", "no measurement of this accelerator at hand"),
)


class DtypeRatio(NamedTuple):
    """Share of its own peak that a dtype reaches, against 16 bit, and where the ratio comes from."""

    ratio: float
    low: float
    high: float
    informed_by: InformedBy
    reason: str


_GEMM = "medians over shapes at 2,048 to 8,192 rows (operator tables of aiconfigurator-core 0.12.0, vLLM kernels, Apache-2.0)"
_EIGHT_BIT = DtypeRatio(0.76, 0.65, 0.91, "prior", f"eight GPUs reach 0.65 to 0.91 of bf16's share of their own peak: {_GEMM}")
_FOUR_BIT = DtypeRatio(0.64, 0.40, 0.74, "prior", f"five Blackwell GPUs reach 0.40 to 0.74 of bf16's share: {_GEMM}")
DTYPE_RATIOS: dict[str, DtypeRatio] = {
    "fp8": _EIGHT_BIT,
    "int8": DtypeRatio(0.76, 0.55, 0.91, "assumed", f"taken to equal fp8: {_EIGHT_BIT.reason}"),
    "fp4": _FOUR_BIT,
    "int4": DtypeRatio(0.64, 0.40, 0.74, "assumed", f"taken to equal fp4: {_FOUR_BIT.reason}"),
    "bf16": DtypeRatio(1.0, 1.0, 1.0, "prior", "the dtype that the family's share was measured in"),
    "fp16": DtypeRatio(1.0, 0.95, 1.0, "assumed", "same tensor cores and rate as bf16"),
    "tf32": DtypeRatio(1.0, 0.8, 1.0, "assumed", "same tensor cores as bf16 at half its rate"),
    "fp32": DtypeRatio(1.0, 0.7, 1.0, "assumed", "vector units; not measured"),
}
GPU_DTYPE_RATIOS: dict[tuple[str, str], float] = {
    ("h100-80g-sxm", "fp8"): 0.73,
    ("h200-141g-sxm", "fp8"): 0.82,
    ("l40s", "fp8"): 0.80,
    ("b200-sxm", "fp8"): 0.69,
    ("b200-sxm", "fp4"): 0.64,
    ("b300-sxm", "fp8"): 0.66,
    ("b300-sxm", "fp4"): 0.42,
    ("gb200", "fp8"): 0.79,
    ("gb200", "fp4"): 0.71,
    ("gb300", "fp8"): 0.65,
    ("gb300", "fp4"): 0.40,
    ("rtx-pro-6000-bw-server", "fp8"): 0.91,
    ("rtx-pro-6000-bw-server", "fp4"): 0.74,
}


class WholeExperts(NamedTuple):
    """What routed experts stored in 16 bit reach on one architecture.

    ratio : share of the linear layers' share at 768 values of an expert on one GPU [1]
    half_width : width at which the products of wider ones reach half of their best share, which goes as w / (w + half_width)
    reason : the evidence
    """

    ratio: float
    half_width: float
    reason: str


_EXPERT_SWEEPS = (
    "Poisson sweeps of Qwen3-30B-A3B (768 values) and Mixtral (7,168) in 16 bit on {} (vLLM 0.19, vllm-cost-meter, MIT)"
)
_HOPPER_EXPERTS = WholeExperts(
    0.50,
    165.0,
    f"{_EXPERT_SWEEPS.format('H100 NVL')} are met best with 0.45 to 0.56 and 0.53 to 0.6; 0.61 · w / (w + 165) is 0.50 and 0.59",
)
_OTHER_EXPERTS = WholeExperts(
    0.35,
    750.0,
    f"{_EXPERT_SWEEPS.format('A100 PCIe')} are met best with 0.3 to 0.35 and 0.63; 0.69 · w / (w + 750) is 0.35 and 0.62",
)


def whole_experts(gpu: GpuProfile) -> WholeExperts:
    """Return what routed experts stored in 16 bit reach on a GPU; A100's figures stand for all but Hopper's.

    gpu : its architecture decides
    """
    return _HOPPER_EXPERTS if gpu.arch.startswith("Hopper") else _OTHER_EXPERTS


def family_of(gpu: GpuProfile) -> Family:
    """Return the family whose evidence fits a GPU; the last one fits all.

    gpu : its vendor, arch, form and id decide
    """
    return next(
        family
        for family in FAMILIES
        if gpu.vendor.startswith(family.vendor)
        and gpu.arch.startswith(family.arch)
        and gpu.form.startswith(family.form)
        and gpu.id.startswith(family.gpu)
    )


def dtype_ratio(gpu_id: str, dtype: str) -> DtypeRatio:
    """Return how a dtype's share of its peak compares with 16 bit on a GPU: its own tables where there are any, else all GPUs'.

    >>> dtype_ratio("b200-sxm", "fp8").ratio, dtype_ratio("mi300x", "fp8").ratio
    (0.69, 0.76)
    """
    general = DTYPE_RATIOS[dtype]
    own = GPU_DTYPE_RATIOS.get((gpu_id, dtype))
    if own is None:
        return general
    return DtypeRatio(own, 0.9 * own, min(1.0, 1.1 * own), "prior", f"this GPU's own {_GEMM}")

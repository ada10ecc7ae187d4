"""How weights are stored: bits with their scales, the modules left alone, and the dtypes of matmul and cache."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from planner.errors import InputError
from planner.provenance import Source

WeightDtype = Literal["fp32", "bf16", "fp16"]
ComputeDtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4"]
KvDtype = Literal["bf16", "fp8", "fp32"]
Module = Literal["embedding", "head", "attention", "mlp", "experts", "shared_experts", "router"]
MODULES: tuple[Module, ...] = ("embedding", "head", "attention", "mlp", "experts", "shared_experts", "router")

Bits = Annotated[float, Field(gt=0, le=64, allow_inf_nan=False)]
_KV_BYTES: dict[str, float] = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp32": 4.0}


class Quantization(BaseModel):
    """One way to store a model's weights, applied to any model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]*$", max_length=60)
    weight_bits: Bits = Field(description="bits of a quantised weight with its share of scales and zero points")
    excluded: tuple[Module, ...] = Field(default=(), description="modules kept at other_bits")
    module_bits: tuple[tuple[Module, Bits], ...] = Field(default=(), description="modules with bits of their own")
    other_bits: Bits = Field(default=16.0, description="bits of excluded modules, norms and biases")
    compute_dtype: ComputeDtype = Field(description="dtype of the matmul; weight-only methods multiply in 16 bit")
    kv_dtype: KvDtype = Field(default="bf16", description="KV cache dtype that the checkpoint asks for")
    group_size: int | None = Field(default=None, ge=1, le=65536, description="input values that share a scale")
    block_size: int | None = Field(default=None, ge=1, le=65536, description="side of the square block that shares a scale")
    source: Source

    def bits_of(self, module: Module) -> float:
        """Return the bits of one weight of a module, scales included."""
        for name, bits in self.module_bits:
            if name == module:
                return bits
        return self.other_bits if module in self.excluded else self.weight_bits


def grouped_bits(bits: float, group_size: float, scale_bits: float, zero_point_bits: float = 0.0) -> float:
    """Bits of one weight with its share of the group's scale and zero point [bit].

    bits, scale_bits, zero_point_bits : of one weight, of the group's scale, of its zero point [bit]
    group_size : weights that share them [1], above 0

    >>> grouped_bits(4, 16, 8), grouped_bits(4, 128, 16, 4)
    (4.5, 4.15625)
    """
    return bits + (scale_bits + zero_point_bits) / group_size


def kv_value_bytes(kv_dtype: str) -> float:
    """Bytes of one cached value [B]; kv_dtype is "bf16" (or its equal in size "fp16"), "fp8" or "fp32".

    Raises InputError for any other name. fp8 caches keep one scale per tensor, so nothing is added for scales
    (vLLM 0.33, v1/kv_cache_interface.py).
    """
    if kv_dtype not in _KV_BYTES:
        raise InputError("kv_dtype", kv_dtype, f"must be one of {', '.join(_KV_BYTES)}", "Choose a KV cache dtype from the list")
    return _KV_BYTES[kv_dtype]


_UNQUANTISED: tuple[Module, ...] = ("embedding", "head", "router")


def _plain(dtype: Literal["fp32", "bf16", "fp16"], bits: float) -> Quantization:
    source = Source(
        kind="published", ref=f"{dtype} is {bits:.0f} bits by definition (IEEE 754; bfloat16: Google)", confidence="high"
    )
    kv_dtype: KvDtype = "fp32" if dtype == "fp32" else "bf16"
    return Quantization(id=dtype, weight_bits=bits, other_bits=bits, compute_dtype=dtype, kv_dtype=kv_dtype, source=source)


def _format(ref: str, confidence: Literal["high", "medium"] = "high") -> Source:
    return Source(kind="published", ref=ref, confidence=confidence)


_FP8_SCALE_BITS = 32.0
_BLOCK = 128

_LISTED = (
    _plain("bf16", 16.0),
    _plain("fp16", 16.0),
    _plain("fp32", 32.0),
    Quantization(
        id="fp8",
        weight_bits=8.0,
        excluded=_UNQUANTISED,
        compute_dtype="fp8",
        source=_format("vLLM fp8: scale per tensor or output channel (below 0.01 bit a weight), linear layers only, head kept"),
    ),
    Quantization(
        id="fp8-block",
        weight_bits=grouped_bits(8, _BLOCK * _BLOCK, _FP8_SCALE_BITS),
        excluded=_UNQUANTISED,
        compute_dtype="fp8",
        block_size=_BLOCK,
        source=_format("DeepSeek-V3 technical report, section 3.3: one fp32 scale for each 128 by 128 block"),
    ),
    Quantization(
        id="int8",
        weight_bits=8.0,
        excluded=_UNQUANTISED,
        compute_dtype="int8",
        source=_format("compressed-tensors w8a8: int8 weights and activations, scale per output channel, head kept"),
    ),
    Quantization(
        id="int4-awq",
        weight_bits=grouped_bits(4, 128, 16, 4),
        excluded=_UNQUANTISED,
        compute_dtype="bf16",
        group_size=128,
        source=_format("AWQ (Lin et al. 2023), group 128: fp16 scale and 4-bit zero point; activations stay in 16 bit"),
    ),
    Quantization(
        id="int4-gptq",
        weight_bits=grouped_bits(4, 128, 16, 4),
        excluded=_UNQUANTISED,
        compute_dtype="bf16",
        group_size=128,
        source=_format("GPTQ (Frantar et al. 2022), group 128: fp16 scale and 4-bit zero point; activations stay in 16 bit"),
    ),
    Quantization(
        id="mxfp4",
        weight_bits=grouped_bits(4, 32, 8),
        excluded=(*_UNQUANTISED, "attention"),
        compute_dtype="bf16",
        group_size=32,
        source=_format("OCP Microscaling 1.0: 8-bit scale for 32 values; gpt-oss leaves attention in bf16, activations too"),
    ),
    Quantization(
        id="nvfp4",
        weight_bits=grouped_bits(4, 16, 8),
        excluded=_UNQUANTISED,
        compute_dtype="fp4",
        group_size=16,
        source=_format("NVIDIA NVFP4: fp8 scale for 16 values and one fp32 scale per tensor; activations in fp4 too"),
    ),
)

QUANTIZATIONS: dict[str, Quantization] = {quantization.id: quantization for quantization in _LISTED}

"""Reads the quantization_config of a checkpoint: bits with scales, matmul and cache dtypes, and the modules left in 16 bit."""

import re
from collections.abc import Callable, Sequence

from planner.errors import InputError
from planner.models.config_fields import Fields
from planner.models.quantization import (
    MODULES,
    QUANTIZATIONS,
    ComputeDtype,
    KvDtype,
    Module,
    Quantization,
    grouped_bits,
)
from planner.provenance import Source

_REMEDY = "Remove quantization_config and choose a quantisation by hand"
_MAX_PATTERNS = 50_000
_MAX_PATTERN_LENGTH = 500
_ALWAYS: frozenset[Module] = frozenset({"embedding", "router"})
_PROJECTIONS = r"(q_proj|qkv_proj|q_b_proj|o_proj|out_proj|in_proj|in_proj_qkvz|dense)"
_MODULE_PATTERNS: tuple[tuple[Module, re.Pattern[str]], ...] = (
    ("head", re.compile(r"lm_head")),
    ("router", re.compile(r"(router|\.gate|block_sparse_moe\.gate)\W*$")),
    ("shared_experts", re.compile(r"shared_expert(s|)\b(?!_gate)")),
    ("experts", re.compile(r"(?<!shared_)(?<!shared)\bexperts\b")),
    ("attention", re.compile(rf"(self_attn|attention|linear_attn|mixer|attn)\W*({_PROJECTIONS}\W*)?$")),
    ("mlp", re.compile(r"(mlp|feed_forward)\W*(\(?(gate|up|down|gate_up)\S*)?$")),
)
_LAYER = re.compile(r"layers\.(\d+)\.")
_ELSEWHERE = re.compile(r"vision|visual|mm_projector|multi_modal|audio|mtp|eagle")


def excluded_modules(patterns: Sequence[str], layers: int) -> tuple[Module, ...]:
    """Return the modules that a list of names or patterns keeps in 16 bit.

    A name with a layer number counts for that layer; a module is left out when at least half of the layers are, so that a few
    special layers don't change the whole. Vision towers and prediction layers are not the language model's.

    >>> excluded_modules(["lm_head", "re:.*self_attn.*"], 32)
    ('embedding', 'head', 'attention', 'router')
    """
    seen: dict[Module, set[str]] = {}
    for pattern in patterns:
        if _ELSEWHERE.search(pattern):
            continue
        plain = pattern.removeprefix("re:").replace("\\", "")
        layer = _LAYER.search(plain)
        name = re.sub(r"[.*^$]+$", "", plain)
        for module, expression in _MODULE_PATTERNS:
            if expression.search(name):
                seen.setdefault(module, set()).add(layer.group(1) if layer else "all")
                break
    left_out = {module for module, places in seen.items() if "all" in places or 2 * len(places) >= layers}
    return tuple(module for module in MODULES if module in left_out | _ALWAYS)


def read_quantization(fields: Fields, layers: int) -> Quantization:
    """Return the quantisation of a checkpoint's quantization_config section.

    Raises InputError for a method that is not read: a guess would be wrong by a factor in memory.
    """
    method = fields.text("quant_method") or ("modelopt" if fields.get("quant_algo") else None)
    reader = _METHODS.get(method or "")
    if reader is None:
        bound = f"must be one of {', '.join(_METHODS)}"
        raise InputError("config.quantization_config.quant_method", method, bound, _REMEDY)
    return reader(fields, layers)


def with_fp4_experts(quantization: Quantization) -> Quantization:
    """Return a quantisation whose routed experts are stored in MXFP4, as DeepSeek-V4 marks by expert_dtype."""
    bits = QUANTIZATIONS["mxfp4"].weight_bits
    return quantization.model_copy(update={"id": f"{quantization.id}-mxfp4-experts", "module_bits": (("experts", bits),)})


def _patterns(fields: Fields, *names: str) -> list[str]:
    listed = fields.get(*names)
    if listed is None:
        return []
    if not isinstance(listed, list) or len(listed) > _MAX_PATTERNS:
        raise InputError(f"config.quantization_config.{names[0]}", listed, "must be a list of module names", _REMEDY)
    for entry in listed:
        if not isinstance(entry, str) or len(entry) > _MAX_PATTERN_LENGTH:
            raise InputError(f"config.quantization_config.{names[0]}", entry, "must be a list of module names", _REMEDY)
    return listed


def _made(base: str, ref: str, **changes: object) -> Quantization:
    source = Source(kind="published", ref=f"quantization_config of the checkpoint: {ref}", confidence="high")
    return Quantization.model_validate({**QUANTIZATIONS[base].model_dump(), **changes, "source": source})


def _with_head(patterns: Sequence[str]) -> list[str]:
    return [*patterns, "lm_head"]


def _read_fp8(fields: Fields, layers: int) -> Quantization:
    excluded = excluded_modules(_with_head(_patterns(fields, "modules_to_not_convert", "ignored_layers")), layers)
    block = fields.get("weight_block_size")
    if block is None:
        return _made("fp8", "fp8", excluded=excluded)
    if not isinstance(block, list) or len(block) != 2 or not all(type(n) is int and 0 < n <= 65536 for n in block):
        raise InputError("config.quantization_config.weight_block_size", block, "must be two whole numbers", _REMEDY)
    bits = grouped_bits(8, block[0] * block[1], 32)
    return _made("fp8-block", "fp8 blocks", excluded=excluded, weight_bits=bits, block_size=block[0])


def _read_int4(base: str) -> Callable[[Fields, int], Quantization]:
    def read(fields: Fields, layers: int) -> Quantization:
        bits = fields.count("bits", "w_bit", most=8)
        group = fields.optional("group_size", "q_group_size", least=-1, most=65536)
        names = _patterns(fields, "modules_to_not_convert")
        excluded = excluded_modules(names if fields.flag("lm_head", default=False) else _with_head(names), layers)
        weight_bits = grouped_bits(bits, group, 16, bits) if group and group > 0 else float(bits)
        group_size = group if group and group > 0 else None
        quantization_id = base if bits == 4 else f"int{bits}-{base.removeprefix('int4-')}"
        changes = {"id": quantization_id, "excluded": excluded, "weight_bits": weight_bits, "group_size": group_size}
        return _made(base, f"{bits} bit, group {group}", **changes)

    return read


def _read_mxfp4(fields: Fields, layers: int) -> Quantization:
    names = _patterns(fields, "modules_to_not_convert") or ["self_attn"]
    return _made("mxfp4", "mxfp4", excluded=excluded_modules(_with_head(names), layers))


def _kv_dtype(scheme: object) -> KvDtype:
    if isinstance(scheme, str):
        return "fp8" if scheme.upper().startswith("FP8") else "bf16"
    if isinstance(scheme, dict):
        return "fp8" if scheme.get("num_bits") == 8 and scheme.get("type") == "float" else "bf16"
    return "bf16"


_MODELOPT = {"FP8": "fp8", "NVFP4": "nvfp4", "MXFP4": "mxfp4", "W4A8_MXFP4_FP8": "mxfp4", "FP8_PB_WO": "fp8-block"}


def _read_modelopt(fields: Fields, layers: int) -> Quantization:
    algorithm = fields.text("quant_algo")
    base = _MODELOPT.get(algorithm or "")
    if base is None:
        where = "config.quantization_config.quant_algo"
        raise InputError(where, algorithm, f"must be one of {', '.join(_MODELOPT)}", _REMEDY)
    excluded = excluded_modules(_patterns(fields, "ignore", "exclude_modules"), layers)
    kv_dtype = _kv_dtype(fields.get("kv_cache_quant_algo", "kv_cache_scheme"))
    return _made(base, f"modelopt {algorithm}", excluded=excluded, kv_dtype=kv_dtype)


def _read_compressed_tensors(fields: Fields, layers: int) -> Quantization:
    groups = fields.get("config_groups")
    if not isinstance(groups, dict) or not groups or not all(isinstance(group, dict) for group in groups.values()):
        raise InputError("config.quantization_config.config_groups", groups, "must be an object of groups", _REMEDY)
    if len(groups) != 1:
        bound = "must hold one group: several formats in one checkpoint are not read"
        raise InputError("config.quantization_config.config_groups", list(groups), bound, _REMEDY)
    group = Fields(next(iter(groups.values())))
    weights = group.section("weights")
    bits, kind = weights.count("num_bits", most=16), weights.text("type")
    activations = group.get("input_activations")
    size = weights.optional("group_size", least=-1, most=65536)
    base, weight_bits = _compressed_base(bits, kind, size, symmetric=weights.flag("symmetric", default=True))
    excluded = excluded_modules(_patterns(fields, "ignore"), layers)
    compute: ComputeDtype = "bf16" if activations is None else QUANTIZATIONS[base].compute_dtype
    return _made(
        base,
        f"compressed-tensors {kind} {bits} bit",
        id=base if activations is not None or bits == 4 else f"{base}-weight-only",
        excluded=excluded,
        weight_bits=weight_bits,
        compute_dtype=compute,
        kv_dtype=_kv_dtype(fields.get("kv_cache_scheme")),
        group_size=size if size and size > 0 else None,
        block_size=None,
    )


def _compressed_base(bits: int, kind: str | None, size: int | None, *, symmetric: bool) -> tuple[str, float]:
    group = size if size and size > 0 else None
    if kind == "float" and bits == 8:
        return "fp8", 8.0
    if kind == "float" and bits == 4 and group in {16, 32}:
        return ("nvfp4" if group == 16 else "mxfp4"), grouped_bits(4, group, 8)
    if kind == "int" and bits == 8:
        return "int8", 8.0 if group is None else grouped_bits(8, group, 16)
    if kind == "int" and bits == 4:
        return "int4-gptq", 4.0 if group is None else grouped_bits(4, group, 16, 0 if symmetric else 4)
    where = "config.quantization_config.config_groups.weights"
    raise InputError(where, f"{kind} {bits} bit, group {size}", "must be 8-bit int or float, or 4-bit", _REMEDY)


def _read_bitsandbytes(fields: Fields, layers: int) -> Quantization:
    excluded = excluded_modules(_with_head(_patterns(fields, "llm_int8_skip_modules")), layers)
    if fields.flag("load_in_8bit", default=False):
        return _made("int8", "bitsandbytes 8 bit", id="int8-bitsandbytes", excluded=excluded)
    double = fields.flag("bnb_4bit_use_double_quant", default=False)
    bits = 4 + 8 / 64 + 32 / (64 * 256) if double else grouped_bits(4, 64, 32)
    changes = {"id": "int4-bitsandbytes", "excluded": excluded, "weight_bits": bits, "group_size": 64}
    return _made("int4-gptq", "bitsandbytes 4 bit", **changes)


_METHODS: dict[str, Callable[[Fields, int], Quantization]] = {
    "fp8": _read_fp8,
    "fbgemm_fp8": _read_fp8,
    "awq": _read_int4("int4-awq"),
    "gptq": _read_int4("int4-gptq"),
    "mxfp4": _read_mxfp4,
    "modelopt": _read_modelopt,
    "compressed-tensors": _read_compressed_tensors,
    "bitsandbytes": _read_bitsandbytes,
}

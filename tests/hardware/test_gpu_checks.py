"""What a profile may not say: each trap of other catalogues is refused, and laws hold over random figures."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.hardware import checks, gpu_from_toml, list_gpus, pcie_bytes_per_s

EASY = settings(max_examples=60, deadline=None)


def over(gpu_id: str, lines: str) -> Any:
    return gpu_from_toml(f'id = "mine"\nextends = "{gpu_id}"\n{lines}', "mine.toml")


# (parent, override that a shipped package really has, what the error must say)
TRAPS = [
    ("h100-80g-sxm", "[dense_flops_per_s]\nbf16 = 1979e12", "bf16 .* clock of 3.66 GHz"),
    ("gh200-96g", "[dense_flops_per_s]\nbf16 = 1979e12\nfp16 = 1979e12", "clock"),
    ("gb200", "[dense_flops_per_s]\nbf16 = 4500e12", "clock"),
    ("h200-141g-sxm", "[dense_flops_per_s]\nbf16 = 2000e12", "clock"),
    ("h200-141g-sxm", "[dense_flops_per_s]\ntf32 = 990e12", "tf32 .* times bf16"),
    ("h100-94g-nvl", "[dense_flops_per_s]\nbf16 = 1978.8e12", "clock"),
    ("l4", "[dense_flops_per_s]\nbf16 = 242e12\nfp16 = 242e12\nfp8 = 485e12", "clock"),
    ("l4", "[dense_flops_per_s]\nfp8 = 485e12", "fp8 .* is 4.01 times bf16"),
    ("l40s", "[dense_flops_per_s]\nfp8 = 1466e12", "fp8 .* is 4.05 times bf16"),
    ("l40s", "[dense_flops_per_s]\nint8 = 1466e12", "int8 .* is 4.05 times bf16"),
    ("t4", "[dense_flops_per_s]\nint8 = 260e12", "int8 .* is 4.00 times fp16"),
    ("b200-sxm", "[dense_flops_per_s]\nfp4 = 18000e12", "fp4 .* is 4.00 times fp8"),
    ("a40", "[dense_flops_per_s]\nbf16 = 37.4e12\ntf32 = 37.4e12\nint8 = 74e12", "bf16 .* is 1.00 times fp32"),
    ("rtx-4090", "[dense_flops_per_s]\nbf16 = 82.6e12", "bf16 .* is 1.00 times fp32"),
    ("mi250x", "[dense_flops_per_s]\nbf16 = 383e12\nint8 = 383e12", "clock"),
    ("h100-80g-sxm", "[link]\nunidirectional_bytes_per_s = 900e9", "above one direction of NVLink4"),
    ("b200-sxm", "[link]\nunidirectional_bytes_per_s = 1800e9", "above one direction of NVLink5"),
    ("a40", "[link]\nunidirectional_bytes_per_s = 600e9", "above one direction of NVLink3"),
    ("mi300x", "[link]\npair_bytes_per_s = 448e9", "share of one neighbour"),
    ("l40s", "[pcie]\ntheoretical_bytes_per_s = 32e9", "differs from Gen 4 x16"),
    ("h100-80g-sxm", "[pcie]\ntheoretical_bytes_per_s = 64e9", "differs from Gen 5 x16"),
    ("h100-80g-sxm", "[pcie]\ntheoretical_bytes_per_s = 126e9", "differs from Gen 5 x16"),
    ("b300-sxm", "[pcie]\ntheoretical_bytes_per_s = 128e9", "differs from Gen 6 x16"),
    ("t4", "[pcie]\nachieved_bytes_per_s = 25e9", "at most theoretical"),
    ("mi325x", "memory_marketed_gb = 288", "at least 98%"),
    ("h200-141g-sxm", "memory_reported_bytes = 154_618_822_656", "at most memory_marketed_gb as GiB"),
    ("l40s", "memory_reported_bytes = 46068", "memory_reported_bytes is 46068"),
    ("h100-80g-sxm", "memory_bytes_per_s = 3350", "memory_bytes_per_s is 3350"),
    ("h100-80g-sxm", "[dense_flops_per_s]\nbf16 = 989.4", "bf16 is 989.4"),
    ("h100-80g-sxm", "[link]\nbidirectional_bytes_per_s = 900e9", "bidirectional_bytes_per_s .* not a known key"),
]


@pytest.mark.parametrize(("gpu_id", "lines", "says"), TRAPS)
def test_a_trap_is_refused_with_its_reason(gpu_id: str, lines: str, says: str) -> None:
    with pytest.raises(InputError) as caught:
        over(gpu_id, lines)
    assert re.search(says, str(caught.value)), str(caught.value)
    assert caught.value.field.startswith("mine.toml: ")
    assert caught.value.remedy


def test_an_exception_in_words_lifts_the_ratio_of_its_dtype_only() -> None:
    why = '[ratio_exception]\nfp8 = "measured at four times on an engineering sample"\n'
    assert over("l40s", f"{why}[dense_flops_per_s]\nfp8 = 1448e12").peak_flops_per_s("fp8") == 1448e12
    with pytest.raises(InputError, match="int8"):
        over("l40s", f"{why}[dense_flops_per_s]\nfp8 = 1448e12\nint8 = 1466e12")
    with pytest.raises(InputError, match=r"ratio_exception\.fp8"):
        over("l40s", '[ratio_exception]\nfp8 = "yes"\n[dense_flops_per_s]\nfp8 = 1448e12')


def test_shipped_exceptions_are_all_needed() -> None:
    for gpu in list_gpus():
        if gpu.ratio_exception:
            broken = [rule.dtype for rule in checks.RATIO_RULES if breaks(rule, gpu.dense_flops_per_s)]
            assert set(broken) == set(gpu.ratio_exception)


def breaks(rule: checks.RatioRule, rates: dict[str, float]) -> bool:
    base = next((name for name in rule.bases if name in rates), None)
    return base is not None and rates.get(rule.dtype, 0.0) > rule.at_most * rates[base]


def test_less_memory_than_marketed_needs_a_reason() -> None:
    with pytest.raises(InputError, match="memory_exception"):
        over("gb10-dgx-spark", "memory_reported_bytes = 103_079_215_104")
    gpu = over("gb10-dgx-spark", 'memory_reported_bytes = 103_079_215_104\nmemory_exception = "96 GiB given to the GPU"')
    assert gpu.memory_reported_bytes == 96 * 2**30


def test_makers_gb_is_binary_or_decimal_and_both_pass() -> None:
    checks.check_memory(81559 * 2**20, 80, None)
    checks.check_memory(275040 * 2**20, 288, None)
    with pytest.raises(InputError):
        checks.check_memory(275040 * 2**20, 268, None)


@pytest.mark.parametrize(("generation", "gb_per_s"), [(3, 15.75), (4, 31.51), (5, 63.02), (6, 121.0)])
def test_pcie_rate_is_transfers_times_lanes_times_line_code(generation: int, gb_per_s: float) -> None:
    assert pcie_bytes_per_s(generation, 16) == pytest.approx(gb_per_s * 1e9, rel=1e-3)
    assert pcie_bytes_per_s(generation, 16) == 16 * pcie_bytes_per_s(generation, 1)


def test_an_unknown_pcie_generation_is_refused() -> None:
    with pytest.raises(InputError, match="generation is 7"):
        pcie_bytes_per_s(7, 16)


RATES = st.dictionaries(st.sampled_from(["fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4"]), st.floats(1e10, 1e18), min_size=1)


@EASY
@given(RATES, st.floats(0.1, 10))
def test_ratio_check_does_not_depend_on_scale(rates: dict[str, float], factor: float) -> None:
    assert passes(rates) == passes({dtype: rate * factor for dtype, rate in rates.items()}) or near_a_bound(rates)


@EASY
@given(RATES)
def test_dense_rates_that_double_with_each_halving_pass_and_sparse_ones_do_not(rates: dict[str, float]) -> None:
    base = rates.get("bf16", 1e14)
    dense = {"fp32": base / 4, "tf32": base / 2, "bf16": base, "fp16": base, "fp8": 2 * base, "int8": 2 * base, "fp4": 4 * base}
    assert passes(dense)
    for dtype in ("fp8", "int8", "fp4"):
        assert not passes(dense | {dtype: 2 * dense[dtype]})


@EASY
@given(st.sampled_from([gpu for gpu in list_gpus() if gpu.multiprocessors and gpu.compute_capability in checks.TENSOR_RATES]))
def test_clock_check_refuses_twice_the_rate_of_every_full_rate_part(gpu: Any) -> None:
    limits = checks.TENSOR_RATES[gpu.compute_capability]
    rate = gpu.dense_flops_per_s.get("bf16") or gpu.dense_flops_per_s["fp16"]
    clock_hz = rate / (gpu.multiprocessors * limits.flops_per_cycle)
    assert clock_hz <= 1.01 * limits.clock_hz
    if clock_hz > 0.7 * limits.clock_hz:
        with pytest.raises(InputError, match="clock"):
            checks.check_clock({"bf16": 2 * rate}, gpu.compute_capability, gpu.multiprocessors)


@EASY
@given(st.floats(1, 1000), st.floats(0.5, 1.2))
def test_memory_check_is_an_interval(marketed_gb: float, share: float) -> None:
    reported = share * marketed_gb * 2**30
    allowed = share * 2**30 >= 0.98 * 1e9 and share <= 1.0
    try:
        checks.check_memory(reported, marketed_gb, None)
    except InputError:
        assert not allowed or abs(share - 1.0) < 1e-12
    else:
        assert allowed


def passes(rates: dict[str, float]) -> bool:
    try:
        checks.check_ratios(rates)
    except InputError:
        return False
    return True


def near_a_bound(rates: dict[str, float]) -> bool:
    bounds = {rule.at_most for rule in checks.RATIO_RULES} | {checks.LEAST_TENSOR_TO_VECTOR}
    ratios = [a / b for a in rates.values() for b in rates.values()]
    return any(abs(ratio / bound - 1) < 1e-9 for ratio in ratios for bound in bounds)

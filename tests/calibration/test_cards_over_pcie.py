"""All-reduces among cards without a link of their own: what the host makes of PCIe, and which published runs show which."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.accuracy.recipes import cards_copy_directly, machines
from planner.accuracy.setting import setting_of
from planner.calibration.all_reduce_priors import PCIE_SHARE, all_reduce_priors, at_pair_rate
from planner.calibration.measurements import Measurement
from planner.calibration.records import load_record
from planner.hardware import load_gpu
from planner.models import load_model
from planner.step_coefficients import all_reduce_cost

L40S = "l40s/vllm-0.24.0"
OVERVIEW = "NVIDIA/TensorRT-LLM@258c7540:docs/source/performance/perf-overview.md(v0.17)"


def row(**changes: object) -> Measurement:
    fields: dict[str, object] = {
        "gpu": "L40S", "engine": "TensorRT-LLM", "engine_version": "0.17", "model": "Llama-3.1-70B", "weight_dtype": "fp8",
        "scenario": "offline", "prompt_tokens": 2048, "output_tokens": 128, "tp": 8, "gpu_count": 8, "source": OVERVIEW,
        "output_tokens_per_s": 176.16,
    }  # fmt: skip
    return Measurement.model_validate(fields | changes)


def test_a_ring_of_direct_copies_runs_at_the_pairs_rate() -> None:
    """19.2 GB/s among two L40S by the operator table (aiconfigurator-core 0.12.0), where four on its host move 3.8."""
    record = load_record(L40S)
    assert record.all_reduce[4].beta_bytes_per_s.value == pytest.approx(3.8e9, rel=0.05)
    changed = at_pair_rate(record, load_gpu("l40s"))
    times = {size: all_reduce_cost(changed, size).s_per_byte for size in (2, 4, 8)}
    assert times == dict.fromkeys((2, 4, 8), 1.0 / record.all_reduce[2].beta_bytes_per_s.value)
    assert all_reduce_cost(changed, 8).alpha_s == all_reduce_cost(record, 8).alpha_s


@pytest.mark.parametrize("gpu_id", ["h100-80g-sxm", "a100-80g-sxm", "b200-sxm"])
def test_a_link_of_its_own_is_left_as_it_is(gpu_id: str) -> None:
    gpu = load_gpu(gpu_id)
    record = load_record("h100-80g-sxm/vllm-0.24.0")
    assert at_pair_rate(record, gpu) is record


@settings(max_examples=20, deadline=None)
@given(share=st.floats(0.02, 3.0), size=st.sampled_from([4, 8]))
def test_nothing_gets_slower(share: float, size: int) -> None:
    record = load_record(L40S)
    pair = record.all_reduce[2].beta_bytes_per_s.value
    given_record = record.with_values({f"all_reduce.{size}.beta_bytes_per_s": share * pair})
    changed = at_pair_rate(given_record, load_gpu("l40s"))
    assert changed.all_reduce[size].beta_bytes_per_s.value == pytest.approx(max(share, 1.0) * pair)


def test_the_runs_that_are_said_to_copy_directly_move_more_than_the_records_host() -> None:
    """By a run's own tokens per second: 2 · (n - 1) / n · hidden · 2 bytes · 2 · layers of each token cross every card's link.

    2048/128 on eight L40S under TensorRT-LLM 0.17: 176 tokens/s of output, with the prompts 2,995 tokens/s, so 13.7 GB/s.
    """
    model = load_model("llama-3.1-70b-instruct")
    tokens_per_s = 176.16 * (2048 + 128) / 128
    layers = 80
    least = tokens_per_s * 2 * 7 / 8 * model.hidden * 2 * 2 * layers
    assert least == pytest.approx(13.7e9, rel=0.01)
    record = load_record(L40S)
    assert record.all_reduce[8].beta_bytes_per_s.high < least < record.all_reduce[2].beta_bytes_per_s.value


def test_only_named_hosts_are_taken_to_copy_directly() -> None:
    assert cards_copy_directly(row(), "l40s")
    assert not cards_copy_directly(row(), "a100-80g-pcie")
    assert not cards_copy_directly(row(source="somebody's machine"), "l40s")
    assert all(one.reference for one in machines())
    named, unnamed = setting_of(row()), setting_of(row(source="somebody's machine"))
    assert named.coefficients.all_reduce_s_per_token < 0.2 * unnamed.coefficients.all_reduce_s_per_token


def test_the_prior_over_pcie_is_that_of_the_median_host() -> None:
    """Shares of PCIe's rate: L40S and RTX PRO 6000 by their records, RTX 5090 by NVIDIA/nccl issue 1639 (35 and 28 of 63 GB/s)."""
    for size, reported in ((4, 35e9), (8, 28e9)):
        shares = [reported / 63e9]
        for name in (L40S, "rtx-pro-6000-bw-server/vllm-0.19.0"):
            pcie = load_gpu(name.split("/")[0]).pcie
            assert pcie is not None
            shares.append(load_record(name).all_reduce[size].beta_bytes_per_s.value / pcie.theoretical_bytes_per_s)
        assert PCIE_SHARE[size] == pytest.approx(sorted(shares)[1], abs=0.005)
        pcie = load_gpu("a10").pcie
        assert pcie is not None
        cost = all_reduce_priors(load_gpu("a10"))[size].beta_bytes_per_s
        assert cost.low / pcie.theoretical_bytes_per_s == pytest.approx(min(shares), abs=0.005)
        assert cost.high / pcie.theoretical_bytes_per_s == pytest.approx(max(shares), abs=0.005)

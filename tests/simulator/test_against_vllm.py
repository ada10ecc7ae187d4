"""Latencies agree with two recorded runs of the real engine, from the arrivals and lengths alone.

The kernels' times are each GPU's shipped record. The host's time for a sequence was fitted to the RTX PRO 6000 run; the RTX 4090
run, with about 190 preemptions in 300 requests, is held out.
"""

import gzip
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from planner.calibration.records import record_for
from planner.deployment import Deployment, Parallelism
from planner.engines import engine_defaults
from planner.hardware import load_gpu
from planner.memory import memory_budget
from planner.models import QUANTIZATIONS, load_model
from planner.simulator import EngineLimits, RequestTable, simulate, values_s
from planner.step_coefficients import coefficients_for

RECORDED = Path(__file__).parents[1] / "recorded" / "vllm_requests.csv.gz"
VERSION = "0.19.0"
BLOCK_SIZE = 16


class Run(NamedTuple):
    gpu_id: str
    max_num_seqs: int
    kv_tokens: int | None
    enable_prefix_caching: bool
    preempts: bool


RUNS = (Run("rtx-pro-6000-bw-server", 128, None, False, False), Run("rtx-4090", 256, 41_408, True, True))


@pytest.mark.parametrize("run", RUNS, ids=[run.gpu_id for run in RUNS])
def test_mean_and_p99_are_the_real_engines_within_five_percent(run: Run) -> None:
    with gzip.open(RECORDED) as file:
        rows = pd.read_csv(file)
    rows = rows[rows.gpu_id == run.gpu_id]
    gpu = load_gpu(run.gpu_id)
    config = engine_defaults("vllm", VERSION, gpu, tp=1).replace(max_num_seqs=run.max_num_seqs, max_num_batched_tokens=2048)
    deployment = Deployment(gpu, load_model("llama-3.1-8b-instruct"), QUANTIZATIONS["bf16"], "bf16", Parallelism(), config)
    blocks = run.kv_tokens // BLOCK_SIZE if run.kv_tokens is not None else memory_budget(deployment).one_group_blocks(4096)
    limits = EngineLimits(
        max_num_seqs=run.max_num_seqs,
        max_num_batched_tokens=2048,
        block_size=BLOCK_SIZE,
        num_blocks=blocks,
        enable_prefix_caching=run.enable_prefix_caching,
        async_scheduling=config.async_scheduling,
        scheduler_reserve_full_isl=config.scheduler_reserve_full_isl,
    )
    table = RequestTable(
        rows.queued_s.to_numpy(np.float64), rows.prompt_tokens.to_numpy(np.int64), rows.output_tokens.to_numpy(np.int64)
    )
    result = simulate(table, limits, coefficients_for(deployment, record_for(gpu, "vllm", VERSION, usage="offline")))
    assert (result.totals.preemptions > 100) == run.preempts
    queued_s, first_s, last_s = (rows[name].to_numpy(np.float64) for name in ("queued_s", "first_token_s", "last_token_s"))
    measured = {
        "ttft": first_s - queued_s,
        "e2e": last_s - queued_s,
        "tpot": (last_s - first_s) / (rows.output_tokens.to_numpy() - 1),
    }
    simulated = {"ttft": values_s(result, "ttft"), "e2e": values_s(result, "e2e"), "tpot": values_s(result, "tpot")}
    for metric, theirs in measured.items():
        assert np.nanmean(simulated[metric]) == pytest.approx(np.nanmean(theirs), rel=0.05)
        assert np.nanpercentile(simulated[metric], 99) == pytest.approx(np.nanpercentile(theirs, 99), rel=0.05)

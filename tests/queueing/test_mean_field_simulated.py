"""The mean-field model against the simulator, run afresh on the same requests."""

import numpy as np
import pytest

from planner.queueing import ReplicaLimits, Traffic, mean_field
from planner.simulator import EngineLimits, simulate
from planner.workloads import Requests
from tests.queueing.streams import ANSWER_ROWS, CHAT_ROWS, CODE_ROWS, H100

BLOCK = 16


@pytest.mark.slow  # the first run compiles the simulator
@pytest.mark.parametrize(
    ("pairs", "max_num_seqs", "budget", "rate"),
    [(CHAT_ROWS, 256, 8192, 15.0), (CHAT_ROWS, 256, 1024, 15.0), (ANSWER_ROWS, 256, 8192, 2.2), (CODE_ROWS, 256, 2048, 12.0)],
)
def test_means_and_tails_agree(pairs: tuple[np.ndarray, np.ndarray], max_num_seqs: int, budget: int, rate: float) -> None:
    prompts, outputs = (side.astype(np.int64) for side in pairs)
    n = len(prompts)
    arrival_s = np.cumsum(np.random.default_rng(1).exponential(1.0 / rate, n))
    arrival_s *= n / rate / arrival_s[-1]
    requests = Requests(arrival_s, prompts, outputs, np.zeros(n, dtype=np.int64))
    result = simulate(requests, EngineLimits(max_num_seqs, budget, BLOCK, 411_525 // BLOCK), H100)
    steady = slice(n // 10, None)
    ttft_s = (result.first_token_s - arrival_s)[steady]
    many = outputs[steady] > 1
    tpot_s = (result.finish_s - result.first_token_s)[steady][many] / (outputs[steady][many] - 1)
    point = mean_field(rate, Traffic.from_rows(prompts, outputs), ReplicaLimits(max_num_seqs, budget, 411_525.0, BLOCK), H100)
    assert point.ttft_mean_s == pytest.approx(ttft_s.mean(), rel=0.08)
    assert point.tpot_mean_s == pytest.approx(tpot_s.mean(), rel=0.08)
    assert point.ttft_p99_s == pytest.approx(np.percentile(ttft_s, 99), rel=0.16)
    assert point.tpot_p99_s == pytest.approx(np.percentile(tpot_s, 99), rel=0.16)

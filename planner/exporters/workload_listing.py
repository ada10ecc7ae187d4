"""Workloads as plain rows, one dict an entry: for the shell, for tables, for files."""

from typing import Any

from planner.workloads import list_workloads


def workload_rows() -> list[dict[str, Any]]:
    """Return one row for each workload: lengths in tokens and the peak factor."""
    rows = []
    for workload in list_workloads():
        stats = workload.lengths.stats()
        rows.append(
            {
                "id": workload.id,
                "name": workload.name,
                "prompt_mean": round(stats.prompt_mean_tokens),
                "prompt_p99": round(stats.prompt_p99_tokens),
                "output_mean": round(stats.output_mean_tokens),
                "output_p99": round(stats.output_p99_tokens),
                "peak_factor": workload.peak_factor,
            }
        )
    return rows

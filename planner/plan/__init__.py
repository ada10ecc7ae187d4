"""Plan: from a scenario to GPUs, settings, latencies and dollars."""

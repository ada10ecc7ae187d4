"""The flags of the shell's `plan`, apart from its work so that other verbs answer at once."""

import argparse
from collections.abc import Callable
from pathlib import Path

ACTIVE_SHARE = 0.2
REQUESTS_A_MINUTE = 0.4
"""What people do where a user doesn't say: share of them active at once [1], and requests of an active one [request/min]."""
SCENARIO_HELP = "scenario document (JSON), or what `plan --json` printed; - reads standard input"


class Parser(argparse.ArgumentParser):
    """A parser whose closing words are made when its help is asked for: they may need what no other verb imports."""

    closing: Callable[[], str] | None = None

    def format_help(self) -> str:
        """Return the help with the closing words."""
        if self.closing is not None:
            self.epilog = self.closing()
        return super().format_help()


def _defaults() -> str:
    from planner.scenario import USUAL_RATE_RPS, Scenario

    usual = Scenario()
    targets, fleet = usual.targets, usual.fleet
    return (
        f"Unless a flag or the scenario says else: {usual.workload.id} at {USUAL_RATE_RPS:g} requests a second, {usual.model.id} "
        f"in {usual.model.quantization}, p99 TTFT {targets.ttft_p99_s:g} s, p99 TPOT {targets.tpot_p99_s:g} s, "
        f"headroom {fleet.headroom:g}, spares {fleet.spare_replicas}, vLLM {usual.engine.version}, seed {usual.seed}."
    )


def add_plan_arguments(verb: Parser) -> None:
    """Add the flags of `plan` to its parser."""
    verb.closing = _defaults
    verb.add_argument("--scenario", type=Path, metavar="FILE", help=f"{SCENARIO_HELP}; the flags below change it")
    load = verb.add_mutually_exclusive_group()
    load.add_argument("--rate", type=float, metavar="R", help="mean requests a second")
    load.add_argument("--tokens-per-day", type=float, metavar="N", help="prompt and output tokens a day")
    load.add_argument("--users", type=int, metavar="N", help="people with access; see --active-share, --requests-per-minute")
    verb.add_argument(
        "--active-share", type=float, help=f"with --users: share of them active at once ({ACTIVE_SHARE:g} unless given)"
    )
    verb.add_argument(
        "--requests-per-minute",
        type=float,
        help=f"with --users: requests an active one makes a minute ({REQUESTS_A_MINUTE:g} unless given)",
    )
    for flag, metavar, text in (
        ("--workload", "ID", "workload id"),
        ("--model", "ID", "model id"),
        ("--quantization", "ID", "weights, for example bf16 or fp8"),
        ("--kv-dtype", "DTYPE", "auto, bf16 or fp8"),
        ("--provider", "NAME", "only this provider's prices"),
        ("--region", "NAME", "only this region's prices"),
        ("--engine-version", "V", "vLLM version"),
    ):
        verb.add_argument(flag, metavar=metavar, help=text)
    verb.add_argument(
        "--gpu", action="append", metavar="ID", help="GPU to consider; repeat for several (default: every priced one)"
    )
    verb.add_argument("--tp", action="append", type=int, metavar="N", help="tensor-parallel size to consider; repeat for several")
    verb.add_argument("--peak-factor", type=float, help="peak rate ÷ mean rate")
    verb.add_argument("--ttft-p99", type=float, metavar="S", help="target: p99 time to first token in seconds")
    verb.add_argument("--tpot-p99", type=float, metavar="S", help="target: p99 time per output token in seconds")
    verb.add_argument("--offline", action="store_true", help="no latency targets: throughput and cost only")
    verb.add_argument("--headroom", type=float, help="share of capacity kept free")
    verb.add_argument("--spares", type=int, help="replicas that may be down")
    verb.add_argument("--max-num-seqs", type=int, help="hold this setting fixed")
    verb.add_argument("--max-num-batched-tokens", type=int, help="hold this setting fixed")
    verb.add_argument("--seed", type=int, help="seed of every sampled quantity")
    printed = verb.add_mutually_exclusive_group()
    printed.add_argument("--json", action="store_true", help="print the whole plan as JSON")
    printed.add_argument(
        "--part",
        metavar="NAME",
        help="print one part of it alone: command, check (a benchmark of one replica), requests (that it sends), kubernetes, "
        "autoscaling (KEDA), alerts (Prometheus) or candidates (CSV)",
    )

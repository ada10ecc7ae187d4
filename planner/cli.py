"""The command line: the same documents as the browser and the Python API.

    python -m planner plan --rate 10 --gpu h100-80g-sxm
    python -m planner VERB --help

Wrong input prints one line on standard error and exits with 2; a plan that can't meet its targets is an answer and exits with 0.
"""

import argparse
import datetime as dt
import gzip
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from planner.cli_plan import ACTIVE_SHARE, REQUESTS_A_MINUTE, SCENARIO_HELP, Parser, add_plan_arguments
from planner.errors import InputError
from planner.paths import home_fault

EXIT_OK = 0
EXIT_INPUT = 2


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb and return the exit status; argv : the arguments, sys.argv's when None."""
    arguments = _parser().parse_args(argv)
    try:
        verb: Callable[[argparse.Namespace], None] = arguments.verb
        fault = home_fault()
        if fault is not None:
            print(f"planner: {fault}", file=sys.stderr)
        verb(arguments)
    except InputError as error:
        print(f"planner: {error}", file=sys.stderr)
        return EXIT_INPUT
    except BrokenPipeError:
        sys.stderr.close()
    return EXIT_OK


def _parser() -> Parser:
    more = (
        "`planner VERB --help` says more. Wrong input prints one line and exits with 2; targets that nothing meets are an answer."
    )
    parser = Parser(prog="planner", description="Capacity and cost planning for LLM serving.", epilog=more)
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    _add_plan(verbs)
    _add_simulate(verbs)
    _add_owned(verbs)
    for name, verb, text in (
        ("models", _models, "list the models of the catalogue"),
        ("gpus", _gpus, "list the GPUs of the catalogue"),
        ("workloads", _workloads, "list the workloads"),
        ("memory-check", _memory_check, "compare predicted KV capacity with vLLM's own start-up logs"),
    ):
        _verb(verbs, name, text, verb).add_argument("--json", action="store_true", help="print JSON")
    _add_questions(verbs)
    accuracy = _verb(verbs, "accuracy", "predict a table of measured results and print the errors", _accuracy)
    accuracy.add_argument(
        "file",
        type=Path,
        metavar="FILE",
        help="CSV of measured results, see hardware_profiles/evidence/accuracy, or the recording of an engine (JSON, JSON.gz)",
    )
    accuracy.add_argument("--records", choices=["shipped", "none"], default="shipped", help="calibration records, or priors alone")
    siblings = "predict each group (by layout or by model) with a record fitted on its sibling groups in the table"
    accuracy.add_argument("--siblings", nargs="?", const="layout", choices=["layout", "model"], help=siblings)
    accuracy.add_argument("--config", type=Path, help="for a recording: config.json of the model that ran, with torch_dtype")
    accuracy.add_argument("--gpu", help="for a recording: id of the device, such as cpu-recorded")
    accuracy.add_argument("--record", help="for a recording: id of a calibration record, or its file")
    accuracy.add_argument("--json", action="store_true", help="print JSON")
    _add_calibrate(verbs)
    bench = _verb(verbs, "bench", "measure the planner itself", _bench)
    bench.add_argument("what", choices=["simulator"])
    bench.add_argument("--workload", type=Path, required=True, help="CSV: arrived_at, num_prefill_tokens, num_decode_tokens")
    _verb(verbs, "compile", "compile the simulator's loop into the cache", _compile)
    return parser


def _verb(verbs: Any, name: str, text: str, run: Callable[[argparse.Namespace], None]) -> Parser:  # noqa: ANN401
    """Add a verb; text : what it does, in its own help and in the list of all."""
    parser: Parser = verbs.add_parser(name, help=text, description=f"{text[:1].upper()}{text[1:]}.")
    parser.set_defaults(verb=run)
    return parser


def _add_calibrate(verbs: Any) -> None:  # noqa: ANN401 - argparse does not name the type publicly
    from planner.cli_calibrate import add_arguments

    text = "fit a calibration record to collectors' files, logs of steps or benchmark results"
    add_arguments(_verb(verbs, "calibrate", text, _calibrate))


def _add_owned(verbs: Any) -> None:  # noqa: ANN401 - argparse does not name the type publicly
    from planner.cli_owned import add_owned_arguments

    add_owned_arguments(_verb(verbs, "owned", "price an hour of a GPU of your own machine, for a plan's usd_per_gpu_hour", _owned))


def _add_plan(verbs: Any) -> None:  # noqa: ANN401 - argparse does not name the type publicly
    add_plan_arguments(_verb(verbs, "plan", "size a fleet, choose its settings and price it", _plan))


def _add_simulate(verbs: Any) -> None:  # noqa: ANN401
    verb = _verb(verbs, "simulate", "replay requests on one replica of the planned deployment", _simulate)
    verb.add_argument("--scenario", type=Path, metavar="FILE", help=f"{SCENARIO_HELP}; the default scenario without it")
    verb.add_argument("--rate", type=float, metavar="R", help="requests a second of the replica (default: its planned rate)")
    verb.add_argument("--requests", type=int, metavar="N", help="requests to serve (default 20000)")
    verb.add_argument("--seed", type=int, metavar="S", help="seed of the requests (default: the scenario's)")
    verb.add_argument("--recorded", action="store_true", help="replay the trace's own requests in their order")
    verb.add_argument("--arrival-cv", type=float, metavar="CV", help="coefficient of variation of the gaps between arrivals")
    verb.add_argument("--stop", choices=["length", "eos"], help="outputs end at max_tokens (default) or at a stop token")
    verb.add_argument("--max-num-seqs", type=int, metavar="N", help="compare the plan with this setting")
    verb.add_argument("--max-num-batched-tokens", type=int, metavar="N", help="compare the plan with this setting")
    verb.add_argument("--async-scheduling", action=argparse.BooleanOptionalAction, help="compare the plan with this setting")
    verb.add_argument("--prefix-caching", action=argparse.BooleanOptionalAction, help="compare the plan with this setting")
    verb.add_argument("--log", type=Path, metavar="FILE.json.gz", help="write the first steps, as recorded schedules are written")
    verb.add_argument("--output", type=Path, metavar="FILE", help="write the requests with their latencies: .csv or .parquet")
    verb.add_argument("--json", action="store_true", help="print the result as JSON")


def _add_questions(verbs: Any) -> None:  # noqa: ANN401 - argparse does not name the type publicly
    questions = _verb(verbs, "questions", "the textbook figures of the planner's questions", _questions)
    questions.add_argument("--gpu", default="h100-80g-sxm", metavar="ID", help="GPU whose peak and bandwidth are used")
    questions.add_argument("--e-mem", type=float, default=0.97, help="memory efficiency (default 0.97)")
    questions.add_argument("--e-comp", type=float, default=0.475, help="compute efficiency (default 0.475)")
    questions.add_argument("--json", action="store_true", help="print JSON")


def scenario_document(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the scenario document that a file and the flags describe; a flag wins over the file."""
    _check_flags(arguments)
    document: dict[str, Any] = {}
    if arguments.scenario is not None:
        document = json.loads(_read_scenario(arguments.scenario))
    for path, value in _flag_values(arguments):
        if value is None:
            continue
        *parents, field = path.split(".")
        place = document
        for parent in parents:
            place = place.setdefault(parent, {})
        place[field] = value
    if arguments.offline:
        document["targets"] = {"ttft_p99_s": None, "tpot_p99_s": None}
    return document


def _flag_values(arguments: argparse.Namespace) -> list[tuple[str, Any]]:
    return [
        ("workload.id", arguments.workload),
        ("workload.load", _load(arguments)),
        ("workload.peak_factor", arguments.peak_factor),
        ("model.id", arguments.model),
        ("model.quantization", arguments.quantization),
        ("model.kv_dtype", arguments.kv_dtype),
        ("hardware.gpu_ids", arguments.gpu),
        ("hardware.tensor_parallel", arguments.tp),
        ("hardware.provider", arguments.provider),
        ("hardware.region", arguments.region),
        ("targets.ttft_p99_s", arguments.ttft_p99),
        ("targets.tpot_p99_s", arguments.tpot_p99),
        ("fleet.headroom", arguments.headroom),
        ("fleet.spare_replicas", arguments.spares),
        ("engine.version", arguments.engine_version),
        ("engine.max_num_seqs", arguments.max_num_seqs),
        ("engine.max_num_batched_tokens", arguments.max_num_batched_tokens),
        ("seed", arguments.seed),
    ]


def _load(arguments: argparse.Namespace) -> dict[str, Any] | None:
    if arguments.rate is not None:
        return {"kind": "rate", "requests_per_s": arguments.rate}
    if arguments.tokens_per_day is not None:
        return {"kind": "tokens_per_day", "tokens_per_day": arguments.tokens_per_day}
    if arguments.users is not None:
        return {
            "kind": "users",
            "users": arguments.users,
            "active_share": ACTIVE_SHARE if arguments.active_share is None else arguments.active_share,
            "requests_per_user_minute": REQUESTS_A_MINUTE
            if arguments.requests_per_minute is None
            else arguments.requests_per_minute,
        }
    return None


def _check_flags(arguments: argparse.Namespace) -> None:
    """Raise InputError for flags that would have no effect beside the others."""
    if arguments.users is None:
        for flag, value in (("--active-share", arguments.active_share), ("--requests-per-minute", arguments.requests_per_minute)):
            if value is not None:
                raise InputError(flag, value, "needs --users", "Give the number of people with access, or leave it out")
    if arguments.offline:
        for flag, value in (("--ttft-p99", arguments.ttft_p99), ("--tpot-p99", arguments.tpot_p99)):
            if value is not None:
                raise InputError(flag, value, "has no meaning with --offline", "Leave one of the two out")


def _read_scenario(path: Path) -> str:
    from planner.scenario import MAX_PLAN_BYTES, scenario_from_json

    if str(path) == "-" and sys.stdin is None:
        raise InputError("--scenario", "-", "reads standard input, which is closed", "Give a file, or pipe the document in")
    try:
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else path.open("rb") as file:
            text = file.read(MAX_PLAN_BYTES + 1)
    except OSError as error:
        raise InputError("--scenario", str(path), f"can't be read ({error.strerror})", "Give a readable JSON file") from error
    return scenario_from_json(text).model_dump_json()


def _plan(arguments: argparse.Namespace) -> None:
    from planner.exporters.parts import check_part, part
    from planner.exporters.plan_document import plan_document, plan_text
    from planner.plans import plan
    from planner.scenario import scenario_from_dict

    if arguments.part is not None:
        check_part(arguments.part)
    answer = plan(scenario_from_dict(scenario_document(arguments)))
    if arguments.part is not None:
        sys.stdout.write(part(answer, arguments.part))
        return
    print(_json(plan_document(answer)) if arguments.json else plan_text(answer, dt.datetime.now(dt.UTC).date()))


def _simulate(arguments: argparse.Namespace) -> None:
    from planner.exporters.replay import replay_document, replay_text, requests_csv, requests_parquet
    from planner.plans import plan
    from planner.replay import replay, settings_from_dict, step_log_document
    from planner.scenario import scenario_from_json

    write = {".csv": requests_csv, ".parquet": requests_parquet}
    output: Path | None = arguments.output
    if output is not None and output.suffix not in write:
        raise InputError("--output", str(output), "must end in .csv or .parquet", "Name the file so")
    given = {
        "rate_rps": arguments.rate,
        "requests": arguments.requests,
        "seed": arguments.seed,
        "order": "recorded" if arguments.recorded else None,
        "arrival_cv": arguments.arrival_cv,
        "stop": arguments.stop,
        "max_num_seqs": arguments.max_num_seqs,
        "max_num_batched_tokens": arguments.max_num_batched_tokens,
        "async_scheduling": arguments.async_scheduling,
        "enable_prefix_caching": arguments.prefix_caching,
    }
    settings = settings_from_dict({name: value for name, value in given.items() if value is not None})
    text = "{}" if arguments.scenario is None else _read_scenario(arguments.scenario)
    answer = replay(plan(scenario_from_json(text)), settings)
    if output is not None:
        _write("--output", output, write[output.suffix](answer))
    if arguments.log is not None:
        _write("--log", arguments.log, gzip.compress(json.dumps(step_log_document(answer), allow_nan=False).encode(), mtime=0))
    print(_json(replay_document(answer)) if arguments.json else replay_text(answer))


def _write(flag: str, path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise InputError(flag, str(path), f"can't be written ({error.strerror})", "Name a file in a folder that exists") from error


def _owned(arguments: argparse.Namespace) -> None:
    from planner.cli_owned import owned_node
    from planner.pricing import owned_usd_per_gpu_hour
    from planner.units import dollars

    usd = owned_usd_per_gpu_hour(owned_node(arguments))
    print(_json({"usd_per_gpu_hour": usd}) if arguments.json else f"{dollars(usd)} a GPU-hour")


def _models(arguments: argparse.Namespace) -> None:
    from planner.exporters.listings import model_rows

    _print_rows(model_rows(), as_json=arguments.json)


def _gpus(arguments: argparse.Namespace) -> None:
    from planner.exporters.listings import gpu_rows
    from planner.hardware import survey_gpus

    for fault in survey_gpus().errors:
        print(f"planner: left out: {fault}", file=sys.stderr)
    _print_rows(gpu_rows(), as_json=arguments.json)


def _workloads(arguments: argparse.Namespace) -> None:
    from planner.exporters.workload_listing import workload_rows

    _print_rows(workload_rows(), as_json=arguments.json)


def _questions(arguments: argparse.Namespace) -> None:
    from planner.questions import answer_questions

    answers = answer_questions(arguments.gpu, arguments.e_mem, arguments.e_comp)
    if arguments.json:
        print(_json(answers))
        return
    for question, figures in answers.items():
        print(question, *(f"{name}={'none' if value is None else format(value, '.6g')}" for name, value in figures.items()))


def _memory_check(arguments: argparse.Namespace) -> None:
    from planner.memory import memory_report

    report = memory_report()
    print(_json(report.document()) if arguments.json else report.text())


def _refuse_recording_flags(arguments: argparse.Namespace) -> None:
    for name in ("config", "gpu", "record"):
        if getattr(arguments, name) is not None:
            bound = "is for the recording of an engine, not for a table"
            raise InputError(f"--{name}", str(getattr(arguments, name)), bound, f"Leave --{name} out, or give a recording")


def _accuracy(arguments: argparse.Namespace) -> None:
    from planner.accuracy import accuracy_report
    from planner.accuracy.recording import is_recording, recording_report

    if not arguments.file.name:
        raise InputError("FILE", str(arguments.file), "must name a file", "Give a table of measured results or a recording")
    if arguments.siblings is not None:
        _refuse_recording_flags(arguments)
        if arguments.records == "none":
            raise InputError("--records", "none", "has no meaning with --siblings", "Leave it out: fits start from shipped records")
        from planner.tuning.siblings import sibling_report

        fitted = sibling_report(arguments.file, arguments.siblings)
        print(_json(fitted.document()) if arguments.json else fitted.text())
        return
    if is_recording(arguments.file):
        if arguments.records == "none":
            raise InputError("--records", "none", "is for tables", "Name the record of a recording with --record")
        report = recording_report(arguments.file, arguments.config, arguments.gpu, arguments.record)
    else:
        _refuse_recording_flags(arguments)
        report = accuracy_report(arguments.file, arguments.records)
    print(_json(report.document()) if arguments.json else report.text())


def _calibrate(arguments: argparse.Namespace) -> None:
    from planner.tuning.command import calibrate, text

    result = calibrate(arguments)
    print(_json(result) if arguments.json else text(result))


def _bench(arguments: argparse.Namespace) -> None:
    from planner.simulator.bench import bench_simulator

    print(_json(bench_simulator(arguments.workload)))


def _compile(_arguments: argparse.Namespace) -> None:
    from planner.simulator import warm_up

    warm_up(print)


def _print_rows(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print(_json(rows))
        return
    columns = list(rows[0])
    cells = [[_cell(row[column]) for column in columns] for row in rows]
    widths = [max(len(column), *(len(line[i]) for line in cells)) for i, column in enumerate(columns)]
    for line in [columns, *cells]:
        print("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def _cell(value: object) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _json(document: object) -> str:
    return json.dumps(document, indent=1, allow_nan=False)

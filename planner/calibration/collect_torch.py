"""Measure what one GPU or CPU reaches under PyTorch: matrix products, attention, copies in memory and kernel launches.

    python collect_torch.py --quick --out torch.jsonl
    python collect_torch.py --full --model-config config.json --tp 2 --out torch.jsonl

Runs alone: this file, Python 3.10 and torch (CUDA, ROCm or CPU). It writes one JSON record a line and may be interrupted at any
time; the same command goes on where it stopped. Nothing leaves the machine, and no setting of the GPU is changed. Times are in
seconds, sizes in bytes; a matrix product multiplies [tokens, k] by [k, n]. Copies to the host and all-reduces: collect_links.py.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import math
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Call = Callable[[], object]

FORMAT, FORMAT_VERSION, COLLECTOR = "headroom-collected", 1, "torch"
MIB, SAMPLES, REASONS = 1024**2, 30, "clocks_throttle_reasons.active"
BITS = {"fp32": 32, "bf16": 16, "fp16": 16, "fp8": 8}
SCALED_MM = "_scaled_mm"  # PyTorch's only FP8 product has a private name
SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "vocab_size")
LLAMA = {"model_type": "llama", "max_position_embeddings": 131072, "tie_word_embeddings": False}
MODELS: dict[str, dict[str, Any]] = {  # sizes of the public config.json files; the third is for CPUs
    "llama-3.1-8b": LLAMA | dict(zip(SIZES, (4096, 14336, 32, 32, 8, 128256), strict=True)),
    "llama-3.1-70b": LLAMA | dict(zip(SIZES, (8192, 28672, 80, 64, 8, 128256), strict=True)),
    "llama-shape-small": LLAMA | dict(zip(SIZES, (1024, 2816, 8, 16, 4, 8192), strict=True)),
}
GRIDS = {  # sequences and chunks are also token counts, so that whole steps can be put together
    "quick": {"tokens": (1, 8, 32, 128, 512, 2048), "sequences": (1, 8, 32, 128), "contexts": (512, 4096),
              "chunks": (128, 512, 2048), "prefixes": (0, 2048)},
    "full": {"tokens": (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192),
             "sequences": (1, 2, 4, 8, 16, 32, 64, 128, 256), "contexts": (128, 512, 1024, 2048, 4096, 8192, 16384, 32768),
             "chunks": (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192), "prefixes": (0, 2048, 8192, 32768)},
}  # fmt: skip
NVIDIA = {"clocks.sm": ("clock_hz", 1e6), "power.draw": ("power_w", 1.0), "temperature.gpu": ("temperature_c", 1.0),
          "clocks.max.sm": ("clock_max_hz", 1e6), "power.limit": ("power_limit_w", 1.0)}  # fmt: skip
AMD = {"sclk clock speed": ("clock_hz", 1e6), "power (w)": ("power_w", 1.0), "sensor junction": ("temperature_c", 1.0)}
SLOWED = 0x08 | 0x20 | 0x40 | 0x80  # NVML's reasons: hardware slowdown, heat seen by software and by hardware, power brake


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


class Point(NamedTuple):
    """One thing to measure: kind of record, what identifies it, how to get the calls that are timed in turn, if in a graph."""

    record: str
    fields: dict[str, Any]
    prepare: Callable[[], Sequence[Call]]
    graphs: bool = True


@dataclass
class Bench:
    """Times calls on one device: events on a GPU, inside a CUDA graph where that works, and the clock on a CPU.

    cache_bytes : last-level cache; what fits in it several times is spread over more buffers, so that memory is measured
    limit_s, warm_s : longest that one point may take, and that its warm-up may take
    """

    torch: Any
    device: str
    cache_bytes: int
    memory_bytes: int
    limit_s: float
    warm_s: float

    def measure(self, calls: Sequence[Call], *, graphs: bool) -> dict[str, Any]:
        """Return median and quartiles of one call's time, warmed up until it is stable."""
        turns, on_gpu = itertools.cycle(calls), self.device == "cuda"
        one_s = min(self.time(next(turns)) for _ in range(len(calls) if on_gpu else 3))
        number = max(min(math.ceil((2e-4 if on_gpu else 2e-5) / max(one_s, 1e-9)), 1024), len(calls) if on_gpu else 1)
        if one_s * number * SAMPLES > self.limit_s:
            raise RuntimeError(f"{SAMPLES} samples of {one_s * number:.3g} s exceed the {self.limit_s:g} s that a point may take")

        def run() -> None:
            for _ in range(number):
                next(turns)()

        replay = self._captured(run) if graphs and on_gpu else None
        timed, before_s, end_s = replay or run, math.inf, time.monotonic() + self.warm_s
        while time.monotonic() < end_s:
            now_s = statistics.median(self.time(timed) for _ in range(5))
            if abs(now_s / before_s - 1) < 0.03:
                break
            before_s = now_s
        low, middle, high = statistics.quantiles((self.time(timed) / number for _ in range(SAMPLES)), n=4, method="inclusive")
        timing = {"median_s": middle, "lower_quartile_s": low, "upper_quartile_s": high, "samples": SAMPLES}
        return {**timing, "calls_per_sample": number, "in_graph": replay is not None}

    def _captured(self, run: Call) -> Call | None:
        graph = self.torch.cuda.CUDAGraph()
        try:
            with self.torch.cuda.graph(graph):
                run()
        except RuntimeError:  # some libraries choose their algorithm while running, which can't be captured
            self.torch.cuda.synchronize()
            return None
        replay: Call = graph.replay
        return replay

    def time(self, run: Call) -> float:
        """Return how long one run takes [s]."""
        if self.device != "cuda":
            start_s = time.perf_counter()
            run()
            return time.perf_counter() - start_s
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        self.torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def copies(self, size_bytes: float) -> range:
        """Return indices of the buffers of a size to rotate over; RuntimeError where even one doesn't fit."""
        room_bytes = 0.5 * self.memory_bytes
        if size_bytes > room_bytes:
            raise RuntimeError(f"needs {size_bytes:.3g} bytes of the {room_bytes:.3g} that may be used")
        return range(max(1, min(math.ceil(4 * self.cache_bytes / size_bytes), int(room_bytes // size_bytes), 64)))

    def random(self, dtype: str, *shape: int) -> Any:  # noqa: ANN401 - a tensor; torch is imported while running
        """Return random values; zeros would run faster than real data."""
        eight = "float8_e4m3fnuz" if self.torch.version.hip else "float8_e4m3fn"
        kind = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp8": eight}[dtype]
        drawn = self.torch.float32 if dtype == "fp32" else self.torch.bfloat16
        return self.torch.randn(*shape, device=self.device, dtype=drawn).to(getattr(self.torch, kind))


def gemm_points(bench: Bench, dtype: str, tokens: Sequence[int], shapes: Mapping[str, tuple[int, int]]) -> Iterator[Point]:
    """Yield matrix products of each linear layer with each number of tokens; several copies of the weights, as layers have."""

    def prepare(rows: int, k: int, n: int) -> Sequence[Call]:
        torch, inputs, one = bench.torch, bench.random(dtype, rows, k), bench.torch.ones((), device=bench.device)
        weights = [bench.random(dtype, n, k).t() for _ in bench.copies(n * k * BITS[dtype] / 8)]
        if dtype != "fp8":
            return [partial(torch.mm, inputs, weight) for weight in weights]
        scaled = getattr(torch, SCALED_MM)
        return [partial(scaled, inputs, weight, scale_a=one, scale_b=one, out_dtype=torch.bfloat16) for weight in weights]

    for (layer, (k, n)), rows in itertools.product(shapes.items(), tokens):
        yield Point("gemm", {"layer": layer, "dtype": dtype, "tokens": rows, "k": k, "n": n}, partial(prepare, rows, k, n))


def attention_points(bench: Bench, dtype: str, model: Mapping[str, Any], grid: Mapping[str, Sequence[int]]) -> Iterator[Point]:
    """Yield decode attention (one query a sequence) and prefill attention (a chunk after cached tokens) by PyTorch's SDPA."""
    heads, kv_heads, dim = model["heads"], model["kv_heads"], model["head_dim"]

    def prepare(sequences: int, new: int, context: int) -> Sequence[Call]:
        attend, group = bench.torch.nn.functional.scaled_dot_product_attention, heads // kv_heads
        keys = (sequences, kv_heads, context + (new if new > 1 else 0), dim)
        caches = [[bench.random(dtype, *keys) for _ in "kv"] for _ in bench.copies(2 * math.prod(keys) * BITS[dtype] / 8)]
        if new == 1:  # the queries of one group see the same keys: as rows of one product, the cache is read once
            query = bench.random(dtype, sequences, kv_heads, group, dim)
            return [partial(attend, query, k, v) for k, v in caches]
        query = bench.random(dtype, sequences, heads, new, dim)
        mask = importlib.import_module("torch.nn.attention.bias").causal_lower_right(new, new + context) if context else None
        return [partial(attend, query, k, v, attn_mask=mask, is_causal=not context, enable_gqa=group > 1) for k, v in caches]

    shape = {"dtype": dtype, "heads": heads, "kv_heads": kv_heads, "head_dim": dim}
    for rows, context in itertools.product(grid["sequences"], grid["contexts"]):
        fields = {**shape, "sequences": rows, "context_tokens": context}
        yield Point("decode_attention", fields, partial(prepare, rows, 1, context))
    for new, context in itertools.product(grid["chunks"], grid["prefixes"]):
        fields = {**shape, "new_tokens": new, "context_tokens": context}
        yield Point("prefill_attention", fields, partial(prepare, 1, new, context))


def memory_points(bench: Bench, mebibytes: Sequence[int]) -> Iterator[Point]:
    """Yield the launch floor, eager and in a graph, and copies within the device's memory, which read and write size_bytes each."""
    torch, device = bench.torch, bench.device

    def copy(size_bytes: int) -> Sequence[Call]:
        pairs = [torch.randint(256, (2, size_bytes), dtype=torch.uint8, device=device) for _ in bench.copies(2 * size_bytes)]
        return [partial(pair[0].copy_, pair[1]) for pair in pairs]

    for graph in (False, True) if device == "cuda" else (False,):
        yield Point("launch", {"graph": graph}, lambda: [partial(torch.zeros(1, device=device).add_, 1.0)], graph)
    for size in mebibytes:
        yield Point("device_copy", {"size_bytes": size * MIB}, partial(copy, size * MIB))


def model_part(config: Mapping[str, Any], tp: int) -> dict[str, Any]:
    """Return what one of tp GPUs holds of a dense model: k and n of its linear layers, heads and head dimension."""
    found: dict[str, Any] = {name: config.get(name) or config.get("num_attention_heads") for name in SIZES}
    wrong = [name for name, value in found.items() if not isinstance(value, int) or not 0 < value < 10**7]
    wrong += [name for name in config if "expert" in name and config[name]]
    if wrong or "intermediate_size" not in config:
        refuse("--model-config", wrong, "must describe a dense model by its sizes", "Measure other models with collect_vllm.py")
    hidden, inner, _, heads, kv_heads, vocab = found.values()
    if heads % tp or inner % tp or heads % kv_heads or max(kv_heads, tp) % min(kv_heads, tp):
        refuse("--tp", tp, f"must divide {heads} heads, {kv_heads} key-value heads and {inner} inner columns", "Give 1 or 2")
    dim, queries, keys = config.get("head_dim") or hidden // heads, heads // tp, max(kv_heads // tp, 1)
    linear = {"qkv": (hidden, (queries + 2 * keys) * dim), "output": (queries * dim, hidden), "gate_up": (hidden, 2 * inner // tp),
              "down": (inner // tp, hidden), "head": (hidden, vocab // tp)}  # fmt: skip
    return {"linear": linear, "heads": queries, "kv_heads": keys, "head_dim": dim}


def device_facts(torch: Any, device: str) -> tuple[dict[str, Any], dict[str, Any], int]:  # noqa: ANN401 - imported while running
    """Return what identifies the machine, the versions of its software, and the last-level cache [B]."""
    processor = Path("/proc/cpuinfo").read_text(errors="replace") if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(":")[2].strip() for line in processor.splitlines() if line.startswith("model name")]
    facts: dict[str, Any] = {"cpu_name": names[0] if names else None, "cpu_threads": torch.get_num_threads()}
    versions = {"python": sys.version.split()[0], "torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
    asked = output_of("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader") if device == "cuda" else None
    versions["driver"] = asked.communicate(timeout=60)[0].splitlines()[0] if asked else None
    if device == "cpu":
        memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        facts |= {"device_kind": "cpu", "device_name": facts["cpu_name"] or "CPU", "device_memory_bytes": memory_bytes}
        caches = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
        return facts, versions, max([int(size[:-1]) * 1024 for size in caches if size.endswith("K")], default=32 * MIB)
    card, kind = torch.cuda.get_device_properties(0), "rocm" if torch.version.hip else "cuda"
    facts |= {"device_kind": kind, "device_name": card.name, "device_memory_bytes": card.total_memory}
    return {**facts, "multiprocessors": card.multi_processor_count}, versions, int(getattr(card, "L2_cache_size", 64 * MIB))


def collect(points: Iterator[Point], out: RecordFile, bench: Bench, looked_at: tuple[str, str], end_s: float) -> bool:
    """Measure what the file doesn't hold yet; return whether all was reached in time. Sizes come in random order: drift spreads."""
    named = {f"{point.record} {' '.join(f'{name}={value}' for name, value in point.fields.items())}": point for point in points}
    todo = [key for key in named if key not in out.keys]
    random.Random(0).shuffle(todo)  # noqa: S311 - an order, not a secret
    for number, key in enumerate(todo, 1):
        if time.monotonic() > end_s:
            print("The time is used up; the same command measures the rest.", file=sys.stderr)
            return False
        point = named[key]
        try:
            calls, looking = point.prepare(), look(*looked_at)
            timing = bench.measure(calls, graphs=point.graphs)
        except RuntimeError as error:  # out of memory, no such kernel here, or over this program's own limits
            reason = str(error).partition("\n")[0][:300]
            out.write({"record": "skipped", "key": key, "reason": reason})
            print(f"[{number}/{len(todo)}] {key} skipped: {reason}", file=sys.stderr)
            if "CUDA error" in reason or "HIP error" in reason:  # nothing works in this process any more
                refuse(key, reason, "ended the GPU's work", "Run the same command again, with other sizes if it happens again")
        else:
            out.write({"record": point.record, "key": key, **point.fields, **timing, **seen(looked_at[0], looking)})
            print(f"[{number}/{len(todo)}] {key}: {timing['median_s'] * 1e3:.4g} ms", file=sys.stderr)
    return True


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", dest="effort", action="store_const", const="quick", help="a coarse grid, 2 minutes (default)")
    effort.add_argument("--full", dest="effort", action="store_const", const="full", help="a fine grid, up to an hour")
    parser.add_argument("--out", type=Path, required=True, help="file of JSON records to write or to go on with")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="cuda stands for ROCm too")
    parser.add_argument("--model", choices=MODELS, help="a built-in shape; llama-3.1-8b on GPUs, llama-shape-small on CPUs")
    parser.add_argument("--model-config", type=Path, help="a dense model's config.json instead")
    parser.add_argument("--tp", type=whole_number, default=1, help="measure the part that one of so many GPUs holds")
    parser.add_argument("--dtypes", nargs="+", choices=BITS, help="bf16 and, where the GPU has it, fp8; fp32 on CPUs")
    parser.add_argument("--max-seconds", type=whole_number, help="120 with --quick, 3600 with --full")
    parser.set_defaults(effort="quick")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and return the exit status: 0, 3 when time ran out before all points were measured, 130 when interrupted."""
    options, start_s = parse(arguments), time.monotonic()
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError:
        refuse("torch", None, "must be installed", "Run this with the Python that has PyTorch")
    device = options.device if options.device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda" and not torch.cuda.is_available():
        refuse("--device", "cuda", "PyTorch sees no GPU", "Give cpu, or install PyTorch for this GPU")
    machine, software, cache_bytes = device_facts(torch, device)
    name = options.model or ("llama-3.1-8b" if device == "cuda" else "llama-shape-small")
    try:
        config = json.loads(options.model_config.read_text()) if options.model_config else MODELS[name]
    except (OSError, ValueError) as error:
        refuse("--model-config", str(options.model_config), f"can't be read ({error})", "Give a config.json")
    part, grid, slow = model_part(config, options.tp), GRIDS[options.effort], options.effort == "full"
    eight = device == "cuda" and (torch.version.hip is not None or torch.cuda.get_device_capability() >= (8, 9))
    dtypes = options.dtypes or (["fp32"] if device == "cpu" else ["bf16", "fp8"] if eight else ["bf16"])
    bench = Bench(torch, device, cache_bytes, machine["device_memory_bytes"], 20.0 if slow else 4.0, 2.0 if slow else 0.3)
    uuid = str(getattr(torch.cuda.get_device_properties(0), "uuid", "0")) if device == "cuda" else "0"
    looked_at = (machine["device_kind"], f"GPU-{uuid}" if "-" in uuid and torch.version.cuda else "0")
    settings = {"model": str(options.model_config or name), "config": config, "tp": options.tp}
    header = {"collector": COLLECTOR, "machine": machine, "software": software, "settings": settings, "command": " ".join(sys.argv)}
    out = RecordFile(options.out, {**header, "state": seen(looked_at[0], look(*looked_at))})
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    attention = next((dtype for dtype in dtypes if dtype != "fp8"), "bf16")
    copies = memory_points(bench, (64, 256, 1024) if device == "cuda" else (64, 256))
    products = (gemm_points(bench, dtype, grid["tokens"], part["linear"]) for dtype in dtypes)
    points = itertools.chain(copies, attention_points(bench, attention, part, grid), *products)
    try:
        complete = collect(points, out, bench, looked_at, start_s + (options.max_seconds or (3600 if slow else 120)))
    except KeyboardInterrupt:
        print(f"Interrupted; what was measured is in {options.out}, and the same command goes on.", file=sys.stderr)
        return 130
    out.write({"record": "end", "complete": complete, "state": seen(looked_at[0], look(*looked_at))})
    return 0 if complete else 3


if __name__ == "__main__":
    sys.exit(main())

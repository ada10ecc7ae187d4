"""Measure a machine's links with PyTorch: pinned copies between host and GPU, and all-reduces among GPUs.

    python collect_links.py --quick --out links.jsonl                                copies of one GPU, each way and both at once
    torchrun --nproc-per-node 8 collect_links.py --quick --out reduce8.jsonl         all-reduces among 8 GPUs (NCCL, RCCL, or gloo)

Runs alone: this file, Python 3.10 and torch. It writes one JSON record a line and may be interrupted at any time; the same command
goes on where it stopped. Nothing leaves the machine, and no setting of it is changed. Times in seconds, sizes in bytes; a copy both
ways moves size_bytes each way. An all-reduce is timed as launched and, on GPUs, replayed in a CUDA graph, as engines do. Engines
with kernels of their own for small messages are faster than NCCL there.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Call = Callable[[], object]

FORMAT, FORMAT_VERSION, COLLECTOR = "headroom-collected", 1, "links"
KIB, SAMPLES, WARM = 1024, 30, 5
WAYS = ("to_device", "from_device", "both")
COPY_KIB = {
    "quick": (4, 64, 256, 1024, 16384, 262144),
    "full": (4, 16, 64, 128, 256, 512, 1024, 4096, 16384, 65536, 262144, 1048576),
}
REDUCE_KIB = {
    "quick": (8, 64, 512, 4096, 65536),
    "full": (4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536),
}


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


def timed(torch: Any, run: Call, number: int, *, cuda: bool) -> dict[str, Any]:  # noqa: ANN401 - imported while running
    """Return median and quartiles of one of `number` operations that a run holds; every process does the same number of runs."""

    def once() -> float:
        if not cuda:
            start_s = time.perf_counter()
            run()
            return time.perf_counter() - start_s
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    for _ in range(WARM):
        once()
    low, middle, high = statistics.quantiles((once() / number for _ in range(SAMPLES)), n=4, method="inclusive")
    timing = {"median_s": middle, "lower_quartile_s": low, "upper_quartile_s": high, "samples": SAMPLES}
    return {**timing, "calls_per_sample": number}


def copies(torch: Any, way: str, size_bytes: int) -> tuple[Call, int]:  # noqa: ANN401
    """Return a run of pinned copies of a size, and how many it holds; two buffers on the GPU and two on the host."""
    near = [torch.randint(256, (size_bytes,), dtype=torch.uint8, device="cuda") for _ in range(2)]
    far = [torch.randint(256, (size_bytes,), dtype=torch.uint8).pin_memory() for _ in range(2)]
    side, number = torch.cuda.Stream(), max(1, min(50, 2**26 // size_bytes))

    def run() -> None:
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        for _ in range(number):
            if way != "from_device":
                near[0].copy_(far[0], non_blocking=True)
            if way != "to_device":
                with torch.cuda.stream(side):
                    far[1].copy_(near[1], non_blocking=True)
        main.wait_stream(side)

    return run, number


def collect_copies(torch: Any, out: RecordFile, sizes_kib: Sequence[int]) -> None:  # noqa: ANN401
    """Measure pinned copies that the file doesn't hold yet."""
    for size, way in itertools.product((kib * KIB for kib in sizes_kib), WAYS):
        key = f"host_copy way={way} size_bytes={size}"
        if key in out.keys:
            continue
        try:
            run, number = copies(torch, way, size)
            timing = timed(torch, run, number, cuda=True)
        except RuntimeError as error:  # no room to pin so much
            out.write({"record": "skipped", "key": key, "reason": str(error).partition("\n")[0][:300]})
            continue
        out.write({"record": "host_copy", "key": key, "way": way, "size_bytes": size, **timing})
        print(f"{key}: {size / timing['median_s'] / 1e9:.2f} GB/s each way", file=sys.stderr)


def captured(torch: Any, run: Call) -> Call | None:  # noqa: ANN401
    """Return the replay of a run as a CUDA graph, or None where it can't be captured."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            run()
    except RuntimeError:
        return None
    replay: Call = graph.replay
    return replay


def collect_reduces(torch: Any, out: RecordFile | None, sizes_kib: Sequence[int], *, cuda: bool) -> None:  # noqa: ANN401
    """Measure all-reduces among all processes; only the first has a file, and tells the others what is left to do."""
    group, gpus = torch.distributed, torch.distributed.get_world_size()
    todo = [(kib * KIB, graph) for kib in sizes_kib for graph in ((False, True) if cuda else (False,))]
    shared = [[(size, graph) for size, graph in todo if out is None or _key(gpus, size, graph=graph) not in out.keys]]
    group.broadcast_object_list(shared, src=0)
    for size, graph in shared[0]:
        number = max(1, min(50, 2**25 // size))
        values = torch.zeros(size // 2, dtype=torch.bfloat16, device="cuda") if cuda else torch.zeros(size // 4)

        def run(values: Any = values, number: int = number) -> None:  # noqa: ANN401
            for _ in range(number):
                group.all_reduce(values)

        replay = captured(torch, run) if graph else run
        group.barrier()
        if replay is None:
            continue
        timing = timed(torch, replay, number, cuda=cuda)
        if out is not None:
            fields = {"gpus": gpus, "size_bytes": size, "in_graph": graph, "backend": str(group.get_backend())}
            out.write({"record": "all_reduce", "key": _key(gpus, size, graph=graph), **fields, **timing})
            print(f"{_key(gpus, size, graph=graph)}: {timing['median_s'] * 1e6:.1f} us", file=sys.stderr)


def _key(gpus: int, size_bytes: int, *, graph: bool) -> str:
    return f"all_reduce gpus={gpus} size_bytes={size_bytes} graph={graph}"


def device_facts(torch: Any, *, cuda: bool) -> tuple[dict[str, Any], dict[str, Any]]:  # noqa: ANN401
    """Return what identifies the machine and the versions of its software."""
    processor = Path("/proc/cpuinfo").read_text(errors="replace") if Path("/proc/cpuinfo").exists() else ""
    names = [line.partition(":")[2].strip() for line in processor.splitlines() if line.startswith("model name")]
    facts: dict[str, Any] = {"device_kind": "cpu", "device_name": names[0] if names else "CPU", "device_memory_bytes": None}
    versions = {"python": sys.version.split()[0], "torch": torch.__version__, "cuda": torch.version.cuda, "hip": torch.version.hip}
    versions["driver"] = None
    if cuda:
        card, kind, smi = torch.cuda.get_device_properties(0), "rocm" if torch.version.hip else "cuda", shutil.which("nvidia-smi")
        facts = {"device_kind": kind, "device_name": card.name, "device_memory_bytes": card.total_memory}
        command = [smi or "", "--query-gpu=driver_version", "--format=csv,noheader"]
        text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout if smi else ""  # noqa: S603
        versions["driver"] = next(iter(text.splitlines()), None)
    return {**facts, "cpu_name": names[0] if names else None, "cpu_threads": os.cpu_count()}, versions


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", dest="effort", action="store_const", const="quick", help="few sizes, under 2 minutes (default)")
    effort.add_argument("--full", dest="effort", action="store_const", const="full", help="more sizes")
    parser.add_argument("--out", type=Path, required=True, help="file of JSON records to write or to go on with")
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto", help="cuda stands for ROCm too")
    parser.add_argument("--largest-kib", type=whole_number, default=1048576, help="leave larger sizes out")
    parser.set_defaults(effort="quick")
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and return the exit status: 0, or 130 when interrupted."""
    options = parse(arguments)
    try:
        torch = importlib.import_module("torch")
    except ModuleNotFoundError:
        refuse("torch", None, "must be installed", "Run this with the Python that has PyTorch")
    cuda = options.device != "cpu" and torch.cuda.is_available()
    world, rank = (int(os.environ.get(name, default)) for name, default in (("WORLD_SIZE", "1"), ("RANK", "0")))
    if options.device == "cuda" and not cuda:
        refuse("--device", "cuda", "PyTorch sees no GPU", "Give cpu, or install PyTorch for this GPU")
    if world == 1 and not cuda:
        refuse("torchrun", None, "must start several processes where there is no GPU to copy to", "Run it under torchrun")
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    machine, software = device_facts(torch, cuda=cuda)
    header = {"collector": COLLECTOR, "machine": machine, "software": software, "settings": {"processes": world}}
    out = RecordFile(options.out, {**header, "command": " ".join(sys.argv)}) if rank == 0 else None
    sizes = (COPY_KIB if world == 1 else REDUCE_KIB)[options.effort]
    kept = [kib for kib in sizes if kib <= options.largest_kib]
    try:
        if world > 1:
            torch.distributed.init_process_group("nccl" if cuda else "gloo")
            collect_reduces(torch, out, kept, cuda=cuda)
            torch.distributed.destroy_process_group()
        elif out is not None:
            collect_copies(torch, out, kept)
    except KeyboardInterrupt:
        print(f"Interrupted; what was measured is in {options.out}, and the same command goes on.", file=sys.stderr)
        return 130
    if out is not None:
        out.write({"record": "end", "complete": True})
    return 0


if __name__ == "__main__":
    sys.exit(main())

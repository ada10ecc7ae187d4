"""Probe a running OpenAI-compatible server from outside: token times by concurrency, prompts that join, TTFT by prompt length.

    python collect_http.py --url http://127.0.0.1:8000 --quick --out http.jsonl

Runs alone: this file and Python 3.10. Prompts are random, so that no prefix cache answers, and outputs are full (ignore_eos). It
loads the server, so only this machine's unless --allow-host names another, and stops at --max-requests and --max-seconds. One JSON
record a line; the same command goes on after an interruption. Times are the client's.
"""

from __future__ import annotations

import argparse
import bisect
import http.client
import itertools
import json
import math
import os
import random
import re
import signal
import statistics
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

FORMAT, FORMAT_VERSION, COLLECTOR = "headroom-collected", 1, "http"
MOST_LINES, MOST_LINE_BYTES, SECONDS, STOPPED = 100_000, 2**20, {"quick": 120, "full": 3600}, threading.Event()
WORDS = ("river", "stone", "light", "paper", "green", "north", "table", "cloud", "seven", "music", "glass", "field", "sugar")
GRIDS = {
    "quick": {"concurrencies": (1, 4, 16, 64), "prompts": (99, 999), "lengths": (16, 128, 512, 2048), "repeats": 5},
    "full": {"concurrencies": (1, 2, 4, 8, 16, 32, 64, 128, 256), "prompts": (128, 1024, 4096),
             "lengths": (16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384), "repeats": 11},
}  # fmt: skip
LIMITS = (
    ("max-requests", 2000, "most requests that may be sent"), ("max-seconds", None, "120 with --quick, 3600 with --full"),
    ("timeout-seconds", 120, "longest that one point may take"), ("max-concurrency", 64, "leave larger concurrencies out"),
    ("max-prompt-tokens", 2048, "leave longer prompts out"), ("output", 64, "output tokens of a request"),
    ("vocabulary", 30000, "random token ids lie below this"),
)  # fmt: skip


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


class FailedRequestError(Exception):
    """A request that got no full answer."""


class Server(NamedTuple):
    """Where requests go and how they are written."""

    scheme: str
    host: str
    port: int
    prefix: str
    key: str | None
    timeout_s: float

    def lines(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Iterator[str]:
        """Yield the lines of an answer as they arrive; FailedRequestError when it isn't 200, breaks off, or is late."""
        kind = http.client.HTTPSConnection if self.scheme == "https" else http.client.HTTPConnection
        connection, end_s = kind(self.host, self.port, timeout=self.timeout_s), time.monotonic() + self.timeout_s
        head = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {self.key}"} if self.key else {})
        try:
            connection.request(method, self.prefix + path, json.dumps(body) if body is not None else None, head)
            answer = connection.getresponse()
            if answer.status != 200:
                raise FailedRequestError(f"status {answer.status} {answer.reason}: {answer.read(300)!r}")
            for line in itertools.islice(iter(lambda: answer.readline(MOST_LINE_BYTES), b""), MOST_LINES):
                if len(line) == MOST_LINE_BYTES:
                    raise FailedRequestError(f"a line of the answer is {MOST_LINE_BYTES:,} bytes or longer")
                yield line.decode(errors="replace").strip()
                if time.monotonic() > end_s or STOPPED.is_set():
                    raise FailedRequestError(f"the answer took over {self.timeout_s:g} s, or the run was stopped")
        except (OSError, http.client.HTTPException) as error:
            raise FailedRequestError(f"no full answer ({type(error).__name__}: {error})") from error
        finally:
            connection.close()


class Plan(NamedTuple):
    """One point: kind of record, what identifies it, requests it takes, and how to measure it."""

    record: str
    fields: dict[str, int]
    requests: int
    measure: Callable[[], dict[str, Any]]


@dataclass
class Probe:
    """One streaming request: when it was sent, when each chunk of output came, and the server's count of tokens."""

    prompt_tokens: int
    output_tokens: int
    sent_s: float = 0.0
    chunks_s: list[float] = field(default_factory=list)
    used: dict[str, int] = field(default_factory=dict)

    def run(self, server: Server, request: Mapping[str, Any]) -> Probe:
        """Send the request and note each chunk that holds output."""
        self.sent_s = time.perf_counter()
        for line in server.lines("POST", "/completions", request):
            now_s, event = time.perf_counter(), parsed(line[5:]) if line.startswith("data:") and "[DONE]" not in line else {}
            if "error" in event:
                raise FailedRequestError(str(event["error"])[:200])
            self.chunks_s += [now_s] if event.get("choices") else []  # some tokens have no text
            usage = event.get("usage")  # null in all chunks but the last, and whatever else a server may think of
            self.used.update({k: n for k, n in usage.items() if type(n) is int and n > 0} if isinstance(usage, dict) else {})
        if len(self.chunks_s) == self.used.get("completion_tokens", -2) + 1:
            self.chunks_s.pop()  # holds no token and only says why the answer ended
        if not self.chunks_s:
            raise FailedRequestError("the answer held no output")
        return self

    def fields(self) -> dict[str, Any]:
        """Return the request as a record's fields; tokens as the server counted them where it says so."""
        chunks, prompt, output = len(self.chunks_s), self.used.get("prompt_tokens"), self.used.get("completion_tokens")
        tokens = {"prompt_tokens": prompt or self.prompt_tokens, "output_tokens": output or chunks, "chunks": chunks}
        return {**tokens, "ttft_s": self.chunks_s[0] - self.sent_s, "e2e_s": self.chunks_s[-1] - self.sent_s}


def stop(*_: object) -> NoReturn:
    """Let running requests end and interrupt the main thread."""
    STOPPED.set()
    raise KeyboardInterrupt


def parsed(text: str) -> dict[str, Any]:
    """Return a JSON object, or raise FailedRequestError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FailedRequestError(f"no JSON in {text[:80]!r}") from error
    return value if isinstance(value, dict) else {}


class Client:
    """Sends requests of one model, random prompts of a length with outputs of full length, within a bounded number and time."""

    def __init__(self, server: Server, options: argparse.Namespace) -> None:
        self.server, self.options = server, options
        self.left, self.end_s = int(options.max_requests), time.monotonic() + (options.max_seconds or SECONDS[options.effort])
        self._draw = random.Random()  # noqa: S311 - new prompts in each run, so that no earlier one is cached

    def may(self, requests: int) -> bool:
        """Take requests from what is left, or return that number or time is used up."""
        self.left -= requests
        return self.left >= 0 and time.monotonic() < self.end_s

    def send(self, probe: Probe) -> Probe:
        """Send one request and return it when its answer is complete."""
        words = (self._draw.choice(WORDS) for _ in range(probe.prompt_tokens))
        ids = [self._draw.randrange(100, self.options.vocabulary) for _ in range(probe.prompt_tokens)]
        asked = {"model": self.options.model, "prompt": ids if self.options.prompts == "tokens" else " ".join(words)}
        asked |= {"max_tokens": probe.output_tokens, "temperature": 0, "ignore_eos": True, "stream": True}
        return probe.run(self.server, {**asked, "stream_options": {"include_usage": True}})

    def loop(self, prompt_tokens: int, output_tokens: int, rounds: int) -> list[Probe]:
        """Send requests one after the other."""
        return [self.send(Probe(prompt_tokens, output_tokens)) for _ in range(rounds)]


def quartiles(values: Sequence[float]) -> dict[str, float | int]:
    """Return median and quartiles [s]."""
    low, middle, high = statistics.quantiles([*values, *values], n=4, method="inclusive")  # twice: one value alone is enough
    return {"median_s": middle, "lower_quartile_s": low, "upper_quartile_s": high, "samples": len(values)}


def steady_spans(probes: Sequence[Probe], n: int) -> list[tuple[float, float]]:
    """Return the spans of time in which exactly n requests decode and no prompt waits or is computed."""
    changes = [x for p in probes for x in ((p.sent_s, 1, 0), (p.chunks_s[0], -1, 1), (p.chunks_s[-1], 0, -1))]
    prefills, decodes, start_s, spans = 0, 0, math.nan, list[tuple[float, float]]()
    for at_s, prefill, decode in sorted(changes):
        if prefills == 0 and decodes == n:
            spans.append((start_s, at_s))
        prefills, decodes, start_s = prefills + prefill, decodes + decode, at_s
    return spans


def steady_gaps(probes: Sequence[Probe], n: int) -> list[tuple[float, int]]:
    """Return each time between two chunks in a steady span [s], with the chunks that came before."""
    spans = steady_spans(probes, n)
    gaps = [(a, b, i + 1) for probe in probes for i, (a, b) in enumerate(zip(probe.chunks_s, probe.chunks_s[1:], strict=False))]
    places = [(bisect.bisect_right(spans, (a, math.inf)) - 1, a, b, before) for a, b, before in gaps]
    return [(b - a, before) for place, a, b, before in places if place >= 0 and b <= spans[place][1]]


def unloaded(client: Client, prompt_tokens: int, repeats: int) -> dict[str, Any]:
    """Measure TTFT of lone requests of a length."""
    found = [probe.fields() for probe in client.loop(prompt_tokens, 2, repeats)]
    return {"prompt_tokens": statistics.median(f["prompt_tokens"] for f in found), **quartiles([f["ttft_s"] for f in found])}


def plateau(client: Client, n: int, prompt_tokens: int, output_tokens: int) -> dict[str, Any]:
    """Measure the time between tokens with n clients that send two requests each; the requests are listed too."""
    with ThreadPoolExecutor(n) as pool:
        loops = [pool.submit(client.loop, prompt_tokens, output_tokens, 2) for _ in range(n)]
        probes = [probe for loop in loops for probe in loop.result()]
    gaps, requests = steady_gaps(probes, n), [probe.fields() for probe in probes]
    if len(gaps) < 8:
        raise FailedRequestError("fewer than 8 tokens came while all requests decoded: give longer outputs or fewer requests")
    per_chunk = sum(r["output_tokens"] for r in requests) / sum(r["chunks"] for r in requests)
    context = statistics.fmean(r["prompt_tokens"] for r in requests) + per_chunk * statistics.fmean(before for _, before in gaps)
    measured = {"concurrency": n, "context_tokens": context, "tokens_per_chunk": per_chunk, **quartiles([gap for gap, _ in gaps])}
    return {**measured, "requests": requests}


def injection(client: Client, n: int, prompt_tokens: int, injected_tokens: int) -> dict[str, Any]:
    """Measure the longest time between tokens of n decoding requests while the prompt of one more is computed."""
    probes = [Probe(prompt_tokens, client.options.output) for _ in range(n)]
    with ThreadPoolExecutor(n) as pool:
        tasks = [pool.submit(client.send, probe) for probe in probes]
        while min(len(probe.chunks_s) for probe in probes) < 4 and not any(task.done() for task in tasks):
            time.sleep(0.002)
        joined = client.send(Probe(injected_tokens, 2))
        probes = [task.result() for task in tasks]
    pairs = [zip(probe.chunks_s, probe.chunks_s[1:], strict=False) for probe in probes]
    spikes = [max((b - a for a, b in pair if b > joined.sent_s and a < joined.chunks_s[0]), default=0.0) for pair in pairs]
    if not all(spikes):
        raise FailedRequestError("the decoding requests ended before the other prompt was computed: give longer outputs")
    fields, n_chunks = joined.fields(), [sum(at_s < joined.sent_s for at_s in p.chunks_s) for p in probes]
    context = statistics.fmean(probe.fields()["prompt_tokens"] for probe in probes) + statistics.fmean(n_chunks)
    measured = {"concurrency": n, "context_tokens": context, "injected_tokens": fields["prompt_tokens"], "ttft_s": fields["ttft_s"]}
    return {**measured, **quartiles(spikes)}


def server_facts(server: Server, model: str | None) -> tuple[str, str | None, dict[str, str]]:
    """Return the model's name, the engine's version, and what the server tells about its KV cache, where it does."""
    models = parsed("".join(server.lines("GET", "/models"))).get("data")
    names = [str(entry["id"]) for entry in models if isinstance(entry, dict) and "id" in entry] if isinstance(models, list) else []
    if not names or (model is not None and model not in names):
        refuse("--model", model, f"the server offers {names[:10]}", "Give one of these, or leave it out")
    outside, version, cache = server._replace(prefix=""), None, {}
    try:
        version = parsed("".join(outside.lines("GET", "/version"))).get("version")
        line = next((line for line in outside.lines("GET", "/metrics") if "cache_config_info{" in line), "")
        cache = dict(re.findall(r'(\w+)="([^"]*)"', line))
    except FailedRequestError as error:  # not every server has these two
        print(f"The server doesn't describe itself: {error}", file=sys.stderr)
    return model or names[0], version, cache


def planned(client: Client, grid: Mapping[str, Any]) -> Iterator[Plan]:
    """Yield what to measure: TTFT of lone requests, plateaus, and prompts that join decoding requests."""
    limits, repeats = client.options, grid["repeats"]
    lengths = [length for length in grid["lengths"] if length <= limits.max_prompt_tokens]
    batches = [n for n in grid["concurrencies"] if n <= limits.max_concurrency]
    yield from (Plan("ttft", {"prompt": length}, repeats, partial(unloaded, client, length, repeats)) for length in lengths)
    for n, prompt in itertools.product(batches, (prompt for prompt in grid["prompts"] if prompt <= limits.max_prompt_tokens)):
        yield Plan("plateau", {"concurrency": n, "prompt": prompt}, 2 * n, partial(plateau, client, n, prompt, limits.output))
    for n, length in itertools.product(batches[::2], lengths[2:]):
        yield Plan("injection", {"concurrency": n, "injected": length}, n + 1, partial(injection, client, n, lengths[0], length))


def collect(client: Client, out: RecordFile, grid: Mapping[str, Any]) -> bool:
    """Measure what the file doesn't hold yet; return whether all was reached within number and time."""
    failed = 0
    if client.may(2):
        client.loop(16, 8, 2)  # the first requests compile and allocate
    for plan in planned(client, grid):
        key = f"{plan.record} {' '.join(f'{name}={value}' for name, value in plan.fields.items())}"
        if key in out.keys:
            continue
        if not client.may(plan.requests):
            print(f"Requests or time are used up before {key}; the same command measures the rest.", file=sys.stderr)
            return False
        try:
            measured = plan.measure()
        except FailedRequestError as error:
            out.write({"record": "skipped", "key": key, "reason": str(error)[:300]})
            print(f"{key} skipped: {error}", file=sys.stderr)
            if (failed := failed + 1) == 3:
                refuse("--url", client.options.url, "failed three points", "See the reasons above, then run the same command again")
            continue
        out.write({"record": plan.record, "key": key, **measured})
        print(f"{key}: {measured['median_s'] * 1e3:.2f} ms", file=sys.stderr)
    return True


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", dest="effort", action="store_const", const="quick", default="quick", help="coarse, 2 minutes")
    effort.add_argument("--full", dest="effort", action="store_const", const="full", help="a fine grid, up to an hour")
    parser.add_argument("--out", type=Path, required=True, help="file of JSON records to write or to go on with")
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the server; /v1 is added where it has no path")
    parser.add_argument("--allow-host", help="the server's host when it isn't this machine: say so only if you may load it")
    parser.add_argument("--model", help="its name at the server; the first that it lists when left out")
    parser.add_argument("--api-key-env", help="name of the environment variable that holds the key; the key isn't recorded")
    parser.add_argument("--prompts", choices=("tokens", "words"), default="tokens", help="random token ids, or words")
    for name, default, text in LIMITS:
        parser.add_argument(f"--{name}", type=whole_number, default=default, help=text)
    return parser.parse_args(arguments)


def server_of(options: argparse.Namespace) -> Server:
    """Return the server that the options name, or refuse one that they don't allow."""
    try:
        url = urlsplit(options.url)
        host, port = url.hostname or "", url.port or (443 if url.scheme == "https" else 80)
    except ValueError as error:
        refuse("--url", options.url, str(error), "Give for example http://127.0.0.1:8000")
    if url.scheme not in {"http", "https"} or not re.fullmatch(r"[A-Za-z0-9.:_-]+", host) or url.username or url.query:
        refuse("--url", options.url, "must be http(s)://host:port without user or query", "Give for example http://127.0.0.1:8000")
    if not re.fullmatch(r"localhost|127(\.\d+){3}|::1", host) and options.allow_host != host:
        refuse("--url", options.url, "isn't this machine", f"Add --allow-host {host} if you may load that server")
    key = os.environ.get(options.api_key_env, "") if options.api_key_env else None
    if key is not None and not re.fullmatch(r"[!-~]+", key):
        refuse("--api-key-env", options.api_key_env, "names no variable with a key", "Export the key under that name")
    return Server(url.scheme, host, port, url.path.rstrip("/") or "/v1", key, float(options.timeout_seconds))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 0, 3 when number or time ran out before all points were measured, 130 when interrupted."""
    options = parse(arguments)
    server, grid = server_of(options), GRIDS[options.effort]
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    try:
        options.model, version, cache = server_facts(server, options.model)
        machine = {"device_kind": "server", "device_name": f"{server.host}:{server.port}", "device_memory_bytes": None}
        header = {"collector": COLLECTOR, "machine": machine, "software": {"engine": version}, "command": " ".join(sys.argv)}
        header["settings"] = {"model": options.model, "output": options.output, "prompts": options.prompts, "kv_cache": cache}
        out = RecordFile(options.out, header)
        complete = collect(Client(server, options), out, grid)
    except FailedRequestError as error:
        refuse("--url", options.url, str(error), "Check that the server is up and takes completions with streaming")
    except KeyboardInterrupt:
        print(f"Interrupted; what was measured is in {options.out}, and the same command goes on.", file=sys.stderr)
        return 130
    out.write({"record": "end", "complete": complete})
    return 0 if complete else 3


if __name__ == "__main__":
    sys.exit(main())

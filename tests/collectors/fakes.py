"""A small streaming server with known delays, and the collectors as modules."""

import importlib.util
import json
import sys
import threading
import time
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import ModuleType
from typing import Any

COLLECTORS = Path(__file__).parent.parent.parent / "planner" / "calibration"


def collector(name: str) -> ModuleType:
    """Import a collector from its file alone, as a target machine does."""
    spec = importlib.util.spec_from_file_location(f"collect_{name}", COLLECTORS / f"collect_{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@dataclass
class FakeServer:
    """Prompts take ttft_s plus prompt_s a token, one after the other; tokens follow every itl_s, and stand still meanwhile."""

    url: str = ""
    ttft_s: float = 0.02
    prompt_s: float = 1e-4
    itl_s: float = 0.01
    status: int = 200
    closing_chunk: bool = False
    body: bytes | None = None
    busy_until_s: float = 0.0
    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: list[dict[str, Any]] = field(default_factory=list)
    authorization: set[str | None] = field(default_factory=set)

    def prefill(self, tokens: int) -> None:
        with self.lock:
            self.busy_until_s = max(self.busy_until_s, time.monotonic()) + self.ttft_s + self.prompt_s * tokens
            wait_s = self.busy_until_s - time.monotonic()
        time.sleep(wait_s)

    def decode(self) -> None:
        time.sleep(self.itl_s)
        time.sleep(max(0.0, self.busy_until_s - time.monotonic()))


def handler(fake: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, text: str, status: int = 200) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def do_GET(self) -> None:
            answers = {
                "/v1/models": json.dumps({"data": [{"id": "fake-8b"}]}),
                "/version": json.dumps({"version": "0.33.0"}),
                "/metrics": 'x 1\nvllm:cache_config_info{block_size="16",num_gpu_blocks="2756"} 1.0\n',
            }
            self.answer(answers.get(self.path, ""), 200 if self.path in answers else 404)

        def chunk(self, text: str) -> None:
            data = text.encode()
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            fake.seen.append(request)
            fake.authorization.add(self.headers.get("Authorization"))
            if fake.status != 200 or fake.body is not None:
                self.answer((fake.body or b"refused").decode(), fake.status)
                return
            self.send_response(200)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            prompt = len(request["prompt"].split() if isinstance(request["prompt"], str) else request["prompt"])
            fake.prefill(prompt)
            for number in range(request["max_tokens"]):
                if number:
                    fake.decode()
                self.chunk(f"data: {json.dumps({'choices': [{'text': 'a'}]})}\n\n")
            if fake.closing_chunk:
                self.chunk(f"data: {json.dumps({'choices': [{'text': '', 'finish_reason': 'length'}]})}\n\n")
            usage = {"prompt_tokens": prompt, "completion_tokens": request["max_tokens"]}
            self.chunk(f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n")
            self.wfile.write(b"0\r\n\r\n")

    return Handler

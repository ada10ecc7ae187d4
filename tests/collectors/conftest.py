"""Fixtures of the collectors' tests."""

import signal
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest

from tests.collectors.fakes import FakeServer, handler


@pytest.fixture
def fake_server() -> Iterator[FakeServer]:
    fake = FakeServer()
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler(fake))
    fake.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield fake
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def signals_as_before() -> Iterator[None]:
    """Collectors take SIGINT and SIGTERM for themselves; tests give them back."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, action in before.items():
        signal.signal(number, action)

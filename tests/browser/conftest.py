"""One server and one browser at a time; every wait is bounded."""

import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

ROOT = Path(__file__).resolve().parents[2]
SCREENSHOTS = ROOT / "screenshots"
START_S = 180
PAGE_S = 60
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
OpenBrowser = Callable[..., Chrome]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of the app, started as `./run` starts it, without the user's own folder."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "server.log"
    environment = {key: value for key, value in os.environ.items() if key != "PLANNER_HOME"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "planner.ui.serve", "--server.port", str(port)],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_up(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(timeout=30)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[OpenBrowser]:
    """Return a function that opens a fresh browser; all are closed when the test ends."""
    with ExitStack() as stack:

        def start(*, width: int = 1400, height: int = 1000, dark: bool = False) -> Chrome:
            driver = Chrome(options=_options(tmp_path / f"profile-{time.monotonic_ns()}", width, height), service=_service())
            stack.callback(driver.quit)
            driver.set_page_load_timeout(PAGE_S)
            scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
            driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})
            if width < 500:
                metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
                driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
            return driver

        yield start


def _service() -> Service:
    return Service(shutil.which("chromedriver") or "/usr/bin/chromedriver")


def _options(profile: Path, width: int, height: int) -> Options:
    options = Options()
    options.binary_location = shutil.which("chromium") or "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={profile}", f"--window-size={width},{height}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    return options


def _wait_until_up(address: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + START_S
    while time.monotonic() < end:
        if process.poll() is not None:
            pytest.fail(f"the server stopped: {log.read_text(errors='replace')[-2000:]}")
        try:
            with urllib.request.urlopen(f"{address}/_stcore/health", timeout=2):
                return
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            time.sleep(0.2)
    pytest.fail(f"the server did not come up in {START_S} s: {log.read_text(errors='replace')[-2000:]}")

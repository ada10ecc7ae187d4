"""How long the Plan page takes in a real Chromium: `python -m tests.benchmarks.page_speed [--rounds 3]`.

Starts the app as `./run` does, opens it in a fresh browser, and changes one input after another. For each it prints when the
answer's sentence has changed, when the page has come to rest with its charts, how much CPU time the server took, and the load.
Times count from the key that ends the input, inside the page; a headroom that leaves the sentence as it is has no answer time.
"""

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, Keys
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from tests.browser.conftest import FLAGS

ROOT = Path(__file__).resolve().parents[2]
REST_S = 90.0
WATCH = """
window.seen = []; window.keyed = 0;
const look = () => {
  const text = [...document.querySelectorAll('[data-testid=stMain] h4')].map(e => e.innerText).join('|');
  const charts = document.querySelectorAll('[data-testid=stVegaLiteChart] svg').length;
  const state = document.querySelector('[data-testid=stApp]')?.getAttribute('data-test-script-state');
  const row = [text, charts, state].join('#');
  if (row !== window.last) { window.last = row; window.seen.push([performance.now(), text, charts, state]); }
};
new MutationObserver(look).observe(document, {subtree: true, childList: true, characterData: true, attributes: true});
document.addEventListener('keydown', e => { if (e.key === 'Enter') window.keyed = performance.now(); }, true);
"""


def free_port() -> int:
    """Return a port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_s(pid: int) -> float:
    """Return the CPU time of a process so far [s]."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rest(driver: Chrome) -> list[list[Any]]:
    """Wait until nothing on the page has moved for a while, and return what was seen."""
    before, end = -1, time.monotonic() + REST_S
    while time.monotonic() < end:
        seen: list[list[Any]] = driver.execute_script("return window.seen")
        if seen and len(seen) == before and seen[-1][3] == "notRunning":
            return seen
        before = len(seen)
        time.sleep(1.0)
    raise TimeoutError(f"the page did not come to rest in {REST_S:g} s")


def report(what: str, start_ms: float, old: str, seen: list[list[Any]], server_s: float) -> None:
    """Print one measurement."""
    answer = next((row[0] - start_ms for row in seen if row[0] > start_ms and "/day" in row[1] and row[1] != old), None)
    row = {
        "change": what,
        "answer_ms": None if answer is None else round(answer),
        "rest_ms": round(seen[-1][0] - start_ms),
        "server_cpu_s": round(server_s, 2),
        "load_average": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(row), flush=True)


def type_into(driver: Chrome, key: str, text: str) -> None:
    """Replace what a text field of the sidebar holds."""
    field = driver.find_element("css selector", f".st-key-{key} input")
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text)
    field.send_keys(Keys.ENTER)


def pick(driver: Chrome, key: str, text: str) -> None:
    """Choose an entry of a list of the sidebar by its name."""
    field = driver.find_element("css selector", f".st-key-{key} input")
    driver.execute_script("arguments[0].scrollIntoView({block: 'center'})", field)
    field.click()
    field.send_keys(Keys.CONTROL, "a")
    field.send_keys(text)
    time.sleep(0.5)
    field.send_keys(Keys.ENTER)


def one_round(address: str, pid: int, index: int) -> None:
    """Open the page in a fresh browser and change its inputs one after another."""
    options = Options()
    options.binary_location = shutil.which("chromium") or "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={tempfile.mkdtemp()}", "--window-size=1400,1000"):
        options.add_argument(flag)
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver") or "/usr/bin/chromedriver"))
    try:
        driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
        before_s = cpu_s(pid)
        driver.get(address)
        report("open", 0.0, "", rest(driver), cpu_s(pid) - before_s)
        for section in driver.find_elements("css selector", "[data-testid=stSidebar] summary")[:5]:
            section.click()
            time.sleep(0.5)
        changes: dict[str, Callable[[], None]] = {
            "rate": lambda: type_into(driver, "rps", str(40 + index)),
            "headroom": lambda: type_into(driver, "headroom", f"{30 + index}%"),
            "price": lambda: type_into(driver, "prices", f"h100-80g-sxm {1.2 + index / 100:.2f}"),
            "TPOT target": lambda: type_into(driver, "tpot", f"{40 + index} ms"),
            "TTFT target": lambda: type_into(driver, "ttft", f"{0.7 + index / 100:.2f} s"),
            "model": lambda: pick(driver, "model", ("Qwen3-14B", "Qwen3-8B", "Qwen2.5-7B")[index % 3]),
            "workload": lambda: pick(driver, "workload", ("lmsys", "azure-code-2023", "azure-conversation-2024")[index % 3]),
        }
        for what, change in changes.items():
            old = driver.execute_script("const s = window.seen.at(-1)[1]; window.seen = []; return s")
            before_s = cpu_s(pid)
            change()
            report(what, driver.execute_script("return window.keyed"), old, rest(driver), cpu_s(pid) - before_s)
    finally:
        driver.quit()


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """Start the app as `./run` does, give its address and process id when it answers, and end it."""
    port = free_port()
    command = [sys.executable, "-m", "planner.ui.serve", "--server.port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as server:
        try:
            while True:
                try:
                    urllib.request.urlopen(f"http://127.0.0.1:{port}/_stcore/health", timeout=2).close()
                    break
                except OSError:
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}", server.pid
        finally:
            server.terminate()


def main() -> None:
    """Measure some rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    rounds: int = parser.parse_args().rounds
    with served() as (address, pid):
        for index in range(rounds):
            one_round(address, pid, index)


if __name__ == "__main__":
    main()

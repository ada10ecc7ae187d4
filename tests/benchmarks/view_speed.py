"""How long each question's view takes in a real Chromium: `python -m tests.benchmarks.view_speed [--only batching]`.

Starts the app as `./run` does and opens every view of every group of questions, on the scenario that the app opens with and on the
textbook's. For each it prints when the view's sentence stood there, when the page came to rest with its charts, and how much CPU
time the server took: once for the view itself, and once after the first of its own inputs was changed.
"""

import argparse
import json
import os
import shutil
import tempfile
from typing import Any

from selenium.webdriver import Chrome, Keys
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from tests.benchmarks.page_speed import WATCH, cpu_s, rest, served
from tests.browser.conftest import FLAGS

GROUPS = ("batching", "latency", "sharing", "overload", "offline", "speculation")


def views_of(group: str) -> list[Any]:
    """Return the views of a group."""
    module = __import__(f"planner.ui.components.questions_{group}", fromlist=["VIEWS"])
    return list(module.VIEWS)


def browser() -> Chrome:
    """Return a fresh browser that notes what the page shows and when."""
    options = Options()
    options.binary_location = shutil.which("chromium") or "/usr/bin/chromium"
    for flag in (*FLAGS, f"--user-data-dir={tempfile.mkdtemp()}", "--window-size=1400,1000"):
        options.add_argument(flag)
    driver = Chrome(options=options, service=Service(shutil.which("chromedriver") or "/usr/bin/chromedriver"))
    driver.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
    return driver


def report(what: dict[str, Any], start_ms: float, seen: list[list[Any]], server_s: float) -> None:
    """Print one measurement: when the sentence last changed, and when nothing moved any more."""
    after = [row for row in seen if row[0] > start_ms]
    last = after[-1][1] if after else ""
    answer = next((row[0] - start_ms for row in after if row[1] == last and last), None)
    figures = {
        "answer_ms": None if answer is None else round(answer),
        "rest_ms": round(after[-1][0] - start_ms) if after else None,
        "server_cpu_s": round(server_s, 2),
        "load_average": round(os.getloadavg()[0], 2),
    }
    print(json.dumps(what | figures), flush=True)


def change(driver: Chrome, view: Any) -> str | None:
    """Change the view's first input that one types a number into; returns its name."""
    for field in driver.find_elements("css selector", f"[class*='st-key-q-{view.key}-'] input[type=text]"):
        shown = field.get_attribute("placeholder") or ""
        figure = "".join(sign for sign in shown.split(" ")[0] if sign.isdigit() or sign == ".")
        if not figure or "," in shown.split(" ")[0].strip(","):
            continue
        name = driver.execute_script("return arguments[0].closest(\"[class*='st-key-q-']\").className", field)
        unit = shown.split(" ", 1)[1] if " " in shown else ""
        larger = f"{float(figure) * 1.1:.3g}" if "." in figure else str(int(figure) + 1)
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(f"{larger} {unit}".strip())
        field.send_keys(Keys.ENTER)
        return next((part for part in name.split() if part.startswith("st-key-q-")), name)[len("st-key-") :]
    return None


def measure(driver: Chrome, address: str, pid: int, what: tuple[str, Any, str]) -> None:
    """Open one view and change it."""
    group, view, whose = what
    base = {"group": group, "view": view.key, "case": whose}
    before_s = cpu_s(pid)
    query = f"q-{group}-view={view.title}&q-{group}-case={whose}".replace(" ", "+")
    driver.get(f"{address}/{group}?{query}")
    report(base | {"change": "open"}, 0.0, rest(driver), cpu_s(pid) - before_s)
    driver.execute_script("window.seen = []; window.keyed = 0")
    before_s = cpu_s(pid)
    changed = change(driver, view)
    if changed is not None:
        report(base | {"change": changed}, driver.execute_script("return window.keyed"), rest(driver), cpu_s(pid) - before_s)


def main() -> None:
    """Measure every view."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=GROUPS, default=None)
    only = parser.parse_args().only
    with served() as (address, pid):
        driver = browser()
        try:
            for group in GROUPS if only is None else (only,):
                for view in views_of(group):
                    for whose in ("Your scenario", "Textbook"):
                        measure(driver, address, pid, (group, view, whose))
        finally:
            driver.quit()


if __name__ == "__main__":
    main()

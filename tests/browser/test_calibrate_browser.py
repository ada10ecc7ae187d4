"""The Calibrate page in a browser: a file uploaded, fitted, kept, and the plan that uses it; the Accuracy page drawn."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from selenium.webdriver import Chrome

from tests.browser.conftest import ROOT, _wait_until_up
from tests.browser.test_browser import all_of, answer, click, console_errors, idle, shoot, type_into, until

pytestmark = pytest.mark.browser
OpenBrowser = Callable[..., Chrome]
EXAMPLE = ROOT / "hardware_profiles" / "evidence" / "collected" / "vllm_cpu_grid.jsonl.gz"
PLAN = "gpus=h100-80g-sxm&tp=1"


@pytest.fixture(scope="module")
def own_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Address of the app started with a folder of the user's own, and that folder."""
    home = tmp_path_factory.mktemp("home")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("own-server") / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "planner.ui.serve", "--server.port", str(port)],
            cwd=ROOT,
            env={**os.environ, "PLANNER_HOME": str(home)},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            _wait_until_up(f"http://127.0.0.1:{port}", process, log)
            yield f"http://127.0.0.1:{port}", home
        finally:
            process.terminate()
            process.wait(timeout=30)


def at_rest(driver: Chrome, address: str) -> None:
    driver.get(address)
    until(driver, lambda d: all_of(d, "[data-testid=stMain] h4") and idle(d), "the page does not come to rest")


def charts(driver: Chrome) -> int:
    return len(all_of(driver, "[data-testid=stVegaLiteChart] svg, [data-testid=stVegaLiteChart] canvas"))


def test_a_file_is_uploaded_fitted_kept_and_planned_with(own_server: tuple[str, Path], browser: OpenBrowser) -> None:
    address, home = own_server
    driver = browser()
    at_rest(driver, f"{address}/calibrate?{PLAN}")
    before = charts(driver)
    field = until(driver, lambda d: all_of(d, ".st-key-calibrate-files input[type=file]")[0], "no upload is offered")
    field.send_keys(str(EXAMPLE))
    click(driver, ".st-key-calibrate-submit button")
    until(driver, lambda d: any("Fitted to" in heading.text for heading in all_of(d, "[data-testid=stMain] h4")), "no fit is shown")
    until(driver, lambda d: charts(d) >= before + 5, "not every chart of the fit is drawn")
    type_into(driver, "calibrate-name", "two-cores")
    until(driver, idle, "the page does not come to rest")
    click(driver, ".st-key-calibrate-save button")
    until(
        driver,
        lambda d: "cpu-recorded%2Ftwo-cores" in d.current_url or "cpu-recorded/two-cores" in d.current_url,
        "the plan does not name it",
    )
    assert (home / "hardware_profiles" / "calibrations" / "cpu-recorded" / "two-cores.json").is_file()
    assert parse_qs(urlsplit(driver.current_url).query)["calibration"] == ["cpu-recorded/two-cores"]
    click(driver, "a", "Plan")
    until(driver, lambda d: "CPU of the recorded run" in all_of(d, "[data-testid=stMain] h4")[0].text, "the plan is of another GPU")
    assert [error for error in console_errors(driver) if "_stcore" not in error] == []


@pytest.mark.parametrize(
    ("page", "width", "dark"),
    [("calibrate", 1400, False), ("calibrate", 1400, True), ("accuracy", 1400, False), ("accuracy", 700, True)],
)
def test_each_page_is_drawn(server: str, browser: OpenBrowser, page: str, width: int, dark: bool) -> None:
    driver = browser(width=width, dark=dark)
    at_rest(driver, f"{server}/{page}?{PLAN}")
    assert answer(driver)
    if page == "calibrate":
        click(driver, ".st-key-calibrate-example button")
        click(driver, ".st-key-calibrate-submit button")
        until(driver, lambda d: charts(d) >= 7, "charts")
    else:
        until(driver, lambda d: charts(d) >= 3, "charts")
    until(driver, idle, "the page does not come to rest")
    shoot(driver, f"{page}-{'dark' if dark else 'light'}", width)
    for chart in all_of(driver, "[data-testid=stVegaLiteChart]"):
        drawn = until(driver, lambda _d, chart=chart: all_of(chart, "svg, canvas")[0], "a chart is empty")
        assert drawn.size["width"] <= chart.size["width"] + 1

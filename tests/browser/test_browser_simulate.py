"""The Simulate page in a browser: charts drawn, inputs in the address and back after another page, a long run cancelled."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from selenium.webdriver import Chrome
from selenium.webdriver.common.by import By

from tests.browser.test_browser import all_of, answer, click, console_errors, idle, open_group, open_page, shoot, type_into, until

pytestmark = pytest.mark.browser
OpenBrowser = Callable[..., Chrome]
ONE_GPU = "gpus=h100-80g-sxm&tp=1"


def go_to(driver: Chrome, page: str) -> None:
    click(driver, "a", page)


def unfold_inputs(driver: Chrome, section: str) -> None:
    click(driver, "[data-testid=stMain] summary", section)


def at_rest(driver: Chrome) -> str:
    """Return the answer once the page has come to rest, else nothing."""
    headings = all_of(driver, "[data-testid=stMain] h4")
    return headings[0].text if headings and all_of(driver, "[data-testid=stMetric]") and idle(driver) else ""


@pytest.mark.parametrize(("name", "width", "dark"), [("simulate-light", 1400, False), ("simulate-dark", 700, True)])
def test_every_chart_of_a_comparison_is_drawn(server: str, browser: OpenBrowser, name: str, width: int, dark: bool) -> None:
    driver = browser(width=width, dark=dark)
    open_page(driver, f"{server}/simulate?{ONE_GPU}&sim-seqs=32")
    assert "changed settings" in answer(driver)
    until(
        driver, lambda d: len(all_of(d, "[data-testid=stVegaLiteChart] svg, [data-testid=stVegaLiteChart] canvas")) >= 8, "charts"
    )
    until(driver, idle, "the page does not come to rest")
    shoot(driver, name, width)
    for chart in all_of(driver, "[data-testid=stVegaLiteChart]"):
        drawn = chart.find_elements(By.CSS_SELECTOR, "svg, canvas")[0]
        assert drawn.size["width"] <= chart.size["width"] + 1


def test_inputs_are_in_the_address_and_come_back(server: str, browser: OpenBrowser) -> None:
    driver = browser()
    open_page(driver, f"{server}/?{ONE_GPU}")
    go_to(driver, "Simulate")
    until(driver, lambda d: "One replica" in at_rest(d), "no replay is shown")
    before = answer(driver)
    unfold_inputs(driver, "Engine")
    type_into(driver, "sim-seqs", "24")
    until(driver, lambda d: "sim-seqs=24" in d.current_url and at_rest(d) not in {"", before}, "the replay did not change")
    changed = answer(driver)
    open_group(driver, "Trust")
    go_to(driver, "Catalogue")
    until(driver, lambda d: "/catalogue" in d.current_url and idle(d), "the catalogue does not open")
    go_to(driver, "Simulate")
    until(driver, lambda d: "/simulate" in d.current_url and at_rest(d), "no replay is shown")
    assert answer(driver) == changed
    assert "sim-seqs=24" in driver.current_url
    assert console_errors(driver) == []


def test_a_long_run_shows_its_progress_and_can_be_cancelled(server: str, browser: OpenBrowser, tmp_path: Path) -> None:
    driver = browser()
    open_page(driver, f"{server}/?{ONE_GPU}&workload=rag")  # long answers: a million of them take seconds
    go_to(driver, "Simulate")
    until(driver, lambda d: "One replica" in at_rest(d), "no replay is shown")
    unfold_inputs(driver, "Requests")
    type_into(driver, "sim-n", "1M")
    until(driver, lambda d: all_of(d, ".st-key-cancel-replay button"), "no cancel is offered")
    driver.save_screenshot(str(tmp_path / "progress.png"))
    click(driver, ".st-key-cancel-replay button")
    until(driver, lambda d: all_of(d, ".st-key-again-replay button"), "the run can't be started again")
    time.sleep(0.5)
    assert not all_of(driver, "[data-testid=stMetric]")
    assert console_errors(driver) == []

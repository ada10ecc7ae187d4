"""The questions' pages in a browser: quick changes, links of earlier releases, tables on a narrow page."""

from collections.abc import Callable
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from selenium.webdriver import Chrome

from tests.browser.test_browser import all_of, click, console_errors, idle, type_into, until

pytestmark = pytest.mark.browser
OpenBrowser = Callable[..., Chrome]


def link(server: str, group: str, view: str, **query: str) -> str:
    asked = {"gpus": "h100-80g-sxm", "tp": "1", f"q-{group}-view": view, f"q-{group}-case": "Textbook", **query}
    return f"{server}/{group}?{urlencode(asked)}"


def settled(driver: Chrome) -> str:
    """Return the answer once nothing runs or simulates any more, else nothing."""
    headings = all_of(driver, "[data-testid=stMain] h4")
    return headings[0].text if headings and idle(driver) and not all_of(driver, "[class*=st-key-cancel-]") else ""


def faults(driver: Chrome) -> list[str]:
    """Return the console's errors; a page that is opened by its own address first asks for the server beside itself."""
    return [message for message in console_errors(driver) if "/_stcore/" not in message]


def test_after_quick_changes_the_answer_is_that_of_the_last_input(server: str, browser: OpenBrowser) -> None:
    driver = browser(width=900)
    driver.get(link(server, "latency", "How many are in flight?"))
    until(driver, lambda d: "12.49 and 1.02 GB" in settled(d), "the textbook is not answered")
    for rate in range(1, 9):
        type_into(driver, "q-flight-rate", str(rate))
    until(driver, lambda d: parse_qs(urlsplit(d.current_url).query).get("q-flight-rate") == ["8"], "the address did not change")
    said = until(driver, settled, "the page does not come to rest")
    driver.refresh()
    until(driver, lambda d: settled(d) == said, "the last input's answer was another")
    assert "12.49" not in said
    (table,) = until(driver, lambda d: all_of(d, "[data-testid=stMain] [data-testid=stTable]"), "no comparison is drawn")
    widths = driver.execute_script(
        "const t = arguments[0].querySelector('table'); return [t.scrollWidth, arguments[0].clientWidth]", table
    )
    assert widths[0] <= widths[1] + 1, "a narrow page cuts the table"
    assert faults(driver) == []


def test_a_link_of_an_earlier_release_opens_its_view_and_takes_on_the_new_title(server: str, browser: OpenBrowser) -> None:
    driver = browser()
    driver.get(link(server, "batching", "Which knob binds?"))
    until(driver, lambda d: "The compute ridge binds first: 144" in settled(d), "the view does not open")
    until(driver, lambda d: parse_qs(urlsplit(d.current_url).query)["q-batching-view"] == ["What binds?"], "the old title stays")
    click(driver, "[data-testid=stMain] [data-testid=stButtonGroup] button", "Your scenario")
    until(driver, lambda d: "binds first" in settled(d) and "144" not in settled(d), "the scenario is not asked")
    driver.refresh()
    until(driver, lambda d: "binds first" in settled(d) and "144" not in settled(d), "the view is lost on a reload")
    assert faults(driver) == []

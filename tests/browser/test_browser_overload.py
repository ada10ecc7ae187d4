"""The Overload page in a narrow browser: charts that stand side by side on a wide page stay readable."""

from collections.abc import Callable

import pytest
from selenium.webdriver import Chrome

from tests.browser.test_browser import all_of, console_errors, idle, until

pytestmark = pytest.mark.browser
OpenBrowser = Callable[..., Chrome]
LEAST_PX = 300
WIDTHS = "return [...document.querySelectorAll('[data-testid=stVegaLiteChart]')].map(chart => chart.getBoundingClientRect().width)"


def test_charts_of_a_narrow_page_are_readable_and_the_link_is_answered(server: str, browser: OpenBrowser) -> None:
    driver = browser(width=900)
    driver.get(f"{server}/overload?gpus=h100-80g-sxm&tp=1&q-overload-case=Textbook&q-spike-seqs=64&q-spike-cows=1")
    until(driver, lambda d: len(d.execute_script(WIDTHS)) == 4 and idle(d), "not every chart is drawn")
    assert min(driver.execute_script(WIDTHS)) >= LEAST_PX
    said = [each.text for each in all_of(driver, "[data-testid=stAlert]")]
    assert any("q-spike-cows=1, which no field is called" in text for text in said)
    assert [error for error in console_errors(driver) if "_stcore" not in error] == []

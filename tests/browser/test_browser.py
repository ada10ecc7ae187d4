"""What only a browser shows: charts drawn, the address kept, a link reopened, a file saved, a console without errors."""

import csv
import json
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml
from selenium.common.exceptions import ElementClickInterceptedException, StaleElementReferenceException
from selenium.webdriver import Chrome, Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webelement import WebElement
from selenium.webdriver.support.ui import WebDriverWait

from tests.ui.users_files import LLAMA

pytestmark = pytest.mark.browser
WAIT_S = 60
REPLACED = (StaleElementReferenceException, ElementClickInterceptedException, IndexError, ValueError)
T = TypeVar("T")
SCREENSHOTS = Path(__file__).resolve().parents[2] / "screenshots"
OpenBrowser = Callable[..., Chrome]


def all_of(driver: Chrome, css: str) -> list[WebElement]:
    return driver.find_elements(By.CSS_SELECTOR, css)


def until(driver: Chrome, condition: Callable[[Chrome], T], what: str) -> T:
    """Wait for a condition and return what it gave; an element that a rerun replaces meanwhile is looked up again."""
    return WebDriverWait(driver, WAIT_S, poll_frequency=0.1, ignored_exceptions=REPLACED).until(condition, what)


def click(driver: Chrome, css: str, text: str = "") -> None:
    """Click the first element that matches and holds a text."""

    def clicked(d: Chrome) -> bool:
        found = [element for element in all_of(d, css) if text in element.text]
        if not found:
            return False
        d.execute_script("arguments[0].scrollIntoView({block: 'center'})", found[0])
        found[0].click()
        return True

    until(driver, clicked, f"nothing to click: {css} {text}")


def saving(driver: Chrome, tmp_path: Path) -> Path:
    """Let the browser save files, and return the folder that they come to."""
    folder = tmp_path / "downloads"
    driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)})
    return folder


def open_group(driver: Chrome, group: str) -> None:
    """Unfold a group of the navigation, so that its pages can be clicked."""
    click(driver, "[data-testid=stTopNavSection]", group)


def idle(driver: Chrome) -> bool:
    """Whether no run is in progress and nothing on the page is left over from the last one."""
    app = all_of(driver, "[data-testid=stApp]")
    return bool(app) and app[0].get_attribute("data-test-script-state") == "notRunning" and not all_of(driver, "[data-stale=true]")


def open_page(driver: Chrome, address: str) -> None:
    driver.get(address)
    until(driver, lambda d: all_of(d, "[data-testid=stMetric]"), "the page shows no metric")
    until(driver, idle, "the page does not come to rest")


def answer(driver: Chrome) -> str:
    return until(driver, lambda d: all_of(d, "[data-testid=stMain] h4")[0].text, "no answer is shown")


def metric_values(driver: Chrome) -> list[str]:
    return until(driver, lambda d: [element.text for element in all_of(d, "[data-testid=stMetricValue]")], "no metric is shown")


def unfold(driver: Chrome, section: str) -> None:
    click(driver, "[data-testid=stSidebar] summary", section)


def type_into(driver: Chrome, key: str, text: str) -> None:
    def typed(d: Chrome) -> bool:
        (field,) = all_of(d, f".st-key-{key} input")
        if not field.is_displayed():
            return False
        field.send_keys(Keys.CONTROL, "a")
        field.send_keys(text, Keys.ENTER)
        return True

    until(driver, typed, f"{key} is not shown")


def console_errors(driver: Chrome) -> list[str]:
    return [entry["message"] for entry in driver.get_log("browser") if entry["level"] == "SEVERE"]


def requested_hosts(driver: Chrome) -> set[str]:
    events = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    addresses = [event["params"]["request"]["url"] for event in events if event["method"] == "Network.requestWillBeSent"]
    return {urlsplit(address).hostname or "" for address in addresses if urlsplit(address).scheme in {"http", "https", "ws", "wss"}}


def shoot(driver: Chrome, name: str, width: int) -> None:
    """Save the window and the whole page for a look at them."""
    SCREENSHOTS.mkdir(exist_ok=True)
    driver.save_screenshot(str(SCREENSHOTS / f"{name}.png"))
    height = driver.execute_script("return document.querySelector('[data-testid=stMain]').scrollHeight")
    metrics = {"width": width, "height": int(height) + 10, "deviceScaleFactor": 1, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    time.sleep(1.0)
    driver.save_screenshot(str(SCREENSHOTS / f"{name}-full.png"))


@pytest.mark.parametrize(
    ("name", "width", "dark"), [("plan-light", 1400, False), ("plan-dark", 1400, True), ("plan-narrow", 420, False)]
)
def test_page_opens_answered_with_every_chart_drawn(server: str, browser: OpenBrowser, name: str, width: int, dark: bool) -> None:
    driver = browser(width=width, dark=dark)
    open_page(driver, f"{server}/")
    assert "req/s" in answer(driver)
    assert len(metric_values(driver)) == 4
    until(driver, lambda d: len(all_of(d, "[data-testid=stVegaLiteChart] svg")) >= 5, "not every chart is drawn")
    ground = driver.execute_script("return getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor")
    assert ground == ("rgb(17, 22, 28)" if dark else "rgb(255, 255, 255)")
    shoot(driver, name, width)
    assert console_errors(driver) == []


def test_no_figure_is_cut_where_four_stand_in_a_narrow_row(server: str, browser: OpenBrowser) -> None:
    driver = browser(width=1200)
    open_page(driver, f"{server}/?gpus=h100-80g-sxm&tp=1&rps=90")
    values = all_of(driver, "[data-testid=stMetricValue]")
    assert any(len(value.text) >= len("$1,675") and value.text.startswith("$") for value in values), metric_values(driver)
    for value in values:
        for part in (value, *value.find_elements(By.CSS_SELECTOR, "*")):
            assert driver.execute_script("return arguments[0].scrollWidth - arguments[0].clientWidth", part) <= 1, value.text


def test_no_request_leaves_the_machine(server: str, browser: OpenBrowser) -> None:
    driver = browser()
    open_page(driver, f"{server}/")
    driver.get(f"{server}/catalogue")
    until(driver, idle, "the catalogue does not come to rest")
    assert requested_hosts(driver) == {"127.0.0.1"}


def test_a_changed_input_changes_the_answer_and_the_address(server: str, browser: OpenBrowser) -> None:
    driver = browser()
    open_page(driver, f"{server}/")
    before = answer(driver)
    unfold(driver, "Workload")
    type_into(driver, "rps", "40")
    until(driver, lambda d: "rps=40" in d.current_url and answer(d) != before, "the answer did not change")
    until(driver, idle, "the page does not come to rest")
    assert "40 req/s" in answer(driver)
    assert console_errors(driver) == []


def test_a_copied_link_opens_the_same_plan(server: str, browser: OpenBrowser) -> None:
    driver = browser()
    open_page(driver, f"{server}/")
    unfold(driver, "Workload")
    type_into(driver, "rps", "25")
    until(driver, lambda d: "rps=25" in d.current_url, "the address did not change")
    unfold(driver, "Fleet")
    type_into(driver, "headroom", "20 %")
    until(driver, lambda d: "headroom" in d.current_url and idle(d), "the address did not change")
    click(driver, "[data-testid=stSidebar] button", "Share")
    link = until(driver, lambda d: all_of(d, "[data-testid=stPopoverBody] code")[0].text, "no link is offered")
    wanted = (answer(driver), metric_values(driver))

    for address in (link, driver.current_url):
        other = browser()
        open_page(other, address)
        assert (answer(other), metric_values(other)) == wanted
        assert console_errors(other) == []


def test_an_applied_suggestion_is_in_the_address(server: str, browser: OpenBrowser) -> None:
    driver = browser()
    open_page(driver, f"{server}/?rps=12")
    before = driver.current_url
    click(driver, "[class*=st-key-change-] button")
    until(driver, lambda d: d.current_url != before and idle(d), "the address did not change")
    wanted = (answer(driver), metric_values(driver))
    assert "rps" in parse_qs(urlsplit(driver.current_url).query)
    open_page(driver, driver.current_url)
    assert (answer(driver), metric_values(driver)) == wanted
    assert console_errors(driver) == []


def test_candidates_download_as_csv(server: str, browser: OpenBrowser, tmp_path: Path) -> None:
    driver = browser()
    folder = saving(driver, tmp_path)
    open_page(driver, f"{server}/")
    click(driver, ".st-key-candidates-csv button")
    until(driver, lambda _: list(folder.glob("candidates-*.csv")), "no file was saved")
    with next(folder.glob("candidates-*.csv")).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert sum(row["chosen"] == "True" for row in rows) == 1
    assert all(bool(row["link"]) is (int(row["tensor_parallel"]) > 1) for row in rows)
    click(driver, ".st-key-candidates-json button")
    until(driver, lambda _: list(folder.glob("candidates-*.json")), "no file was saved")
    listed = json.loads(next(folder.glob("candidates-*.json")).read_text(encoding="utf-8"))
    assert [(row["gpu_id"], str(row["tensor_parallel"])) for row in listed] == [
        (row["gpu_id"], row["tensor_parallel"]) for row in rows
    ]
    assert console_errors(driver) == []


def test_report_and_manifests_are_saved_and_the_report_stands_alone(server: str, browser: OpenBrowser, tmp_path: Path) -> None:
    driver = browser()
    folder = saving(driver, tmp_path)
    open_page(driver, f"{server}/?gpus=h100-80g-sxm&tp=1")
    said = answer(driver)
    shown = next(code.text for code in all_of(driver, "[data-testid=stCode] code") if code.text.startswith("vllm serve"))
    for key, pattern in (("report", "plan-*.html"), ("kubernetes", "kubernetes-*.yaml"), ("autoscaling", "keda-*.yaml")):
        click(driver, f".st-key-take-{key} button")
        until(driver, lambda _, pattern=pattern: list(folder.glob(pattern)), f"no {key} was saved")
    deployment, service = yaml.safe_load_all(next(folder.glob("kubernetes-*.yaml")).read_text(encoding="utf-8"))
    assert (deployment["kind"], service["kind"]) == ("Deployment", "Service")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["command"] == shlex.split(shown), "the manifest starts another engine than the page"
    assert yaml.safe_load(next(folder.glob("keda-*.yaml")).read_text(encoding="utf-8"))["kind"] == "ScaledObject"
    driver.get(next(folder.glob("plan-*.html")).as_uri())
    assert all_of(driver, "h1")[0].text == said
    assert len(all_of(driver, "svg")) == 2
    assert console_errors(driver) == []


def test_catalogue_reads_a_config_and_shows_a_hostile_name_as_text(server: str, browser: OpenBrowser, tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(LLAMA | {"_name_or_path": "<img src=x onerror=alert(1)>"}), encoding="utf-8")
    driver = browser()
    open_page(driver, f"{server}/?rps=12")
    open_group(driver, "Trust")
    click(driver, "a", "Catalogue")
    until(
        driver, lambda d: "/catalogue" in d.current_url and all_of(d, "[data-testid=stDataFrame]") and idle(d), "no table is shown"
    )
    assert "rps=12" in driver.current_url
    shoot(driver, "catalogue", 1400)
    click(driver, "[data-testid=stMain] [role=tab]", "Models")
    until(driver, lambda d: all_of(d, ".st-key-upload-model input[type=file]"), "no upload is offered")
    all_of(driver, ".st-key-upload-model input[type=file]")[0].send_keys(str(config))
    until(driver, lambda d: "Reads as" in d.find_element(By.TAG_NAME, "body").text and idle(d), "the config was not read")
    assert all_of(driver, "[data-testid=stMain] img") == []
    shoot(driver, "catalogue-model", 1400)
    assert console_errors(driver) == []

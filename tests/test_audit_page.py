"""The audit page in a real browser: headless Chromium, driven by selenium."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from conftest import make_pair
from robustda import Domain, audit
from robustda.cli import main
from robustda.noise.corrupt import corrupt
from robustda.report.page import assemble, payload

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed")

HOSTILE = '<img src=x onerror="window.hacked=1">'
ODD = 'o\'clock "x", 😀 <b>.png'


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def browser(downloads: Path) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # Without the sandbox, which refuses to start for root, and that is who runs tests in a container.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.add_experimental_option("prefs", {"download.default_directory": str(downloads)})
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def source() -> Domain:
    made = make_pair(size=240).source
    names = np.array([HOSTILE, "bee", "cat", "dog"])
    ids = [f"{ODD}{row}" if row % 2 else f"row {row:03d}" for row in range(len(made))]
    return Domain.from_arrays(made.x, names[made.y], ids=ids, name=HOSTILE)


@pytest.fixture
def page(browser: Any, source: Domain, tmp_path: Path) -> Any:
    """The page, opened anew, with nothing decided."""
    browser.get(audit(source, out=tmp_path).save(tmp_path).as_uri())
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    assert browser.get_log("browser") == []
    show_suspects(browser)
    return browser


def show_suspects(page: Any) -> None:
    """Rows are drawn only where they can be seen."""
    page.execute_script("document.getElementById('suspects').scrollIntoView()")
    WebDriverWait(page, 5).until(lambda _: rows(page))


def text(page: Any, identity: str) -> str:
    return page.find_element(By.ID, identity).text


def press(page: Any, keys: str) -> None:
    for key in keys:
        page.switch_to.active_element.send_keys(key)


def rows(page: Any) -> list[str]:
    return page.execute_script("return [...document.querySelectorAll('#list .id')].map((node) => node.textContent)")


def choose(page: Any, identity: str, value: str) -> None:
    page.find_element(By.CSS_SELECTOR, f"#{identity} option[value='{value}']").click()


def test_it_says_what_was_found(page: Any, source: Domain) -> None:
    found = audit(source)
    assert text(page, "headline").replace("\xa0", " ") == found.headline[0].replace("\xa0", " ")
    assert len(page.find_elements(By.CSS_SELECTOR, "#classes tbody tr")) == 4
    assert len(page.find_elements(By.CSS_SELECTOR, "#estimates tbody tr")) == 5
    assert page.find_elements(By.CSS_SELECTOR, "#histogram rect.wrong")
    assert page.find_elements(By.CSS_SELECTOR, "#matrix path.diagonal")
    assert text(page, "shown") == f"{len(found.suspects)} suspects"


def test_it_says_what_to_expect_on_the_target(browser: Any, source: Domain, tmp_path: Path) -> None:
    target = Domain.from_arrays(make_pair().target.x, name=HOSTILE)
    found = audit(source, target, out=tmp_path).transfer
    browser.get((tmp_path / "audit.html").as_uri())
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.hacked") is None
    assert text(browser, "target") == HOSTILE
    shown = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "#accuracy tbody tr")]
    assert [row.split()[:3] for row in shown] == [["Adapted", "to", "it"], ["Source", "alone", shown[1].split()[2]]]
    assert f"{100 * found.adapted.value:.0f}\xa0%" in shown[0].replace(" %", "\xa0%")
    terms = text(browser, "terms").replace("\xa0", " ")
    for sentence in (found.terms.sentences()[name] for name in ("risk", "discrepancy", "proxy")):
        assert sentence.replace("\xa0", " ") in terms
    assert len(browser.find_elements(By.CSS_SELECTOR, "#more tbody tr")) == 4
    assert "50 %" in text(browser, "more").replace("\xa0", " ")
    assert browser.find_elements(By.CSS_SELECTOR, "#losses rect.wrong")
    for width in (1280, 390):
        browser.set_window_size(width, 900)
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    browser.set_window_size(1280, 900)


def test_names_do_nothing_but_show(page: Any) -> None:
    assert page.execute_script("return window.hacked") is None
    assert page.find_elements(By.TAG_NAME, "img") == []
    assert HOSTILE in text(page, "classes")
    assert text(page, "source") == HOSTILE
    assert page.title == f"Audit of {HOSTILE}"
    press(page, "j4")
    page.find_element(By.CSS_SELECTOR, "#chooser-list button").click()
    choose(page, "sort", "given")
    page.find_element(By.ID, "search").send_keys("<b>")
    assert rows(page)
    assert all(name.startswith(ODD) for name in rows(page))
    assert page.execute_script("return window.hacked") is None
    assert page.get_log("browser") == []


def test_a_script_that_came_in_would_not_run(page: Any) -> None:
    page.execute_script(
        "const s = document.createElement('script'); s.textContent = 'hacked = 2'; document.body.append(s)"
    )
    page.execute_script("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"hacked=3\">')")
    assert page.execute_script("return window.hacked") is None
    assert any("Content Security Policy" in entry["message"] for entry in page.get_log("browser"))


def test_search_and_sort(page: Any) -> None:
    everything = text(page, "shown")
    page.find_element(By.ID, "search").send_keys("ROW 02")
    assert rows(page)
    assert all("row" in name and "02" in name for name in rows(page))
    assert " of " in text(page, "shown")
    choose(page, "sort", "id")
    assert rows(page) == sorted(rows(page))
    page.find_element(By.ID, "search").send_keys("nothing such")
    assert page.find_element(By.ID, "nothing").is_displayed()
    page.find_element(By.ID, "search").clear()
    page.find_element(By.ID, "search").send_keys(" " + Keys.BACKSPACE)
    assert text(page, "shown") == everything
    page.find_element(By.CSS_SELECTOR, "#classes tbody button").click()
    first = page.find_element(By.CSS_SELECTOR, "#classes tbody button").text
    given = {node.text for node in page.find_elements(By.CSS_SELECTOR, "#list .labels > :first-child")}
    assert given == {first}


def test_deciding_by_keyboard_undo_reload_export_and_fit(page: Any, source: Domain, downloads: Path, tmp_path: Path):
    found = audit(source)
    first = source.ids[found.suspects[:5]].tolist()
    press(page, "j123")  # keep, relabel, drop: each goes on to the next
    assert text(page, "progress").startswith("3 of ")
    press(page, "2u")
    assert text(page, "progress").startswith("3 of ")
    press(page, "4")
    page.switch_to.active_element.send_keys("dog" + Keys.ENTER)
    assert text(page, "progress").startswith("4 of ")
    assert "dog" in page.find_element(By.ID, "status").get_attribute("textContent")
    page.refresh()
    show_suspects(page)
    assert text(page, "progress").startswith("4 of ")
    pressed = page.find_elements(By.CSS_SELECTOR, "#list [aria-pressed=true]")
    assert [node.get_attribute("data-decision") for node in pressed] == ["keep", "relabel", "drop", "relabel"]

    page.find_element(By.ID, "export").click()
    path = downloads / "decisions.csv"
    WebDriverWait(page, 10).until(lambda _: path.exists())
    table = pd.read_csv(path, keep_default_na=False)
    names = source.classes
    assert table["id"].tolist() == first[:4]
    assert table["decision"].tolist() == ["keep", "relabel", "drop", "relabel"]
    assert table["label"].tolist() == [
        names[source.y[found.suspects[0]]],
        names[found.evidence.suggested[found.suspects[1]]],
        "",
        "dog",
    ]
    source.save_npz(tmp_path / "source.npz")
    arguments = ["--source", str(tmp_path / "source.npz"), "--target", str(tmp_path / "source.npz")]
    arguments += ["--decisions", str(path), "--out", str(tmp_path / "run"), "--method", "prototypes"]
    assert main(["fit", *arguments, "--device", "cpu", "--tensorboard", "false"]) == 0
    assert (tmp_path / "run" / "decisions.csv").read_bytes() == path.read_bytes()


def test_deciding_by_click_and_all_at_once(page: Any) -> None:
    button = page.find_element(By.CSS_SELECTOR, "#list [data-decision=drop]")
    button.click()
    assert button.get_attribute("aria-pressed") == "true"
    button.click()
    assert button.get_attribute("aria-pressed") == "false"
    total = len(audit_ids(page))
    choose(page, "bulk", "drop")
    page.find_element(By.ID, "apply").click()
    assert text(page, "progress") == f"{total} of {total} decided"
    page.find_element(By.ID, "undo").click()
    assert text(page, "progress") == f"0 of {total} decided"
    choose(page, "show", "open")
    press_body(page, "333")
    assert text(page, "shown") == f"{total - 3} of {total} shown"


def audit_ids(page: Any) -> list[str]:
    return page.execute_script("return JSON.parse(document.getElementById('data').textContent).suspects.id")


def press_body(page: Any, keys: str) -> None:
    page.execute_script("document.activeElement.blur()")
    press(page, keys)


def test_keys_can_be_turned_off_and_do_not_disturb_typing(page: Any) -> None:
    page.find_element(By.ID, "search").send_keys("1")
    assert text(page, "progress").startswith("0 of ")
    page.find_element(By.CSS_SELECTOR, ".keys summary").click()
    page.find_element(By.ID, "shortcuts").click()
    press_body(page, "j1")
    assert text(page, "progress").startswith("0 of ")


def test_the_map_is_read_by_keyboard(page: Any) -> None:
    page.execute_script("document.getElementById('matrix').focus()")
    page.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert "is labelled so" in text(page, "readout")
    page.switch_to.active_element.send_keys(Keys.ARROW_RIGHT)
    assert "is labelled bee." in text(page, "readout")


def test_it_fits_a_phone_and_images_have_pictures(browser: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    shades = np.repeat(np.arange(3), 30)
    pixels = (shades[:, None, None, None] * 80 + rng.integers(0, 40, (90, 16, 16, 3))).astype(np.uint8)
    long = "a_class_with_a_name_that_is_much_longer_than_a_phone_is_wide_or_any_page_would_wish"
    noisy, _ = corrupt(Domain.from_arrays(pixels, np.array([long, "b", "c"])[shades]), "label", 0.3, seed=0)
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride", {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    )
    try:
        browser.get(audit(noisy).save(tmp_path).as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
        show_suspects(browser)
        loaded = "return [...document.images].every((image) => image.complete && image.naturalWidth === 16)"
        WebDriverWait(browser, 5).until(lambda page: page.execute_script(loaded))
        assert browser.find_elements(By.CSS_SELECTOR, "#list img")
        heights = {
            node.size["height"] for node in browser.find_elements(By.CSS_SELECTOR, "#list [data-place='0'] button")
        }
        assert min(heights) >= 44
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_ten_thousand_suspects_are_a_few_rows(browser: Any, source: Domain, tmp_path: Path) -> None:
    content = payload(audit(source))
    few = len(content["suspects"]["id"])
    content["digest"] = "many"
    content["suspects"] = {
        name: (column * (10_000 // few + 1))[:10_000] for name, column in content["suspects"].items()
    }
    content["suspects"]["id"] = [f"row {row}" for row in range(10_000)]
    path = tmp_path / "many.html"
    path.write_text(assemble(content), encoding="utf-8")
    browser.get(path.as_uri())
    assert text(browser, "shown") == "10,000 suspects"
    choose(browser, "sort", "id")
    browser.execute_script("scrollTo(0, document.documentElement.scrollHeight)")
    WebDriverWait(browser, 5).until(lambda page: "row 9999" in rows(page))
    assert len(rows(browser)) < 40
    browser.find_element(By.ID, "search").send_keys("row 4321")
    assert rows(browser) == ["row 4321"]


def test_a_clean_source_has_nothing_to_decide(browser: Any, tmp_path: Path) -> None:
    x = np.repeat(np.eye(2, 6), 40, axis=0) * 9 + np.random.default_rng(0).normal(size=(80, 6))
    found = audit(Domain.from_arrays(x, np.repeat(["a", "b"], 40)))
    assert not len(found.suspects)
    browser.get(found.save(tmp_path).as_uri())
    assert text(browser, "headline").startswith("The data look clean")
    assert "nothing to decide" in text(browser, "suspects-note")
    assert not browser.find_element(By.ID, "search").is_displayed()

"""The audit's page and a run's report for who does not see them: what Chromium tells a screen reader, and contrast."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import robustda
from conftest import make_pair
from robustda import RDA, Domain, audit
from robustda.noise.corrupt import corrupt

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402
from selenium.webdriver.support.wait import WebDriverWait  # noqa: E402

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="chromium or chromedriver is not installed")

CONTROLS = {"button", "link", "searchbox", "textbox", "combobox", "checkbox", "progressbar", "DisclosureTriangle"}
NAMED = CONTROLS | {"application", "article", "feed", "image", "region", "table", "dialog", "heading", "columnheader"}

# The colours of every text that can be seen, over the colours of what lies behind it; opacity thins both.
CONTRAST = """
const parse = (c) => {
  const [r, g, b, a = 1] = c.match(/[\\d.]+/g).map(Number);
  return c.startsWith('color(') ? [255 * r, 255 * g, 255 * b, a] : [r, g, b, a];
};
const over = ([r, g, b, a], under) => [r, g, b].map((v, i) => v * a + under[i] * (1 - a));
const ground = (node) => {
  const layers = [];
  for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
  const lowest = parse(getComputedStyle(document.body).backgroundColor).slice(0, 3);
  return layers.reverse().reduce((under, layer) => over(layer, under), lowest);
};
const light = (rgb) => rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const found = {};
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
for (let text = walker.nextNode(); text; text = walker.nextNode()) {
  const node = text.parentElement;
  if (!text.data.trim() || !node.checkVisibility({ visibilityProperty: true })) continue;
  if (node.closest('.hidden, script, style, :disabled, title')) continue;
  let thin = 1;
  for (let at = node; at; at = at.parentElement) thin *= Number(getComputedStyle(at).opacity);
  const style = getComputedStyle(node);
  const ink = parse(node instanceof SVGElement ? style.fill : style.color);
  const under = ground(node);
  const shown = over([...ink.slice(0, 3), ink[3] * thin], under);
  const [a, b] = [light(shown), light(under)].sort((x, y) => y - x);
  const key = `${node.tagName.toLowerCase()}.${node.getAttribute('class') || ''} ${style.color}`;
  found[key] = Math.min(found[key] ?? 99, (a + 0.05) / (b + 0.05));
}
return found;
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    # Without the sandbox, which refuses to start for root, and that is who runs tests in a container.
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Addresses of an audit of images beside a target, and of a run's report."""
    folder, rng = tmp_path_factory.mktemp("pages"), np.random.default_rng(0)
    shades = np.repeat(np.arange(4), 40)
    pixels = (shades[:, None, None, None] * 60 + rng.integers(0, 40, (160, 16, 16, 3))).astype(np.uint8)
    names = np.array(["ant", "bee", "cat", "dog"])
    noisy, _ = corrupt(Domain.from_arrays(pixels, names[shades], name="web"), "label", 0.3, seed=0)
    found = audit(noisy, Domain.from_arrays(np.roll(pixels, 3, axis=0), name="camera"))
    pair = make_pair()
    RDA(steps=6, epochs=2, width=8).fit(pair.source, pair.target, out=folder / "run")
    robustda.report(folder / "run", target=pair.target).save(folder / "report.html")
    return {"audit": found.save(folder / "audit").as_uri(), "run": (folder / "report.html").as_uri()}


@pytest.fixture
def page(browser: Any, pages: dict[str, str]) -> Any:
    """The audit, opened anew, with nothing decided and the suspects in sight."""
    browser.get(pages["audit"])
    browser.execute_script("localStorage.clear()")
    browser.refresh()
    browser.execute_script("document.getElementById('suspects').scrollIntoView()")
    WebDriverWait(browser, 5).until(lambda _: browser.find_elements(By.CSS_SELECTOR, "#list .row"))
    return browser


def tree(browser: Any) -> list[dict[str, Any]]:
    """What a screen reader is told: role, name, description and states of each node, in order."""
    browser.execute_cdp_cmd("Accessibility.enable", {})
    nodes = browser.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
    by_id, told = {node["nodeId"]: node for node in nodes}, []

    def walk(node: dict[str, Any]) -> None:
        if not node.get("ignored"):
            states = {entry["name"]: entry["value"].get("value") for entry in node.get("properties", [])}
            words = {key: node.get(key, {}).get("value", "") for key in ("role", "name", "description")}
            told.append({**states, **words})
        for child in node.get("childIds", []):
            if child in by_id:
                walk(by_id[child])

    walk(nodes[0])
    return told


def active(page: Any) -> str:
    """What has the focus: the suspect's number, or else the element's id or tag."""
    return page.execute_script(
        "const at = document.activeElement, row = at.closest('.row');"
        "return row ? row.dataset.suspect : at.id || at.tagName;"
    )


def said(page: Any) -> str:
    return page.find_element(By.ID, "status").get_attribute("textContent")


@pytest.mark.parametrize("which", ["audit", "run"])
def test_everything_that_needs_a_name_has_one_and_headings_leave_no_gap(browser: Any, pages, which: str) -> None:
    browser.get(pages[which])
    browser.execute_script("scrollTo(0, document.documentElement.scrollHeight)")
    browser.execute_script("for (const node of document.querySelectorAll('details')) node.open = true")
    told = tree(browser)
    assert [node for node in told if node["role"] in NAMED and not node["name"].strip()] == []
    assert [node for node in told if node.get("focusable") and node["role"] in ("generic", "none")] == []
    levels = [node["level"] for node in told if node["role"] == "heading"]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert {"banner", "main", "contentinfo"} <= {node["role"] for node in told}
    assert browser.execute_script("return document.documentElement.lang") == "en"
    ids = browser.execute_script("return [...document.querySelectorAll('[id]')].map((node) => node.id)")
    assert len(ids) == len(set(ids))


def test_a_suspect_says_what_it_is_where_it_stands_and_what_was_decided(page: Any) -> None:
    first = page.find_element(By.CSS_SELECTOR, "#list .row")
    total = page.execute_script("return JSON.parse(document.getElementById('data').textContent).suspects.id.length")
    assert first.get_attribute("aria-posinset") == "1"
    assert first.get_attribute("aria-setsize") == str(total)
    for key, decision, words in (("1", "Keep", "label kept"), ("2", "Relabel", "relabelled to"), ("3", "Drop", "drop")):
        page.find_element(By.CSS_SELECTOR, "#list .row").click()
        page.execute_script("arguments[0].focus()", page.find_element(By.CSS_SELECTOR, "#list .row"))
        page.switch_to.active_element.send_keys(key)
        assert words in said(page)
        assert f"1 of {total} decided" in said(page)
        told = tree(page)
        article = next(node for node in told if node["role"] == "article")
        assert words in article["description"]
        pressed = [node["name"] for node in told if node["role"] == "button" and node.get("pressed") == "true"]
        assert len(pressed) == 1
        assert pressed[0].startswith(decision)
    status = next(node for node in tree(page) if node["role"] == "status" and "decided" in said(page))
    assert status["live"] == "polite"


def test_buttons_of_different_suspects_can_be_told_apart(page: Any) -> None:
    told = tree(page)
    groups = [node["name"] for node in told if node["role"] == "group" and node["name"].startswith("Decision")]
    assert len(groups) == len(set(groups)) > 3
    assert any(re.match(r"Relabel to (ant|bee|cat|dog)$", node["name"]) for node in told)
    # What is seen on a button is part of what is said.
    for button in page.find_elements(By.CSS_SELECTOR, "#list button"):
        assert button.text in (button.get_attribute("aria-label") or button.text)


def test_pictures_have_words_and_the_heat_map_is_a_table_too(page: Any) -> None:
    pictures = page.find_elements(By.TAG_NAME, "img")
    assert pictures
    assert all(picture.get_attribute("alt").startswith("Picture of ") for picture in pictures)
    page.find_element(By.CSS_SELECTOR, "#fields summary").click()
    WebDriverWait(page, 5).until(lambda _: page.find_elements(By.CSS_SELECTOR, "#fields tbody tr"))
    transition = page.execute_script("return JSON.parse(document.getElementById('data').textContent).transition")
    fields = sum(share >= 0.005 for k, row in enumerate(transition) for j, share in enumerate(row) if j != k)
    assert len(page.find_elements(By.CSS_SELECTOR, "#fields tbody tr")) == fields > 0


def test_what_a_search_or_a_sort_comes_to_is_said(page: Any) -> None:
    page.find_element(By.ID, "search").send_keys("bee")
    WebDriverWait(page, 5).until(lambda _: " shown" in said(page))
    assert said(page) == page.find_element(By.ID, "shown").text
    page.find_element(By.CSS_SELECTOR, "#sort option[value='id']").click()
    assert said(page) == "Sorted by: Name."


def test_the_focus_is_never_lost(page: Any) -> None:
    page.find_element(By.CSS_SELECTOR, "#show option[value='open']").click()
    # A decision takes the suspect, and the button that was pressed, out of this list.
    for _ in range(2):
        page.find_element(By.CSS_SELECTOR, "#list .row [data-decision=keep]").send_keys(Keys.ENTER)
        assert active(page).isdigit()
    page.find_element(By.CSS_SELECTOR, "#list .row [data-decision=choose]").send_keys(Keys.ENTER)
    page.switch_to.active_element.send_keys(Keys.ENTER)
    WebDriverWait(page, 5).until(lambda _: active(page).isdigit())  # a dialog says later that it was closed
    for _ in range(3):  # the last one disables the button
        page.find_element(By.ID, "undo").send_keys(Keys.ENTER)
        assert active(page).isdigit()
    focused = active(page)
    page.execute_script("scrollTo(0, document.documentElement.scrollHeight)")
    page.execute_script("return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert active(page) == focused
    page.switch_to.active_element.send_keys(Keys.PAGE_DOWN)
    assert active(page).isdigit()
    assert active(page) != focused
    page.find_element(By.CSS_SELECTOR, "#classes tbody button").send_keys(Keys.ENTER)
    assert active(page) == "suspects"
    page.find_element(By.CSS_SELECTOR, "#shown button").send_keys(Keys.ENTER)
    assert active(page) == "suspects"
    page.find_element(By.CSS_SELECTOR, "#bulk option[value='drop']").click()
    page.find_element(By.ID, "apply").send_keys(Keys.ENTER)
    assert active(page) != "BODY"


def test_passing_over_a_choice_decides_nothing(page: Any) -> None:
    """Arrow keys on a closed list choose what they pass, and tell the page so."""
    bulk = page.find_element(By.ID, "bulk")
    page.execute_script("arguments[0].focus()", bulk)
    bulk.send_keys(Keys.ARROW_DOWN)
    assert page.find_element(By.ID, "progress").text.startswith("0 of ")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("which", ["audit", "run"])
def test_text_stands_out_from_what_is_behind_it(browser: Any, pages, which: str, scheme: str) -> None:
    # Without motion, so that no colour is caught on its way.
    still = {"name": "prefers-reduced-motion", "value": "reduce"}
    chosen = {"features": [{"name": "prefers-color-scheme", "value": scheme}, still]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", chosen)
    try:
        browser.get(pages[which])
        if which == "audit":
            browser.execute_script("localStorage.clear(); document.getElementById('suspects').scrollIntoView()")
            WebDriverWait(browser, 5).until(lambda _: browser.find_elements(By.CSS_SELECTOR, "#list .row"))
            for key in "j123":
                browser.switch_to.active_element.send_keys(key)
        browser.execute_script("for (const node of document.querySelectorAll('details')) node.open = true")
        ratios = browser.execute_script(CONTRAST)
        assert len(ratios) > 15
        assert {key: round(ratio, 2) for key, ratio in ratios.items() if ratio < 4.5} == {}
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("which", ["audit", "run"])
def test_nothing_moves_for_who_asked_for_that(browser: Any, pages, which: str) -> None:
    still = {"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", still)
    try:
        browser.get(pages[which])
        moving = browser.execute_script(
            "return [...document.querySelectorAll('*')].filter((node) => { const style = getComputedStyle(node);"
            "return parseFloat(style.transitionDuration) > 0 || style.animationName !== 'none'"
            "|| style.scrollBehavior === 'smooth'; }).length"
        )
        assert moving == 0
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})

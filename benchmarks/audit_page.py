"""Does the audit page stay responsive with 10,000 suspects and 100 classes? Timed in headless Chromium.

    python benchmarks/audit_page.py          # needs selenium, chromium and chromedriver

Times are milliseconds of the page's own work, layout included, for what a person does; a frame is 16.7 ms.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
from selenium import webdriver

from robustda import Domain, audit

ACTIONS = """
const done = arguments[0], found = {};
const at = (id) => document.getElementById(id);
const timed = (act) => {
  const start = performance.now();
  act();
  document.body.offsetHeight;
  return performance.now() - start;
};
const change = (id, value, event) => timed(() => { at(id).value = value; at(id).dispatchEvent(new Event(event)); });
const key = (k) => timed(() => document.dispatchEvent(new KeyboardEvent('keydown', { key: k, bubbles: true })));
const spread = (times) => { times.sort((a, b) => a - b); return [times[times.length >> 1], times[times.length - 1]]; };
at('suspects').scrollIntoView();
const typed = [...'class 05'].map((_, i, all) => all.slice(0, i + 1).join(''));
found['type a search'] = spread(typed.map((text) => change('search', text, 'input')));
change('search', '', 'input');
for (const by of ['given', 'id', 'doubt', 'wrong']) found[`sort by ${by}`] = spread([change('sort', by, 'change')]);
key('j');
found['decide by key'] = spread(Array.from({ length: 100 }, () => key('2')));
at('bulk').value = 'drop';
found['decide about all'] = spread([timed(() => at('apply').click())]);
found['decide when all are decided'] = spread(Array.from({ length: 100 }, () => key('1')));
let frames = [], last = performance.now();
const step = () => {
  const now = performance.now();
  frames.push(now - last);
  last = now;
  scrollBy(0, 1500);
  if (frames.length < 120) requestAnimationFrame(step);
  else { found['frame while scrolling'] = spread(frames.slice(2)); done(found); }
};
requestAnimationFrame(step);
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        page = audit(many_wrong_labels()).save(Path(folder))
        size = page.stat().st_size / 2**20
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
        for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
            options.add_argument(argument)
        browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
        start = time.perf_counter()
        browser.get(page.as_uri())
        opened = time.perf_counter() - start
        print(f"{browser.find_element('id', 'shown').text}, {size:.1f} MiB, open after {1000 * opened:.0f} ms\n")
        print("| action | median (ms) | slowest (ms) |\n|---|---|---|")
        for action, (median, slowest) in browser.execute_async_script(ACTIONS).items():
            print(f"| {action} | {median:.1f} | {slowest:.1f} |")
        browser.quit()


def many_wrong_labels(size: int = 24_000, classes: int = 100) -> Domain:
    rng = np.random.default_rng(0)
    true = np.arange(size) % classes
    x = 1.2 * rng.normal(size=(classes, 32))[true] + rng.normal(size=(size, 32))
    given = np.where(rng.random(size) < 0.45, rng.integers(0, classes, size), true)
    names = np.array([f"class {k:03d}" for k in range(classes)])
    return Domain.from_arrays(x.astype(np.float32), names[given], ids=[f"row-{i}" for i in range(size)])


if __name__ == "__main__":
    main()

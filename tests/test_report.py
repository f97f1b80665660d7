"""The report of runs: what it says, that its numbers are right, and how it shows in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import robustda
from conftest import make_pair
from robustda import Domain
from robustda.cli import main
from robustda.errors import ConfigError, RobustDAError, RunError
from robustda.methods import create_method
from robustda.report.run_charts import Line, line_chart
from robustda.report.run_compare import differences
from robustda.report.run_findings import accuracy_of, game_of, trust_of
from robustda.report.run_markup import el
from robustda.report.run_read import read_run, read_runs
from robustda.report.run_wording import told

QUICK: dict[str, Any] = {"device": "cpu", "progress": False, "tensorboard": False}
HOSTILE = '<img src=x onerror="window.hacked=1">'
NAMES = np.array([HOSTILE, "bee", "NA", "@@style@@"])


def hostile_pair(size: int = 160) -> tuple[Domain, Domain]:
    """The common task, but with names that a careless page would trip over."""
    pair = make_pair(size=size, target_size=120)
    source = Domain.from_arrays(pair.source.x, NAMES[pair.source.y], name=HOSTILE)
    return source, Domain.from_arrays(pair.target.x, NAMES[pair.target.y], name="camera")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def pair() -> tuple[Domain, Domain]:
    return hostile_pair()


@pytest.fixture(scope="module")
def rda(place: Path, pair: tuple[Domain, Domain]) -> Path:
    method = create_method("rda", width=16, epochs=3, steps=120, beta_rise=30.0)
    method.fit(*pair, out=place / "rda", log_every=10, eval_every=40, **QUICK)
    return place / "rda"


@pytest.fixture(scope="module")
def dann(place: Path, pair: tuple[Domain, Domain]) -> Path:
    create_method("dann", width=16, steps=80).fit(*pair, out=place / "dann", log_every=10, eval_every=40, **QUICK)
    return place / "dann"


@pytest.fixture(scope="module")
def unlabelled(place: Path, pair: tuple[Domain, Domain]) -> Path:
    source, target = pair
    method = create_method("mdd", width=16, steps=40)
    method.fit(source, target.unlabelled(), out=place / "unlabelled", log_every=10, **QUICK)
    return place / "unlabelled"


@pytest.fixture(scope="module")
def clarity(place: Path, pair: tuple[Domain, Domain]) -> Path:
    create_method("clarity", width=16, head_steps=60, members=2).fit(*pair, out=place / "clarity", **QUICK)
    return place / "clarity"


def without_labels(run: Path, copy: Path, **expected: float) -> Path:
    """The same run as if the target had no labels, and with another expectation if one is given."""
    shutil.copytree(run, copy)
    summary = json.loads((copy / "summary.json").read_text()) | {"target_accuracy": None}
    summary["expected_accuracy"] |= expected
    (copy / "summary.json").write_text(json.dumps(summary))
    table = pd.read_csv(copy / "predictions.csv", keep_default_na=False)
    table.drop(columns="label").to_csv(copy / "predictions.csv", index=False)
    return copy


class Outline(HTMLParser):
    """Headings, and whether every element is closed where it should be."""

    VOID = frozenset({"meta", "br", "img", "link", "input"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.headings: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.ids += [value or "" for key, value in attrs if key == "id"]
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


# Numbers.


def test_accuracy_and_confusions_are_those_of_the_predictions(rda: Path) -> None:
    run = read_run(rda)
    found = accuracy_of(run)
    assert found is not None
    table = pd.read_csv(rda / "predictions.csv", keep_default_na=False)
    assert found.final == pytest.approx((table["prediction"] == table["label"]).mean())
    assert found.final == pytest.approx(json.loads((rda / "summary.json").read_text())["target_accuracy"])
    for k, true in enumerate(run.classes):
        for j, said in enumerate(run.classes):
            assert found.counts[k, j] == ((table["label"] == true) & (table["prediction"] == said)).sum()
    logged = pd.read_csv(rda / "metrics.csv").query("metric == 'target_accuracy'")
    assert found.best is not None
    assert found.best[0] == logged["value"].max()
    count, k, j = found.confusions()[0]
    assert k != j
    assert count == (found.counts - np.diag(found.counts.diagonal())).max()


def test_trust_is_what_the_curriculum_left(rda: Path, pair: tuple[Domain, Domain]) -> None:
    found, table = trust_of(read_run(rda)), pd.read_csv(rda / "trust.csv", keep_default_na=False)
    assert found is not None
    assert found.examples.tolist() == pair[0].class_counts().tolist()
    for k, name in enumerate(read_run(rda).classes):
        own = table[table["given_label"] == name]
        assert found.trusted[k] == own["weight"].sum()
        assert found.threshold[k] == own["threshold"].iloc[0]
    rates = json.loads((rda / "summary.json").read_text())["class_noise_rates"]
    assert found.noise_rate is not None
    assert found.noise_rate.tolist() == rates
    overall = json.loads((rda / "summary.json").read_text())["noise_rate"]
    assert np.average(rates, weights=found.examples) == pytest.approx(overall)


def test_what_looks_wrong_and_what_was_trusted_are_both_of_all_labels(rda: Path) -> None:
    run = read_run(rda)
    rate, kept = (f"{100 * run.summary[name]:.0f}" for name in ("noise_rate", "kept_share"))
    said = rf"About {rate}\s% of the 160 source labels look wrong; {kept}\s% were trusted\."
    assert any(re.fullmatch(said, line) for line in told(run))
    given = replace(run, config=run.config | {"params": run.params | {"noise_rate": 0.4}})
    assert any(
        re.match(rf"{rate}\s% of the 160 source labels were said to be wrong; {kept}", line) for line in told(given)
    )
    silent = replace(run, summary={})
    assert any(re.match(rf"{kept}\s% of the 160 source examples were trusted", line) for line in told(silent))


def test_learning_rate_and_coefficient_are_logged_as_they_were(rda: Path) -> None:
    run, method = read_run(rda), create_method("rda", width=16, epochs=3, steps=120, beta_rise=30.0)
    beta = run.series("reversal")
    assert set(beta["phase"]) == {"adapt"}
    step = beta["step"].to_numpy() - 1  # what was logged after step s is what the step before it used
    np.testing.assert_allclose(beta["value"], 0.1 * (2 / (1 + np.exp(-step / 30)) - 1), rtol=1e-5)
    rate = run.series("learning_rate")
    adapt = rate[rate["phase"] == "adapt"]
    np.testing.assert_allclose(adapt["value"], 0.004 * (1 + 0.0002 * step) ** -0.75, rtol=1e-5)
    assert rate[rate["phase"] == "filter"]["value"].max() <= method.params()["curriculum_rate"]
    assert (rate["at"].diff().dropna() > 0).all()


def test_the_game_is_judged_by_its_last_entries(rda: Path, dann: Path) -> None:
    game = game_of(read_run(dann))
    logged = pd.read_csv(dann / "metrics.csv").query("metric == 'domain_accuracy'")["value"]
    assert game is not None
    assert game.advantage == pytest.approx(min(1, max(0, 2 * logged.iloc[-1] - 1)))
    assert "discriminator" in game.verdict or "advantage" in game.verdict
    other = game_of(read_run(rda))
    assert other is not None
    assert other.metric == "discrepancy"


@pytest.mark.parametrize("names", [[1, 2, 3, 10], [1.0, 2.5, 3.0, 10.0], ["1", "02", "True", "nan"]])
def test_classes_of_any_kind_are_found_again(names: list[Any], tmp_path: Path) -> None:
    pair = make_pair(size=80, target_size=60)
    source, target = (Domain.from_arrays(domain.x, np.array(names)[domain.y]) for domain in pair[:2])
    create_method("prototypes").fit(source, target, out=tmp_path, **QUICK)
    run = read_run(tmp_path)
    found = accuracy_of(run)
    assert found is not None
    assert found.counts.sum() == 60
    assert found.final == pytest.approx(run.summary["target_accuracy"])


# The page.


@pytest.mark.parametrize("name", ["rda", "dann", "unlabelled"])
def test_the_page_is_whole_and_in_order(request: pytest.FixtureRequest, pair: tuple[Domain, Domain], name: str) -> None:
    found = robustda.report(request.getfixturevalue(name), target=pair[1], device="cpu")
    outline = Outline(found.html)
    assert outline.headings[0] == "h1"
    assert outline.headings.count("h1") == 1
    assert len(set(outline.ids)) == len(outline.ids)
    assert not {"script", "img", "iframe", "object"} & set(outline.tags)
    assert found.html.count("<svg") == found.html.count('role="img"') + found.html.count('aria-hidden="true"')
    assert "http" not in re.sub(r"http-equiv", "", found.html)
    assert ('id="trust"' in found.html) == (name == "rda")
    assert ('id="confusion"' in found.html) == (name != "unlabelled")
    for part in ("losses", "learning_rate", "reversal", "health", "map", "settings"):
        assert f'id="{part}"' in found.html
    assert "t-SNE of 120 target examples" in found.html


def test_a_target_without_labels_has_no_accuracy(unlabelled: Path, pair: tuple[Domain, Domain]) -> None:
    found = robustda.report(unlabelled, target=pair[1])
    assert "nobody knows" in found.headline[0]
    assert "oracle" not in found.html.split("</style>")[1]
    assert "by the labels" not in found.html


def test_what_is_best_on_the_target_is_marked_as_an_oracle(rda: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(rda, tmp_path / "run"))
    with open(run / "metrics.csv", "a", encoding="utf-8") as file:
        file.write("adapt,60,target_accuracy,0.999\n")
    found = robustda.report(run, points=0)
    (sentence,) = [text for text in found.headline if "oracle" in text]
    assert "99.9" in sentence
    assert "99.9" not in found.headline[0]


def said_of(expected: dict[str, float]) -> str:
    value, low, high = (f"{100 * expected[name]:.0f}\N{NO-BREAK SPACE}%" for name in ("value", "low", "high"))
    return f"{value} ({low} to {high})"


def test_what_was_expected_stands_beside_what_is_true(clarity: Path, tmp_path: Path) -> None:
    summary = json.loads((clarity / "summary.json").read_text())
    expected, true = summary["expected_accuracy"], f"{100 * summary['target_accuracy']:.1f}"
    found = robustda.report(clarity, points=0)
    first, second = found.headline[:2]
    assert first.startswith(true)
    assert "about " + said_of(expected).replace(" (", " were expected to be right (") in second
    inside = expected["low"] <= summary["target_accuracy"] <= expected["high"]
    assert ("lies in that interval" in second) == inside
    part = Outline(found.html) and found.html.split('id="expected"')[1].split("</section>")[0]
    assert f"{true}\N{NO-BREAK SPACE}%" in part
    assert f'class="number">{said_of(expected).split(" (")[0]}<' in part

    odd = Path(shutil.copytree(clarity, tmp_path / "odd"))
    for low, high, side in ((0.0, 0.01, "above"), (0.99, 1.0, "below")):
        changed = summary | {"expected_accuracy": {"value": low, "low": low, "high": high}}
        (odd / "summary.json").write_text(json.dumps(changed))
        assert f"lies {side} that interval" in robustda.report(odd, points=0).headline[1]


def test_what_is_expected_of_a_target_without_labels(clarity: Path, unlabelled: Path, tmp_path: Path) -> None:
    bare = without_labels(clarity, tmp_path / "bare")
    expected = json.loads((bare / "summary.json").read_text())["expected_accuracy"]
    found = robustda.report(bare, points=0)
    about = said_of(expected).replace(" (", " of the 120 examples of camera should be right (")
    assert found.headline[0] == f"About {about}, judged without labels."
    assert "By the labels" not in found.html
    assert 'id="expected"' not in robustda.report(unlabelled, points=0).html


def test_what_is_expected_is_compared(clarity: Path, dann: Path, unlabelled: Path, tmp_path: Path) -> None:
    expected = json.loads((clarity / "summary.json").read_text())["expected_accuracy"]
    page = robustda.report(dann, clarity).html
    assert page.count("Expected without labels") == 1
    assert said_of(expected) in page
    assert "Expected without labels" not in robustda.report(dann, unlabelled).html
    few = without_labels(clarity, tmp_path / "few", value=0.3, low=0.2, high=0.4)
    many = without_labels(clarity, tmp_path / "many", value=0.7, low=0.6, high=0.8)
    found = robustda.report(unlabelled, few, many)
    assert "nobody knows" in found.headline[0]
    assert found.headline[1] == "many expects most: about 70 % right (60 % to 80 %).".replace(
        " %", "\N{NO-BREAK SPACE}%"
    )
    places = [found.html.index(f"<bdi>{name}</bdi>") for name in ("many", "few", "unlabelled")]
    assert places == sorted(places)
    near = without_labels(clarity, tmp_path / "near", value=0.65, low=0.5, high=0.75)
    assert "too close to others" in robustda.report(near, many).headline[1]
    assert "few alone says" in robustda.report(few, unlabelled).headline[1]


def test_names_are_escaped_everywhere(rda: Path, dann: Path, pair: tuple[Domain, Domain], tmp_path: Path) -> None:
    odd = shutil.copytree(dann, tmp_path / HOSTILE)
    for page in (robustda.report(rda, target=pair[1]).html, robustda.report(rda, odd).html):
        assert HOSTILE not in page
        assert "&lt;img src=x" in page
    assert "@@style@@" in robustda.report(rda, points=0).html
    assert el("p", None, "a\x00\ud800b") == "<p>a\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}b</p>"


def test_a_run_that_has_not_ended_is_told_so(rda: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(rda, tmp_path / "run"))
    for name in ("done", "summary.json", "predictions.csv", "model.json", "trust.csv"):
        (run / name).unlink()
    metrics = (run / "metrics.csv").read_text()
    (run / "metrics.csv").write_text(metrics[: metrics.rindex(",") - 3])  # in the middle of a line
    found = robustda.report(run)
    assert "has not ended" in found.headline[0]
    assert "phase adapt" in found.headline[0]
    assert 'id="losses"' in found.html
    assert found.map == "The run holds no model yet."
    (run / "metrics.csv").unlink()
    assert "logged nothing" in robustda.report(run).headline[0]
    assert Outline(robustda.report(run).html).headings


def test_a_target_that_is_gone_or_another_is_a_stated_reason(rda: Path, pair: tuple[Domain, Domain]) -> None:
    assert "nothing at camera now" in str(robustda.report(rda).map)
    moved = Domain.from_arrays(pair[1].x, ids=[f"other {row}" for row in range(120)], name="moved")
    assert "only 0" in str(robustda.report(rda, target=moved).map)
    narrow = Domain.from_arrays(pair[1].x[:, :3])
    assert isinstance(robustda.report(rda, target=narrow).map, str)
    few = robustda.report(rda, target=pair[1], points=50).map
    assert not isinstance(few, str)
    assert len(few.points) == 50
    assert np.isfinite(few.points).all()


def test_the_map_groups_what_the_network_groups(rda: Path, pair: tuple[Domain, Domain]) -> None:
    found = robustda.report(rda, target=pair[1]).map
    assert not isinstance(found, str)
    gaps = np.linalg.norm(found.points[:, None] - found.points[None], axis=2)
    np.fill_diagonal(gaps, np.inf)
    assert (found.predicted[gaps.argmin(axis=1)] == found.predicted).mean() > 0.8
    np.testing.assert_array_equal(found.points, robustda.report(rda, target=pair[1]).map.points)


def test_a_collapsed_run_is_called_so(rda: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(rda, tmp_path / "run"))
    with open(run / "metrics.csv", "a", encoding="utf-8") as file:
        file.write("adapt,120,largest_class,0.995\n")
    assert any("collapsed" in text for text in robustda.report(run, points=0).headline)


# Several runs.


def test_comparing_runs(rda: Path, dann: Path, unlabelled: Path, tmp_path: Path) -> None:
    found = robustda.report(rda, dann)
    scores = {path.name: json.loads((path / "summary.json").read_text())["target_accuracy"] for path in (rda, dann)}
    best = max(scores, key=lambda name: scores[name])
    assert (
        found.headline[0].startswith(f"{best} is best on camera: {100 * scores[best]:.1f}")
        or "level" in found.headline[0]
    )
    outline = Outline(found.html)
    assert len(set(outline.ids)) == len(outline.ids)
    changed = dict(differences(found.runs))
    assert changed["method"] == ["rda", "dann"]
    assert changed["steps"] == [120, 80]
    assert changed["epochs"] == [3, None]
    assert "width" not in changed
    assert all(f"{100 * score:.1f}" in found.html for score in scores.values())
    assert "only dann has an accuracy" in robustda.report(dann, unlabelled).headline[0]
    other = shutil.copytree(unlabelled, tmp_path / "100% other")
    assert "nobody knows" in robustda.report(other, unlabelled).headline[0]
    config = json.loads((other / "config.json").read_text())
    config["data"]["target"] = "elsewhere"
    (other / "config.json").write_text(json.dumps(config))
    assert "different targets" in robustda.report(other, dann).headline[0]


def test_runs_that_differ_in_the_seed_only_are_averaged(pair: tuple[Domain, Domain], tmp_path: Path) -> None:
    scores = []
    for seed in range(2):
        method = create_method("prototypes", seed=seed).fit(*pair, out=tmp_path / str(seed), **QUICK)
        scores.append(100 * method.summary_["target_accuracy"])
    page = robustda.report(tmp_path / "0", tmp_path / "1").html
    assert 'id="seeds"' in page
    assert f"{np.mean(scores):.1f}" in page


def test_runs_are_told_apart_by_as_much_of_their_path_as_needed(rda: Path, dann: Path, tmp_path: Path) -> None:
    for name, run in (("a", rda), ("b", dann)):
        shutil.copytree(run, tmp_path / name / "run")
    assert [run.name for run in read_runs([tmp_path / "a" / "run", tmp_path / "b" / "run"])] == ["a/run", "b/run"]
    with pytest.raises(RunError, match="twice"):
        read_runs([rda, rda / ".." / "rda"])


# Mistakes.


def test_mistakes_are_one_line(tmp_path: Path, rda: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(RunError, match="no run folder"):
        robustda.report(tmp_path)
    with pytest.raises(ConfigError, match="no run to report"):
        robustda.report()
    with pytest.raises(ConfigError, match="points is -1"):
        robustda.report(rda, points=-1)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(RunError, match="cannot be read"):
        robustda.report(tmp_path)
    damaged = Path(shutil.copytree(rda, tmp_path / "damaged"))
    (damaged / "trust.csv").write_text("id,given_label\n1,2\n")
    with pytest.raises(RobustDAError, match="cannot be read"):
        _ = robustda.report(damaged).headline
    for odd in ({"value": "much", "low": 0, "high": 1}, {"value": 0.5}, {"value": 2, "low": 0, "high": 1}, [0.5]):
        shutil.copytree(rda, damaged, dirs_exist_ok=True)
        (damaged / "summary.json").write_text(json.dumps({"expected_accuracy": odd}))
        with pytest.raises(RunError, match="cannot be read"):
            robustda.report(damaged)
    (tmp_path / "file").write_text("")
    assert main(["report", str(rda), "--points=0", "--out", str(tmp_path / "file" / "x.html")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "cannot write" in line


def test_the_command_line(rda: Path, dann: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", str(rda), "--device", "cpu"]) == 0
    printed = capsys.readouterr().out
    assert "classified right" in printed
    assert "no map of the target" in printed
    assert (rda / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert main(["report", str(rda), str(dann)]) == 0
    assert "Comparison of 2 runs" in (tmp_path / "comparison.html").read_text(encoding="utf-8")
    (rda / "report.html").unlink()


def test_where_the_page_goes(rda: Path, dann: Path, tmp_path: Path, capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "older").write_text("something else")
    one, several = ["report", str(rda), "--points=0"], ["report", str(rda), str(dann)]
    for command, out, page in (
        (one, "folder", "folder/report.html"),
        (several, "folder", "folder/comparison.html"),
        (one, "new/", "new/report.html"),
        (one, "deep/down", "deep/down.html"),
        (one, "older", "older.html"),
        (one, "rda-0.5", "rda-0.5.html"),
        (one, "a.HTM", "a.HTM"),
        (several, "b.html", "b.html"),
    ):
        assert main([*command, "--out", out]) == 0
        assert capsys.readouterr().out.splitlines()[-1] == f"open {page} in a browser"
        assert (tmp_path / page).read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (tmp_path / "older").read_text() == "something else"
    assert robustda.report(rda, points=0).save(tmp_path / "folder") == tmp_path / "folder" / "report.html"


def test_the_name_is_a_function_and_a_room(rda: Path) -> None:
    import robustda.report.findings

    assert robustda.report(rda, points=0).headline == robustda.report.report(rda, points=0).headline


def test_a_chart_of_nothing_or_of_no_numbers() -> None:
    assert "Nothing was logged" in line_chart([], "")
    assert "Nothing was logged" in line_chart([Line("a", np.arange(2), np.array([np.nan, np.inf]))], "")
    flat = line_chart([Line("a", np.arange(3), np.zeros(3))], "flat")
    assert "nan" not in flat
    assert "inf" not in flat


# In a browser.


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not (chromium and driver):
        pytest.skip("chromium or chromedriver is not installed")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for argument in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--window-size=1280,900"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    made = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield made
    made.quit()


def test_it_shows_and_names_do_nothing(browser: Any, rda: Path, pair: tuple[Domain, Domain], tmp_path: Path) -> None:
    browser.get(robustda.report(rda, target=pair[1]).save(tmp_path / "report.html").as_uri())
    assert browser.get_log("browser") == []
    assert browser.execute_script("return window.hacked") is None
    assert browser.execute_script("return document.images.length") == 0
    names = browser.execute_script("return [...document.querySelectorAll('tbody th')].map((cell) => cell.textContent)")
    assert set(NAMES.tolist()) <= set(names)
    sizes = browser.execute_script(
        "return [...document.querySelectorAll('svg[role=img]')].map((s) => [s.clientWidth, s.childElementCount])"
    )
    assert len(sizes) >= 9
    assert all(width > 100 and parts > 1 for width, parts in sizes)
    lines = browser.execute_script(
        "return [...document.querySelectorAll('path.line')].map((path) => path.getTotalLength())"
    )
    assert len(lines) >= 10
    assert min(lines) > 0
    assert browser.execute_script("return document.querySelectorAll('path.line path').length") == 0


@pytest.mark.parametrize("several", [False, True])
def test_it_fits_a_phone_in_the_dark(browser: Any, rda: Path, dann: Path, pair, tmp_path: Path, several: bool) -> None:
    found = robustda.report(rda, dann) if several else robustda.report(rda, target=pair[1])
    size = {"width": 360, "height": 740, "deviceScaleFactor": 1, "mobile": True}
    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        browser.get(found.save(tmp_path / "report.html").as_uri())
        assert browser.execute_script("return document.documentElement.scrollWidth") <= 360
        ground = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
        assert ground == "rgb(20, 23, 26)"
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_it_is_read_by_keyboard_and_aloud(browser: Any, rda: Path, tmp_path: Path) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.get(robustda.report(rda, points=0).save(tmp_path / "report.html").as_uri())
    browser.switch_to.active_element.send_keys(Keys.TAB)
    assert browser.switch_to.active_element.text == "Skip to the details"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    assert browser.execute_script("return document.activeElement.id") == "main"
    unnamed = browser.execute_script(
        "return [...document.querySelectorAll('svg[role=img], [role=region]')].filter((n) => !n.ariaLabel).length"
    )
    assert unnamed == 0
    bare = "(table) => !table.caption || !table.querySelector('th[scope]')"
    assert browser.execute_script(f"return [...document.querySelectorAll('table')].filter({bare}).length") == 0
    closed = browser.execute_script("return document.querySelectorAll('details:not([open])').length")
    summary = browser.find_element("css selector", "details:not([open]) summary")
    browser.execute_script("arguments[0].focus()", summary)
    summary.send_keys(Keys.ENTER)
    assert browser.execute_script("return document.querySelectorAll('details:not([open])').length") == closed - 1

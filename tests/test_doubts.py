"""What speaks against relying on a run: classes that the target lacks, labels that are wrong by a rule."""

from __future__ import annotations

import json
import math
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from robustda import Clarity, Concord, Domain
from robustda.doubts import check_doubts, doubts_of, in_words
from robustda.errors import RobustDAWarning
from robustda.methods import belief
from robustda.methods.opinions import TwoOpinions
from robustda.methods.task import Task
from robustda.nets import Identity
from robustda.noise.recipes import corrupt_labels, transition_matrix
from robustda.noise.rules import find_rules
from robustda.presence import Presence, classes_there, crowded, lacking
from robustda.report.run_read import read_run
from robustda.report.run_wording import told
from test_every_method import QUIET

NAMES = np.array(["bike", "cup", "desk", "lamp", "pen", "ring"])


def clouds(size: int, seed: int, shift: float = 0.0, scale: float = 0.4) -> Domain:
    """Six classes in 32 dimensions, the target's moved a little."""
    centres = np.random.default_rng(0).normal(size=(6, 32))
    rng = np.random.default_rng(seed)
    codes = np.arange(size) % 6
    x = centres[codes] + scale * rng.normal(size=(size, 32)) + shift * np.random.default_rng(9).normal(size=32)
    return Domain.from_arrays(x.astype(np.float32), NAMES[codes])


def noisy(domain: Domain, transition: np.ndarray) -> Domain:
    assert domain.y is not None
    return replace(domain, y=corrupt_labels(domain.y, transition, 1))


def by_hand(believed: np.ndarray, labels: np.ndarray, n_classes: int) -> set[tuple[int, int]]:
    found = set()
    for k in range(n_classes):
        mine = labels[believed == k]
        wrong = [j for j in mine if j != k]
        for j in sorted(set(wrong)):
            count = wrong.count(j)
            # Of two that are equally frequent the first one is named.
            first = all((wrong.count(i), -i) <= (count, -j) for i in range(n_classes))
            if not first or count < 5 or count < 0.2 * len(mine) or count < 0.5 * len(wrong):
                continue
            usual = min(1.0, max(1 / (n_classes - 1), (labels == j).sum() / max(1, (labels != k).sum())))
            ways = [
                math.comb(len(wrong), n) * usual**n * (1 - usual) ** (len(wrong) - n) for n in range(len(wrong) + 1)
            ]
            if sum(ways[count:]) < 1e-3 / n_classes:
                found.add((k, j))
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7), st.integers(1, 12)), max_size=30))
def test_rules_are_those_that_one_counts_by_hand(groups: list[tuple[int, int, int]]) -> None:
    believed, labels = (np.repeat([g[side] for g in groups], [g[2] for g in groups]).astype(int) for side in (0, 1))
    found = find_rules(believed, labels, 8)
    assert {(rule.true, rule.given) for rule in found} == by_hand(believed, labels, 8)
    assert [rule.share for rule in found] == sorted((rule.share for rule in found), reverse=True)


@pytest.mark.parametrize("n_classes", [2, 3, 4, 10])
@pytest.mark.parametrize("skewed", [False, True])
def test_labels_drawn_anew_follow_no_rule_however_few_the_classes(n_classes: int, skewed: bool) -> None:
    """Skewed, the first class has half of all examples, and half of the labels that are drawn."""
    rng = np.random.default_rng(0)
    for _ in range(20):
        shares = (
            np.full(n_classes, 1 / n_classes)
            if not skewed
            else np.r_[0.5, np.full(n_classes - 1, 0.5 / (n_classes - 1))]
        )
        true, drawn = rng.choice(n_classes, (2, 400), p=shares)
        assert find_rules(true, np.where(rng.random(400) < 0.4, drawn, true), n_classes) == []


def test_what_all_classes_lose_to_one_is_a_rule() -> None:
    rng = np.random.default_rng(0)
    true = np.arange(600) % 6
    found = find_rules(true, np.where(rng.random(600) < 0.4, 5, true), 6)
    assert sorted((rule.true, rule.given) for rule in found) == [(k, 5) for k in range(5)]


@pytest.mark.parametrize("kind", [Clarity, Concord])
def test_a_class_that_loses_many_to_another_is_named(kind: type[Clarity | Concord]) -> None:
    transition = np.eye(6)
    transition[1, 1], transition[1, 4] = 0.65, 0.35
    brief = {"width": 32, "head_steps": 60} if kind is Clarity else {}
    with pytest.warns(RobustDAWarning, match="wrong by a rule .*% of 'cup' are labelled 'pen'"):
        method = kind(**brief, backbone="identity").fit(noisy(clouds(360, 1), transition), clouds(120, 2, 0.3), **QUIET)
    (rule,) = method.summary_["doubts"]["label_rules"]
    assert (rule["class"], rule["labelled"]) == ("cup", "pen")
    assert rule["share"] == pytest.approx(0.35, abs=0.12)


def test_wrong_labels_of_any_class_are_no_rule_and_all_classes_are_there() -> None:
    source = noisy(clouds(360, 1), transition_matrix("symmetric", 6, 0.4))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RobustDAWarning)
        method = Clarity(width=32, head_steps=60, backbone="identity").fit(source, clouds(120, 2, 0.3), **QUIET)
    assert "doubts" not in method.summary_


@pytest.mark.parametrize("kind", [Clarity, Concord])
def test_a_source_of_which_much_is_of_no_class_is_said_to_be_so(kind: type[Clarity | Concord], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    true = np.r_[np.repeat(np.arange(12), 40), 12 + np.arange(160) % 4]
    given = np.where(true < 12, true, rng.integers(0, 12, len(true)))
    x = ((np.eye(16, 200) * 5)[true] + rng.normal(size=(len(true), 200))).astype(np.float32)
    names = np.array([f"class {k:02d}" for k in range(12)])
    target = Domain.from_arrays(x[: 12 * 40 : 3], names[true[: 12 * 40 : 3]])
    brief = {"width": 32, "head_steps": 60} if kind is Clarity else {}
    with pytest.warns(RobustDAWarning, match="of the source resembles no class, not even that of the label"):
        kind(**brief, backbone="identity").fit(Domain.from_arrays(x, names[given]), target, out=tmp_path, **QUIET)
    share = json.loads((tmp_path / "summary.json").read_text())["doubts"]["like_no_class"]
    assert 0.12 < share < 0.27, "a quarter of it is"
    assert any("resembles no class" in line for line in told(read_run(tmp_path)))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RobustDAWarning)
        kind(**brief, backbone="identity").fit(Domain.from_arrays(x[:480], names[given[:480]]), target, **QUIET)


def test_classes_that_the_target_lacks_are_named_in_the_summary_and_the_report(tmp_path: Path) -> None:
    target = clouds(240, 2, 0.3)
    assert target.y is not None
    target = target.take(np.flatnonzero(~np.isin(target.y, [2, 5])))
    source = clouds(360, 1)
    with pytest.warns(RobustDAWarning, match="nothing of 'desk', 'ring'"):
        Clarity(width=32, head_steps=60, backbone="identity").fit(source, target, out=tmp_path, **QUIET)
    assert json.loads((tmp_path / "summary.json").read_text())["doubts"] == {"missing_classes": ["desk", "ring"]}
    assert any(
        line.startswith("The target seems to hold nothing of 'desk', 'ring'") for line in told(read_run(tmp_path))
    )


def test_what_is_predicted_of_missing_classes_is_discounted_unless_that_is_ignored() -> None:
    source, target = clouds(360, 1), clouds(240, 2, 0.3)
    assert target.y is not None
    target = target.take(np.flatnonzero(~np.isin(target.y, [2, 5])))
    brief = {"width": 32, "head_steps": 60, "backbone": "identity"}
    with pytest.warns(RobustDAWarning, match="nothing of"):
        found = Clarity(**brief).fit(source, target, **QUIET)
    with pytest.warns(RobustDAWarning, match="nothing of"):
        ignored = Clarity(**brief, missing="ignore").fit(source, target, **QUIET)
    assert isinstance(found.network_, TwoOpinions)
    gone = found.network_.prior < 0
    assert gone.nonzero()[:, 0].tolist() == [2, 5]
    less, before = found.predict_proba(target), ignored.predict_proba(target)
    wanted = before * np.where(gone, 0.02, 1.0)
    np.testing.assert_allclose(less, wanted / wanted.sum(axis=1, keepdims=True), atol=1e-5)
    # New examples that are clearly of such a class are still recognised.
    assert (found.predict(clouds(60, 7, 0.3)) == clouds(60, 7).classes[clouds(60, 7).y]).mean() > 0.9


def test_frequencies_that_explain_predictions_best_show_what_is_lacking() -> None:
    """Of three classes the second is never there, but a tenth of the others' predictions lean to it."""
    rng = np.random.default_rng(0)
    true = rng.choice([0, 2], 600)
    logits = 2.5 * np.eye(3)[true] + rng.normal(size=(600, 3))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    assert (probabilities.argmax(axis=1) == 1).mean() > 0.03
    shares = np.full(3, 1 / 3)
    assert lacking(probabilities, shares, 3).tolist() == [1]
    true = rng.choice(3, 600)
    logits = 2.5 * np.eye(3)[true] + rng.normal(size=(600, 3))
    assert lacking(np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True), shares, 3).size == 0
    assert lacking(probabilities[:9], shares, 3).size == 0, "three examples of a class that should be there are too few"


def test_no_more_are_said_to_lack_than_are_asked_for() -> None:
    """Poor predictions can leave out nearly all classes; those that are hardly ever said come first."""
    said = np.repeat(np.arange(6), [220, 160, 8, 6, 4, 2])
    probabilities = np.eye(6)[said] * 0.99 + 0.01 / 6
    shares = np.full(6, 1 / 6)
    assert lacking(probabilities, shares, 6).tolist() == [2, 3, 4, 5]
    assert lacking(probabilities, shares, 2).tolist() == [4, 5]


def test_a_model_from_before_classes_were_discounted_can_be_read() -> None:
    network = TwoOpinions(Identity(4), 3, 8, 2)
    state = {name: tensor for name, tensor in network.state_dict().items() if name != "prior"}
    network.prior.fill_(-1)
    network.load_state_dict(state)
    assert network.prior.tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", [Concord, Clarity])
def test_corrupted_examples_do_not_say_what_is_missing(kind: type[Clarity | Concord], monkeypatch) -> None:
    """They resemble each other more than their class: where they are many, its mean lies where nothing is."""
    source, target = clouds(240, 1), clouds(240, 2)
    x, hit = np.array(source.x), np.arange(240) % 5 < 2
    x[hit] = 0.3 * x[hit] + 3 * np.random.default_rng(5).normal(size=32).astype(np.float32)
    heard = []

    def listening(seen: np.ndarray, *rest: Any) -> Presence:
        heard.append(seen)
        return classes_there(seen, *rest)

    monkeypatch.setattr(belief, "classes_there", listening)
    brief = {"width": 32, "head_steps": 5} if kind is Clarity else {}
    kind(members=2, rounds=2, backbone="identity", **brief).fit(replace(source, x=x, corrupted=hit), target, **QUIET)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert len(heard) == (3 if kind is Clarity else 1), "once for each reading"
    for seen in heard:
        np.testing.assert_allclose(np.asarray(seen, dtype=np.float32), unit[~hit], atol=1e-5)


def test_where_all_examples_are_corrupted_nothing_is_called_missing() -> None:
    source, target = clouds(60, 1), clouds(60, 2)
    assert source.y is not None
    odd = {"odd": torch.ones(60, dtype=torch.bool)}
    task = Task(None, torch.from_numpy(source.y), None, 6, torch.device("cpu"), memory=odd)  # type: ignore[arg-type]
    found = Concord().look_for_classes(np.asarray(source.x), [source.y], np.asarray(target.x), task, np.arange(60))
    assert not len(found)


def test_a_class_is_missing_if_most_readings_of_the_labels_say_so() -> None:
    source, target = clouds(240, 1), clouds(240, 2)
    assert source.y is not None
    x, there = np.asarray(source.x), np.asarray(target.x)[np.arange(240) % 6 != 2]
    task = Task(None, torch.from_numpy(source.y), None, 6, torch.device("cpu"))  # type: ignore[arg-type]
    rows, scattered = np.arange(240), np.random.default_rng(0).permutation(source.y)

    def named(*readings: np.ndarray) -> list[int]:
        found: list[int] = Clarity().look_for_classes(x, readings, there, task, rows).tolist()
        return found

    assert named(source.y) == [2]
    assert named(scattered) == []
    assert named(source.y, scattered, source.y) == [2]
    assert named(source.y, scattered, scattered) == []
    assert named(np.full(240, -1), source.y, source.y) == [2], "who says nothing is not counted"
    assert task.memory["missing"].tolist() == [2]


def test_few_examples_do_not_make_a_class_missing() -> None:
    source, target = clouds(60, 1), clouds(60, 2).take(np.arange(0, 18))
    assert source.y is not None
    found = classes_there(np.asarray(source.x), source.y, 6, np.asarray(target.x))
    np.testing.assert_allclose(found.expected, 3)
    assert found.resembling.sum() >= 18
    assert not len(found.missing)


def test_nothing_is_missing_where_the_domains_are_too_far_apart_or_a_class_does_not_know_its_own() -> None:
    source, target = clouds(120, 1), clouds(120, 2)
    x, y = np.asarray(source.x), np.arange(120) % 6
    away = np.asarray(target.x)[y != 0]
    assert classes_there(x, y, 6, away).missing.tolist() == [0]
    far = away + 30 * np.random.default_rng(5).normal(size=32).astype(np.float32)
    assert not len(classes_there(x, y, 6, far).missing), "all of it lies in one direction"
    unlike = np.where(y[:, None] == 0, x[1 + np.arange(120) // 6 % 5], x)
    assert not len(classes_there(unlike, y, 6, away).missing), "what is called class 0 looks like the others"


def of_many_kinds(size: int, seed: int, shift: float) -> Domain:
    """One example in twelve is of the only kind that is rare; the common class has eleven kinds."""
    centres = np.random.default_rng(0).normal(size=(12, 128))
    rng = np.random.default_rng(seed)
    kind = np.arange(size) % 12
    x = centres[kind] + 2 * rng.normal(size=(size, 128)) + shift * np.random.default_rng(9).normal(size=128)
    return Domain.from_arrays(x.astype(np.float32), np.where(kind == 0, "rare", "common"))


def test_a_rare_class_of_which_far_too_much_is_found_is_named(tmp_path: Path) -> None:
    source, target = of_many_kinds(600, 0, 0.0), of_many_kinds(480, 1, 0.7)
    with pytest.warns(RobustDAWarning, match=r"of the target are taken for 'rare', of which the source has 8%"):
        model = Clarity(heads=1, head_steps=60, kinds="none").fit(source, target, out=tmp_path / "run", **QUIET)
    (found,) = model.summary_["doubts"]["crowded_classes"]
    assert found["class"] == "rare"
    assert found["source"] == pytest.approx(1 / 12, abs=0.01)
    assert found["target"] == pytest.approx((model.predict(target) == "rare").mean(), abs=0.01)
    assert any("compare --method rda" in line for line in told(read_run(tmp_path / "run")))


@settings(max_examples=100)
@given(st.lists(st.integers(0, 60), min_size=2, max_size=6).filter(any), st.integers(0, 9))
def test_classes_are_crowded_as_one_counts_by_hand(counts: list[int], seed: int) -> None:
    shares = np.random.default_rng(seed).dirichlet(np.ones(len(counts)))
    predicted = np.repeat(np.arange(len(counts)), counts)
    named = {int(row[0]): row[1:] for row in crowded(predicted, shares)}
    for k, count in enumerate(counts):
        there, here = count / sum(counts), shares[k]
        surprising = there > here + 0.15 and there > 1.5 * here
        by_chance = there <= here + 3 * math.sqrt(here * (1 - here) / sum(counts))
        assert (k in named) == (surprising and not by_chance)
        if k in named:
            np.testing.assert_allclose(named[k], [here, there])


def test_many_doubts_are_shortened_and_none_says_nothing() -> None:
    rules = torch.tensor([[k, (k + 1) % 6, 9, 0.4] for k in range(6)], dtype=torch.float64)
    found = doubts_of({"rules": rules, "missing": torch.arange(5)}, NAMES)
    first, second = in_words(found)
    assert "'bike', 'cup', 'desk' and 2 more" in first
    assert "40% of 'bike' are labelled 'cup'" in second
    assert "and 3 more" in second
    assert doubts_of({"rules": torch.zeros(0, 4), "missing": torch.zeros(0, dtype=torch.long)}, NAMES) == {}
    assert in_words({}) == []


@pytest.mark.parametrize(
    "found",
    [
        7,
        {"label_rules": [{"class": "a"}]},
        {"label_rules": [{"class": "a", "labelled": "b", "share": 7}]},
        {"missing_classes": 3},
        {"like_no_class": 3},
        {"like_no_class": "a"},
        {"crowded_classes": [{"class": "a", "source": 0.1}]},
        {"crowded_classes": [{"class": "a", "source": 0.1, "target": 3}]},
    ],
)
def test_what_is_no_doubt_in_a_file_is_refused(found: object) -> None:
    with pytest.raises(ValueError, match="for doubts"):
        check_doubts(found, "summary.json")

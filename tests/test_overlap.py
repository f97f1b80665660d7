"""Whether classes overlap, what is expected then, and who has a say."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import robustda
from robustda import Clarity, Domain
from robustda.errors import DataError, RobustDAWarning
from robustda.expect import expected_accuracy, opinions
from robustda.methods.opinions import Plain, TwoOpinions
from robustda.nets import Identity
from robustda.noise.vectors import unit
from robustda.overlap import PlainWords, plain_words
from robustda.theory import fit_head
from test_every_method import QUIET

K, WIDTH = 10, 128
BRIEF = {"width": 32, "head_steps": 40, "batch_size": 16, "backbone": "identity"}


def classes(size: int, *, near: bool, wrong: float = 0.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features, true and given labels; classes that are near each other differ in six numbers only, and overlap."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(K, WIDTH))
    if near:
        centres[:, 6:] = 0
    true = rng.integers(K, size=size)
    spread = np.where(np.arange(WIDTH) < 6, 1.0, 0.1) if near else 0.5
    x = (centres[true] + spread * rng.normal(size=(size, WIDTH))).astype(np.float32)
    given = np.where(rng.random(size) < wrong, (true + rng.integers(1, K, size)) % K, true)
    return x, true, given


@pytest.mark.parametrize("wrong", [0.0, 0.3])
def test_witnesses_are_about_as_sure_as_they_are_right(wrong: float) -> None:
    (x, _, given), (z, true, _) = classes(800, near=True, wrong=wrong), classes(600, near=True, seed=1)
    plain = plain_words(x, given, z, K)
    assert plain is not None
    right = (plain.away.argmax(axis=1) == true).mean()
    assert abs(right - 0.5) < 0.1
    off = 0.12 if wrong == 0 else 0.22  # overlap is partly taken for exchanged labels, and they are too sure then
    assert abs(plain.sure - right) < off
    assert abs(plain.likely(plain.away.argmax(axis=1)) - right) < off
    assert abs(plain.likely(true) - right) < off
    assert plain.overlap > 0.95
    np.testing.assert_allclose(plain.away.sum(axis=1), 1, atol=1e-5)


@pytest.mark.parametrize("wrong", [0.0, 0.2, 0.4])
def test_wrong_labels_are_not_taken_for_overlap(wrong: float) -> None:
    (x, _, given), (z, true, _) = classes(800, near=False, wrong=wrong), classes(600, near=False, seed=1)
    plain = plain_words(x, given, z, K)
    assert plain is not None
    assert plain.overlap == 0
    assert (plain.away.argmax(axis=1) == true).mean() > 0.95


def test_where_nearly_all_labels_are_wrong_nothing_is_said() -> None:
    x, _, given = classes(400, near=False, wrong=0.85)
    assert plain_words(x, given, x, K) is None


def test_too_little_says_nothing() -> None:
    x = np.random.default_rng(0).normal(size=(40, 8))
    for rows, n_classes, labels in (
        (8, 2, np.arange(8) % 2),
        (40, 2, np.zeros(40, dtype=int)),
        (40, 5, np.arange(40) % 5),
    ):
        assert plain_words(x[:rows], labels, x, n_classes) is None
    assert plain_words(x, np.arange(40) % 4, x) is not None


def test_classes_of_few_examples_are_not_taken_to_overlap() -> None:
    """Whoever is not shown an example has no other to know its class by, and is unsure for that."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(300, WIDTH))
    true = np.arange(900) % 300
    x = (centres[true] + 0.2 * rng.normal(size=(900, WIDTH))).astype(np.float32)
    assert plain_words(x, true, x[:100]) is None


def test_domains_that_were_described_differently_are_refused() -> None:
    x, _, given = classes(60, near=False)
    with pytest.raises(DataError, match="make both in the same way"):
        plain_words(x, given, x[:, 1:])
    with pytest.raises(DataError, match="60"):
        plain_words(x[1:], given, x)


def test_a_domain_that_lies_elsewhere_is_centred() -> None:
    (x, _, given), (z, true, _) = classes(600, near=False), classes(400, near=False, seed=1)
    aside = 4 * np.random.default_rng(5).normal(size=WIDTH)
    plain = plain_words(x, given, z + aside, K)
    assert plain is not None
    assert (plain.away.argmax(axis=1) == true).mean() > 0.9


def test_of_many_a_sample_is_asked_and_says_the_same() -> None:
    (x, _, given), (z, _, _) = classes(12_000, near=True), classes(200, near=True, seed=1)
    many, few = plain_words(x, given, z, K), plain_words(x[:4000], given[:4000], z, K)
    assert many is not None
    assert few is not None
    assert abs(many.sure - few.sure) < 0.05


def test_what_all_mistake_alike_is_expected_where_classes_overlap() -> None:
    (x, _, given), (z, true, _) = classes(600, near=True), classes(500, near=True, seed=1)
    views = opinions(x, given, z, K)
    model = views["concord"]
    right = (model.argmax(axis=1) == true).mean()
    without = expected_accuracy(model, views.values(), of_its_kind=False)
    value, low, high = expected_accuracy(model, views.values(), of_its_kind=False, plain=plain_words(x, given, z, K))
    assert without.value > right + 0.1
    assert abs(value - right) < 0.1
    assert low <= right <= high


def test_where_classes_are_apart_agreement_counts_as_before() -> None:
    (x, _, given), (z, _, _) = classes(600, near=False), classes(500, near=False, seed=1)
    views = opinions(x, given, z, K)
    plain = plain_words(x, given, z, K)
    assert expected_accuracy(views["linear"], views.values(), plain=plain) == expected_accuracy(
        views["linear"], views.values()
    )


def test_between_the_two_both_count_and_the_interval_is_wider() -> None:
    away = np.full((200, 2), 0.5)
    model = np.tile([0.9, 0.1], (200, 1))
    found = [
        expected_accuracy(model, [model, model], plain=PlainWords(sure, away), of_its_kind=False)
        for sure in (0.85, 0.75, 0.65)
    ]
    assert [each.value for each in found] == pytest.approx([1.0, 0.75, 0.5])
    widths = [each.high - each.low for each in found]
    assert widths[0] < widths[1] < widths[2]


def test_words_on_other_examples_are_refused() -> None:
    model = np.tile([0.9, 0.1], (20, 1))
    with pytest.raises(DataError, match="predict the same ones"):
        expected_accuracy(model, [model, model], plain=PlainWords(0.5, np.full((19, 2), 0.5)))


def test_a_plain_classifier_is_the_mean_of_those_by_each_reading() -> None:
    (x, _, given), (z, _, _) = classes(300, near=False, wrong=0.2), classes(200, near=False, seed=1)
    x, z = unit(x), unit(z)
    other = np.where(np.arange(300) % 3 == 0, -1, given)
    plain = Plain(WIDTH, K)
    assert torch.equal(plain(torch.from_numpy(z)), torch.zeros(200, K))
    plain.settle(x, torch.from_numpy(np.stack([given, other])), z, 1.5, seed=0)
    here, there = unit(x - x.mean(axis=0)), unit(z - z.mean(axis=0))
    scores = [fit_head(here[codes >= 0], codes[codes >= 0], K).scores(there) for codes in (given, other)]
    wanted = 1.5 * torch.log_softmax(torch.from_numpy(np.mean(scores, axis=0)), dim=1)
    torch.testing.assert_close(plain(torch.from_numpy(z)), wanted, rtol=1e-3, atol=1e-3)


def fitted(*, near: bool, plain: float, out: Path | None = None) -> tuple[Clarity, Domain, np.ndarray]:
    (x, _, given), (z, true, _) = classes(400, near=near, wrong=0.2), classes(300, near=near, seed=1)
    source, target = Domain.from_arrays(x, given), Domain.from_arrays(z, true)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobustDAWarning)  # that little can be right
        method = Clarity(plain=plain, **BRIEF).fit(source, target, out=out, **QUIET)
    return method, target, true


def test_where_classes_are_apart_a_plain_classifier_has_no_say() -> None:
    (heard, target, _), (not_asked, _, _) = (fitted(near=False, plain=say) for say in (2.0, 0.0))
    assert isinstance(heard.network_, TwoOpinions)
    assert heard.network_.plain is not None
    assert float(heard.network_.plain.say) == 0
    np.testing.assert_array_equal(heard.predict_proba(target), not_asked.predict_proba(target))


def test_where_classes_overlap_it_has_and_less_is_expected(tmp_path: Path) -> None:
    (heard, target, true), (not_asked, _, _) = (
        fitted(near=True, plain=2.0, out=tmp_path / "run"),
        fitted(near=True, plain=0.0),
    )
    assert isinstance(heard.network_, TwoOpinions)
    assert heard.network_.plain is not None
    assert float(heard.network_.plain.say) == pytest.approx(2)
    assert not np.array_equal(heard.predict_proba(target), not_asked.predict_proba(target))
    for method in (heard, not_asked):
        expected = method.summary_["expected_accuracy"]
        right = (method.predict_proba(target).argmax(axis=1) == true).mean()
        assert expected["low"] <= right <= expected["high"]
        assert abs(expected["value"] - right) < 0.15
    again = robustda.load(tmp_path / "run", device="cpu")
    np.testing.assert_allclose(again.predict_proba(target), heard.predict_proba(target), atol=1e-6)


def test_where_little_can_be_right_for_that_it_is_said() -> None:
    (x, _, given), (z, _, _) = (classes(400, near=True), classes(300, near=True, seed=1))
    rng = np.random.default_rng(2)
    for some in (x, z):
        some[:, :6] += rng.normal(size=(len(some), 6))  # nearer still
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        Clarity(**BRIEF).fit(Domain.from_arrays(x, given), Domain.from_arrays(z), **QUIET)
    poor = [str(warning.message) for warning in said if "should be right" in str(warning.message)]
    assert len(poor) == 1
    assert "by these features the classes overlap, in the source as well; try" in poor[0]


def test_a_model_from_before_it_had_a_say_can_be_read() -> None:
    network = TwoOpinions(Identity(4), 3, 8, 2)
    network.plain = Plain(4, 3)
    state = {name: tensor for name, tensor in network.state_dict().items() if not name.startswith("plain.")}
    network.plain.say.fill_(2)
    network.load_state_dict(state)
    assert float(network.plain.say) == 0

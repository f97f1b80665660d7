"""The terms of section 2.2, where the right answer is known."""

from __future__ import annotations

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from robustda.data.catalog import office31_features
from robustda.errors import ConfigError, DataError
from robustda.noise.vectors import unit
from robustda.theory import (
    Bound,
    LinearHead,
    divergence,
    fit_head,
    margin_discrepancy,
    margin_losses,
    measure_terms,
    proxy_discrepancy,
    rademacher,
    source_risk,
)

CENTRES = np.random.default_rng(7).normal(size=(4, 20)) * 2


def cloud(seed: int, size: int = 500, shift: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    y = np.arange(size) % 4
    x = CENTRES[y] + np.random.default_rng(seed).normal(size=(size, 20)) + shift
    return x.astype(np.float32), y


def test_the_same_distribution_has_no_discrepancy():
    (x, y), (z, _) = cloud(0), cloud(1)
    found = measure_terms(x, y, z)
    assert found.discrepancy.value < 0.05
    assert found.discrepancy.fitted > 0.15  # the optimum on the sample itself would have claimed so much
    assert found.divergence.value < 0.25
    assert found.error.value < 0.02
    assert found.to_proxy.value == 0
    assert found.from_proxy == found.discrepancy


def test_a_shift_that_separates_the_domains_is_near_the_maximum():
    (x, y), (z, _) = cloud(0), cloud(1)
    beside = 6 * np.ones((len(x), 1), dtype=np.float32)
    found = measure_terms(np.hstack([x, beside]), y, np.hstack([z, -beside]))
    # An f' that calls the whole target one class differs from f on all but that class: on 3/4 here.
    assert 0.6 < found.discrepancy.value <= 1
    assert found.divergence.value > 1.9
    low, high = found.discrepancy.interval
    assert low < found.discrepancy.value < high
    assert found.at_stake == pytest.approx(found.error.value + found.discrepancy.value)


def test_the_discrepancy_grows_with_the_shift():
    x, y = cloud(0)
    found = [measure_terms(x, y, cloud(1, shift=shift)[0]) for shift in (0.0, 0.4, 1.2)]
    assert np.all(np.diff([terms.discrepancy.value for terms in found]) > 0.1)
    assert np.all(np.diff([terms.divergence.value for terms in found]) > 0.1)


def test_corrupted_features_enlarge_risk_divergence_and_the_way_to_the_proxy():
    (x, y), (z, _) = cloud(0, shift=0.2), cloud(1)
    rng = np.random.default_rng(2)
    harm, order = rng.normal(size=x.shape) * 2 + 6 * np.sign(rng.normal(size=20)), rng.permutation(len(x))
    found = []
    for share in (0.0, 0.25, 0.5, 0.75):
        hit = np.isin(np.arange(len(x)), order[: int(share * len(x))])
        found.append(measure_terms(x + harm * hit[:, None], y, z, proxy=~hit))
    assert np.all(np.diff([terms.divergence.value for terms in found]) > 0.05)
    assert np.all(np.diff([terms.error.value for terms in found]) > 0)
    to_proxy = [terms.to_proxy.value for terms in found]
    assert to_proxy[0] == 0
    assert to_proxy[1] < to_proxy[2] < to_proxy[3]
    assert all(terms.proxy_total == terms.to_proxy.value + terms.from_proxy.value for terms in found)


def test_the_proxy_is_what_is_near_the_target():
    (x, y), (z, _) = cloud(0), cloud(1)
    hit = np.arange(len(x)) // 4 % 2 == 0
    moved = unit(x + 3 * hit[:, None])
    head = fit_head(moved, y, 4)
    whole = margin_discrepancy(head, moved, unit(z))
    _, near = proxy_discrepancy(head, moved, ~hit, unit(z))
    _, far = proxy_discrepancy(head, moved, hit, unit(z))
    assert near.value < 0.1 < far.value
    assert whole.value <= far.value + 0.05


def test_risk_is_that_of_unseen_examples():
    rng = np.random.default_rng(0)
    x, y = unit(rng.normal(size=(300, 100))), rng.integers(0, 3, 300)
    error, risk = source_risk(x, y, 3)
    assert error.interval[0] < 2 / 3 < error.interval[1] + 0.05  # labels by chance
    assert error.fitted < 0.3
    assert error.value <= risk.value + 1e-9  # Φ is never below the share of mistakes


def test_heads_stay_within_the_norm():
    x, y = cloud(0)
    for norm in (0.5, 4.0):
        head = fit_head(unit(x), y, 4, norm=norm)
        lengths = np.linalg.norm(head.weights, axis=1)
        assert lengths.max() <= norm * (1 + 1e-5)
    assert (head.predict(unit(x)) == y).mean() > 0.98


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 10_000), st.floats(0.1, 5), st.floats(0.1, 10))
def test_margin_losses_by_the_letter(seed, margin, scale):
    rng = np.random.default_rng(seed)
    scores, labels = (scale * rng.normal(size=(9, 4))).astype(np.float32), rng.integers(0, 4, 9)
    for found, row, label in zip(margin_losses(scores, labels, margin), scores.astype(float), labels, strict=True):
        rho = 0.5 * (row[label] - max(row[k] for k in range(4) if k != label))
        assert found == pytest.approx(0 if rho >= margin else 1 if rho <= 0 else 1 - rho / margin, abs=1e-6)
        # Only the ratio of scores and margin counts.
    np.testing.assert_allclose(margin_losses(2 * scores, labels, 2 * margin), margin_losses(scores, labels, margin))


def test_complexity_of_linear_heads_is_the_known_supremum():
    rng = np.random.default_rng(0)
    x, classes = unit(rng.normal(size=(6, 3))), np.array([0, 0, 1, 1, 1, 2])
    signs = np.array(np.meshgrid(*[[-1, 1]] * 6)).reshape(6, -1).T
    exact = np.mean([sum(np.linalg.norm(sign[classes == k] @ x[classes == k]) for k in range(3)) for sign in signs])
    assert rademacher(x, classes, 3, norm=2.0, draws=4000) == pytest.approx(2 * exact / 6, rel=0.03)
    # No head of that norm does better on a draw than the closed form says.
    sign = signs[11]
    heads = rng.normal(size=(2000, 3, 3))
    heads *= 2 / np.linalg.norm(heads, axis=2, keepdims=True)
    best = max(float((np.einsum("kd,id->ik", head, x)[np.arange(6), classes] * sign).mean()) for head in heads)
    closed = 2 / 6 * sum(np.linalg.norm(sign[classes == k] @ x[classes == k]) for k in range(3))
    assert 0.8 * closed < best <= closed + 1e-9


@pytest.mark.parametrize("hidden", [0, 16])
def test_complexity_falls_with_the_root_of_the_size(hidden):
    rng = np.random.default_rng(0)
    x, classes = unit(rng.normal(size=(1600, 8))), rng.integers(0, 3, 1600)
    small, large = (rademacher(x[:size], classes[:size], 3, hidden=hidden, draws=40) for size in (100, 1600))
    assert small / large == pytest.approx(4, rel=0.25)
    assert large <= 10 * math.sqrt(3 / 1600) * 1.01  # Λ·√(K/m), by Jensen


def test_hidden_units_follow_coins_that_a_line_cannot():
    line = np.linspace(-1, 1, 40, dtype=np.float32)
    x, classes = unit(np.stack([line, np.ones(40, dtype=np.float32)], axis=1)), np.zeros(40, dtype=np.int64)
    linear = rademacher(x, classes, 1, draws=30)
    curved = rademacher(x, classes, 1, draws=30, hidden=64, steps=150) * math.sqrt(
        2
    )  # rectified units halve the square
    assert curved > 0.9 * linear


@settings(deadline=None, max_examples=50)
@given(
    st.tuples(*[st.integers(10, 10_000)] * 3),
    st.tuples(*[st.floats(0.001, 3)] * 3),
    st.integers(2, 100),
    st.floats(0.1, 5),
)
def test_the_bound_is_theorem_3_1(sizes, complexities, classes, margin):
    bound = Bound(sizes, complexities, classes, margin, delta=0.1)
    (m, u, n), (a, b, c), root = sizes, complexities, math.log(2 / 0.1) / 2
    expected = (
        2 * classes / margin * (a + 2 * b + c) + math.sqrt(root / m) + 2 * math.sqrt(root / u) + math.sqrt(root / n)
    )
    assert bound.total == pytest.approx(expected)
    for factor in (2, 4, 10):
        assert bound.grown(factor).total == pytest.approx(expected / math.sqrt(factor))
    assert bound.grown(1, 4).chance_terms[:2] == bound.chance_terms[:2]
    assert bound.grown(1, 4).chance_terms[2] == pytest.approx(bound.chance_terms[2] / 2)


def test_it_says_which_domain_lacks_data():
    assert Bound((1000, 1000, 50), (0.1, 0.1, 0.5), 3).best_to_grow == "target"
    assert Bound((100, 80, 5000), (0.3, 0.3, 0.05), 3).best_to_grow == "source"


def test_each_term_has_its_sentence():
    (x, y), (z, _) = cloud(0, 200), cloud(1, 160, shift=1.0)
    said = measure_terms(x, y, z, proxy=np.arange(200) % 5 > 0).sentences()
    assert set(said) == {"risk", "discrepancy", "proxy", "divergence", "bound"}
    assert "take 50\N{NO-BREAK SPACE}% off" in said["bound"]
    assert all(sentence.endswith(".") for sentence in said.values())


def test_many_examples_are_sampled():
    (x, y), (z, _) = cloud(0, 4300), cloud(1, 60)
    assert measure_terms(x, y, z).bound.sizes == (4000, 4000, 60)


def test_the_same_seed_gives_the_same_numbers():
    (x, y), (z, _) = cloud(0, 200), cloud(1, 200, shift=0.5)
    first, second = (measure_terms(x, y, z, proxy=y > 0, seed=3) for _ in range(2))
    assert (first.discrepancy, first.to_proxy, first.bound) == (second.discrepancy, second.to_proxy, second.bound)


@pytest.mark.parametrize(
    ("changed", "advice"),
    [
        ({"target": np.ones((5, 3))}, "20 features and the target 3"),
        ({"target": np.full((5, 20), np.nan)}, "NaN"),
        ({"labels": np.zeros(40)}, "fewer than two classes"),
        ({"trusted": np.zeros(40, dtype=bool)}, "fewer than two classes"),
        ({"proxy": np.zeros(40, dtype=bool)}, "no example stands for the proxy"),
        ({"proxy": np.zeros(39, dtype=bool)}, "give 40 truth values"),
    ],
)
def test_bad_input_is_one_line(changed, advice):
    x, y = cloud(0, 40)
    call = {"source": x, "labels": y, "target": x, **changed}
    with pytest.raises(DataError, match=advice) as error:
        measure_terms(**call)
    assert "\n" not in str(error.value)


def test_limits_that_mean_nothing():
    x, y = cloud(0, 40)
    with pytest.raises(ConfigError, match="above 0"):
        measure_terms(x, y, x, norm=0)
    with pytest.raises(ConfigError, match="above 0"):
        margin_discrepancy(LinearHead(np.zeros((4, 20), dtype=np.float32)), x, x, margin=-1)
    with pytest.raises(ConfigError, match="1 or more"):
        rademacher(x, y, 4, draws=0)
    with pytest.raises(ConfigError, match=r"below \.5"):
        Bound((1, 1, 0), (1, 1, 1), 2)


def test_tiny_domains_have_an_answer():
    x, y = cloud(0, 8)
    found = measure_terms(x, y, x[:2])
    assert 0 <= found.discrepancy.value <= 1
    assert math.isfinite(found.bound.total)
    assert 0 <= divergence(unit(x), unit(x[:1])).value <= 2


@pytest.mark.skipif("ROBUSTDA_DATA" not in os.environ, reason="ROBUSTDA_DATA does not name the folder with Office-31")
def test_office31_domains_in_the_order_of_their_difficulty():
    dslr, webcam, amazon = (office31_features(None, name) for name in ("dslr", "webcam", "amazon"))
    near = measure_terms(dslr.x, dslr.y, webcam.x, n_classes=31)
    far = measure_terms(dslr.x, dslr.y, amazon.x, n_classes=31)
    assert near.discrepancy.value + 0.1 < far.discrepancy.value
    # The proxy A-distance does not tell them apart: both are near 2.
    assert min(near.divergence.value, far.divergence.value) > 1.9

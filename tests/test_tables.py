"""Rows of a table: what the description of them is, that units do not matter, and that models of them last."""

from __future__ import annotations

import pickle
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from robustda import Clarity, ClarityClassifier, Domain, RobustDAWarning, SourceOnly, audit, load
from robustda.columns import Rows, Table, look_at_columns
from robustda.methods import create_method
from robustda.nets import Identity
from test_every_method import QUIET


def rings(seed: int, size: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """Classes that differ in nothing but their distance from a middle that is far from zero, in odd units."""
    rng = np.random.default_rng(seed)
    angle, label = 2 * np.pi * rng.random(size), rng.integers(0, 3, size)
    radius = 1 + label + 0.1 * rng.normal(size=size)
    x = radius[:, None] * np.column_stack([np.cos(angle), np.sin(angle)])
    return (np.array([1000.0, 0.01]) * x + np.array([5000.0, 1.0])).astype(np.float32), label


def some_wrong(labels: np.ndarray) -> np.ndarray:
    rng = np.random.default_rng(5)
    wrong = rng.random(len(labels)) < 0.3
    return np.where(wrong, (labels + rng.integers(1, 3, len(labels))) % 3, labels)


def test_products_are_a_kernel_of_the_distance() -> None:
    rng = np.random.default_rng(0)
    x, z = rng.normal(3, 2, (400, 5)), rng.normal(2, 3, (100, 5))
    table = Table.of(x, z)
    both = np.concatenate([x, z])
    mean = (x.mean(axis=0) + z.mean(axis=0)) / 2
    spread = np.sqrt((((x - mean) ** 2).mean(axis=0) + ((z - mean) ** 2).mean(axis=0)) / 2)
    standard = (both - mean) / spread
    distance = np.linalg.norm(standard[:, None] - standard[None], axis=2)
    usual = np.median(distance[np.triu_indices(len(both), 1)])
    kernels = [np.exp(-((distance / (reach * usual)) ** 2) / 2) for reach in (0.5, 1.0)]
    described = table(torch.from_numpy(both).float()).double().numpy()
    products = described @ described.T / (described.shape[1] / 2)
    np.testing.assert_allclose(np.diag(products), 1, atol=1e-5)
    assert np.abs(products - np.mean(kernels, axis=0)).mean() < 0.05


def test_each_domain_counts_half() -> None:
    x = np.zeros((1000, 1), dtype=np.float32)
    found = look_at_columns(x, x[:10] + 2)
    assert found["middle"].item() == 1
    assert found["scale"].item() == 1


def test_columns_that_say_nothing() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(50, 3)).astype(np.float32)
    x[:, 1] = 16_777_217.3  # never changes, but for rounding
    table = Table.of(x, x)
    assert table.scale[1] == 0
    assert table(torch.from_numpy(x)).isfinite().all()
    same = np.ones((20, 3), dtype=np.float32)
    assert Table.of(same, same)(torch.from_numpy(same)).isfinite().all()


def test_a_large_zero_hides_no_column() -> None:
    """Seconds since 1970, over a quarter of an hour: float32 tells some of them apart."""
    x = np.array([[1.7e9 + step] for step in range(0, 1024, 128)], dtype=np.float32)
    assert len(np.unique(x)) > 4
    assert Table.of(x, x).scale.item() > 0


def test_far_out_is_no_further_than_out() -> None:
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    table = Table.of(x, x)
    out, far = (table(torch.tensor([[value, 0.0]])) for value in (1e2, 1e30))
    assert torch.equal(out, far)


def test_low_precision_does_not_touch_the_angles() -> None:
    x = torch.from_numpy(np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32))
    table = Table.of(x.numpy(), x.numpy())
    with torch.autocast("cpu", torch.bfloat16):
        low = table(x)
    assert low.dtype == torch.float32
    torch.testing.assert_close(low, table(x), rtol=0, atol=0)


def test_rows_are_made_when_asked_for() -> None:
    x = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    table = Table.of(x, x)
    rows = Rows(table, x)
    every = table(torch.from_numpy(x)).numpy()
    assert (len(rows), rows.shape) == (30, every.shape)
    np.testing.assert_array_equal(np.asarray(rows), every)
    np.testing.assert_allclose(rows[np.array([3, 17])], every[[3, 17]], atol=1e-6)
    assert np.asarray(rows, dtype=np.float64).dtype == np.float64


@pytest.mark.parametrize(("width", "kind"), [(1, Table), (100, Table), (101, Identity), (2048, Identity)])
def test_short_vectors_are_rows_of_a_table(width: int, kind: type) -> None:
    assert isinstance(Clarity().make_backbone((width,)), kind)


@pytest.mark.parametrize("name", ["clarity", "concord", "rda"])
def test_what_no_angle_tells_apart(name: str) -> None:
    x, y = rings(0)
    z, truth = rings(1)
    source, target = Domain.from_arrays(x, some_wrong(y)), Domain.from_arrays(z, truth)
    right = {}
    for backbone in ("auto", "identity"):
        method = create_method(name, backbone=backbone, steps=500).fit(source, target, **QUIET)
        right[backbone] = method.summary_["target_accuracy"]
    assert right["auto"] > 0.9
    assert right["identity"] < 0.6


def test_units_do_not_matter() -> None:
    x, z = rings(0)[0], rings(1)[0]
    units, zeros = np.array([1e-4, 1e5], dtype=np.float32), np.array([3.0, -1e5], dtype=np.float32)
    one, two = Table.of(x, z), Table.of(units * x + zeros, units * z + zeros)
    torch.testing.assert_close(one(torch.from_numpy(z)), two(torch.from_numpy(units * z + zeros)), rtol=0.02, atol=0.02)


def test_the_audit_sees_rows_as_a_fit_does() -> None:
    x, y = rings(0)
    given = some_wrong(y)
    found = audit(Domain.from_arrays(x, given))
    flagged = found.evidence.issues
    assert (given != y)[flagged].mean() > 0.9
    assert flagged[given != y].mean() > 0.9
    assert (found.duplicates.group >= 0).sum() == 0
    assert found.described_by == "rows of a table"
    copies = audit(Domain.from_arrays(np.concatenate([x, x[:3]]), np.concatenate([given, given[:3]])))
    assert (copies.duplicates.group >= 0).sum() == 6
    embedded = np.eye(3, 200, dtype=np.float32)[y] + 0.001 * np.random.default_rng(0).random((len(y), 200), np.float32)
    by_others = audit(Domain.from_arrays(x, given), features=embedded)  # which are no rows of a table
    assert by_others.described_by == "given features"
    assert (by_others.duplicates.group >= 0).all()
    plain = audit(Domain.from_arrays(x, given), backbone="identity")
    assert (given != y)[plain.evidence.issues].mean() < 0.6


def test_a_model_of_a_table_lasts(tmp_path: Path) -> None:
    x, y = rings(0)
    z, _ = rings(1)
    method = Clarity(head_steps=30).fit(
        Domain.from_arrays(x, some_wrong(y)), Domain.from_arrays(z), out=tmp_path / "run", **QUIET
    )
    before = method.predict_proba(z)
    np.testing.assert_array_equal(load(tmp_path / "run").predict_proba(z), before)
    estimator = ClarityClassifier(head_steps=30).fit(x, some_wrong(y), X_target=z)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(estimator)).predict_proba(z), estimator.predict_proba(z))


def test_a_method_that_goes_on_to_other_data_forgets_the_columns() -> None:
    x, y = rings(0)
    method = Clarity(head_steps=5).fit(Domain.from_arrays(x, y), Domain.from_arrays(x), **QUIET)
    assert set(method.columns_) == {"middle", "scale", "directions"}
    wide = np.random.default_rng(0).normal(size=(60, 120)).astype(np.float32)
    wide[::2] += 1
    method.fit(Domain.from_arrays(wide, np.arange(60) % 2), Domain.from_arrays(wide), **QUIET)
    assert method.columns_ == {}


def test_what_is_shared_between_runs_depends_on_the_columns(tmp_path: Path) -> None:
    """RDA's filter does not see the target, but by the scale of its columns it does."""
    x, y = rings(0)
    source = Domain.from_arrays(x, some_wrong(y))
    found = []
    for number in (1, 2, 1):
        target = Domain.from_arrays(rings(1)[0] * number)
        create_method("rda", epochs=2, steps=4).fit(source, target, stages=tmp_path, **QUIET)
        found.append(len(list(tmp_path.glob("*.json"))))
    assert found == [1, 2, 2]


def test_a_wide_table_is_told_from_features():
    rng = np.random.default_rng(0)
    features = rng.normal(size=(60, 150)).astype(np.float32)
    table = features * np.where(np.arange(150) == 7, 1e4, 1).astype(np.float32)
    labels, few = np.arange(60) % 3, {"steps": 3, "width": 8, "batch_size": 8}
    quiet = {"device": "cpu", "tensorboard": False, "progress": False}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SourceOnly(**few).fit(Domain.from_arrays(features, labels), Domain.from_arrays(features), **quiet)
    with pytest.warns(RobustDAWarning, match="1 of the 150 columns have 100% of all variance.*backbone=table"):
        SourceOnly(**few).fit(Domain.from_arrays(table, labels), Domain.from_arrays(table), **quiet)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for backbone in ("table", "identity"):  # chosen: nothing to say
            model = SourceOnly(backbone=backbone, **few)
            model.fit(Domain.from_arrays(table, labels), Domain.from_arrays(table), **quiet)
            assert ("seen_as" in model.summary_) == (backbone == "table")

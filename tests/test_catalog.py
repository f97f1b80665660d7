"""The paper's data sets and tasks; and, where the data are at hand, Office-31 and the authors' draws."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from robustda.data.catalog import (
    BING_CALTECH,
    DATASETS,
    OFFICE_31,
    OFFICE_HOME,
    dataset,
    office31_draw,
    office31_features,
    office31_images,
    parse_task,
    tasks,
)
from robustda.errors import ConfigError, DataError

needs_data = pytest.mark.skipif(
    not os.environ.get("ROBUSTDA_DATA"), reason="set ROBUSTDA_DATA to the folder with Office-31 and its draws"
)


def test_data_sets() -> None:
    assert [d.n_classes for d in DATASETS] == [31, 65, 256]
    assert sum(d.n_images or 0 for d in OFFICE_31.domains) == 4110
    assert sum(d.n_images or 0 for d in OFFICE_HOME.domains) == 15_588
    assert dataset("office 31") is OFFICE_31
    assert dataset("BingCaltech") is BING_CALTECH
    with pytest.raises(ConfigError, match="Office-31, Office-Home, Bing-Caltech"):
        dataset("mnist")


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        ("A→W", ("amazon", "webcam")),
        ("a-w", ("amazon", "webcam")),
        ("amazon-webcam", ("amazon", "webcam")),
        ("dslr -> amazon", ("dslr", "amazon")),
        ("Rw→Ar", ("Real World", "Art")),
        ("real-world-clipart", ("Real World", "Clipart")),
        ("Art->Real_World", ("Art", "Real World")),
        ("B→C", ("bing", "caltech")),
    ],
)
def test_parse_task(task: str, expected: tuple[str, str]) -> None:
    assert parse_task(task) == expected


@pytest.mark.parametrize("task", ["", "A", "A→A", "A→Cl", "A→X", "A-W-D", "→W"])
def test_no_such_task(task: str) -> None:
    with pytest.raises(ConfigError, match="unknown task"):
        parse_task(task)


def test_tasks_in_the_papers_order() -> None:
    assert tasks("Office-31") == [
        ("amazon", "webcam"),
        ("webcam", "amazon"),
        ("amazon", "dslr"),
        ("dslr", "amazon"),
        ("webcam", "dslr"),
        ("dslr", "webcam"),
    ]
    assert len(tasks("Office-Home")) == 12
    assert tasks("Office-Home")[3] == ("Clipart", "Art")
    assert tasks("Bing-Caltech") == [("bing", "caltech")]


def test_missing_data_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROBUSTDA_DATA", raising=False)
    with pytest.raises(DataError, match="ROBUSTDA_DATA"):
        office31_features(None, "amazon")
    monkeypatch.setenv("ROBUSTDA_DATA", str(tmp_path))
    for missing in (
        lambda: office31_features(None, "amazon"),
        lambda: office31_images(None, "amazon"),
        lambda: office31_draw(None, "amazon", "label", 0.4),
    ):
        with pytest.raises(DataError, match="is missing") as error:
            missing()
        assert "\n" not in str(error.value)
    with pytest.raises(ConfigError, match="amazon, dslr or webcam"):
        office31_images(None, "caltech")


@needs_data
@pytest.mark.parametrize("entry", OFFICE_31.domains, ids=lambda e: e.name)
def test_office31_features_and_images_agree(entry: object) -> None:
    name, count = entry.name, entry.n_images  # type: ignore[attr-defined]
    features, pictures = office31_features(None, name), office31_images(None, name)
    assert features.x.shape == (count, 2048)
    assert features.x.dtype == np.float32
    assert len(features.classes) == len(pictures.classes) == 31
    assert sorted(features.ids) == sorted(pictures.ids)
    by_id = dict(zip(pictures.ids.tolist(), pictures.labels.tolist(), strict=True))
    assert [by_id[i] for i in features.ids.tolist()] == features.labels.tolist()


@needs_data
@pytest.mark.parametrize("kind", ["label", "feature", "mixed"])
@pytest.mark.parametrize("rate", [0.2, 0.4, 0.6, 0.8])
@pytest.mark.parametrize("name", ["amazon", "dslr", "webcam"])
def test_the_authors_draws_load_as_they_are(name: str, rate: float, kind: str, tmp_path: Path) -> None:
    record = office31_draw(None, name, kind, rate)
    share = rate / 2 if kind == "mixed" else rate
    bound = 4 * np.sqrt(share * (1 - share) / len(record))
    assert abs(record.wrong_labels.mean() - (0 if kind == "feature" else share)) < bound
    assert abs(record.corrupted_features.mean() - (0 if kind == "label" else share)) < bound
    features = office31_features(None, name)
    noisy = record.apply(features)
    order = {i: row for row, i in enumerate(record.ids.tolist())}
    rows = np.array([order[i] for i in features.ids.tolist()])
    np.testing.assert_array_equal(noisy.labels, record.given_labels[rows])
    restored = record.remember(features).restore(noisy)
    np.testing.assert_array_equal(restored.x, features.x)
    np.testing.assert_array_equal(restored.y, features.y)
    record.to_csv(tmp_path / "same.csv")
    source = Path(os.environ["ROBUSTDA_DATA"], "noise", "office31", f"{name}_{kind}_{rate}.csv")
    assert (tmp_path / "same.csv").read_text().split() == source.read_text().split()


@needs_data
@pytest.mark.parametrize(
    ("name", "wrong", "label_kept", "label_precision", "mixed_kept", "mixed_precision", "blurred_kept"),
    [
        ("amazon", 0.392, 0.515, 0.981, 0.714, 0.960, 0.40),
        ("dslr", 0.424, 0.486, 0.942, 0.691, 0.939, 0.33),
        ("webcam", 0.399, 0.501, 0.975, 0.701, 0.966, 0.29),
    ],
)
def test_the_authors_draws_match_the_reference(
    name: str,
    wrong: float,
    label_kept: float,
    label_precision: float,
    mixed_kept: float,
    mixed_precision: float,
    blurred_kept: float,
) -> None:
    label, mixed = (office31_draw(None, name, kind, 0.4) for kind in ("label", "mixed"))
    kept, kept_mixed = (record.extra["kept_by_authors"] == "1" for record in (label, mixed))
    assert label.wrong_labels.mean() == pytest.approx(wrong, abs=5e-4)
    assert kept.mean() == pytest.approx(label_kept, abs=5e-4)
    assert (~label.wrong_labels[kept]).mean() == pytest.approx(label_precision, abs=5e-4)
    assert kept_mixed.mean() == pytest.approx(mixed_kept, abs=5e-4)
    assert (~mixed.wrong_labels[kept_mixed]).mean() == pytest.approx(mixed_precision, abs=5e-4)
    blurred_and_right = mixed.corrupted_features & ~mixed.wrong_labels
    assert kept_mixed[blurred_and_right].mean() == pytest.approx(blurred_kept, abs=5e-3)


@needs_data
def test_a_draw_on_images_leaves_edits() -> None:
    pictures = office31_images(None, "dslr")
    record = office31_draw(None, "dslr", "mixed", 0.4)
    noisy = record.apply(pictures)
    assert len(noisy.x.edits) == record.corrupted_features.sum()
    restored = record.restore(noisy)
    assert restored.x == pictures.x
    np.testing.assert_array_equal(restored.y, pictures.y)

"""Noise: against brute force, binomial bounds, and its own undoing."""

from __future__ import annotations

import math
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from robustda.data.domain import Domain
from robustda.errors import ConfigError, DataError, RobustDAWarning
from robustda.noise import (
    BlurSaltPepper,
    NoiseRecord,
    check_transition,
    corrupt,
    corrupt_folder,
    corrupt_image,
    corrupt_labels,
    corrupt_vectors,
    restore_folder,
    transition_matrix,
)

rates = st.floats(0, 1)
seeds = st.integers(0, 2**32)


def vectors(m: int = 60, n_classes: int = 4, seed: int = 0) -> Domain:
    rng = np.random.default_rng(seed)
    names = np.array(["ant", "bee", "cat", "dog", "eel"])[:n_classes]
    y = rng.permutation(np.arange(m) % n_classes)
    return Domain.from_arrays(rng.normal(size=(m, 5)).astype(np.float32), names[y], classes=names)


def images(m: int = 24, side: int = 20) -> Domain:
    rng = np.random.default_rng(3)
    x = rng.integers(0, 256, (m, side, side, 3)).astype(np.uint8)
    return Domain.from_arrays(x, np.arange(m) % 3 * 10)


def same(a: Domain, b: Domain) -> bool:
    x_same = a.x == b.x if not isinstance(a.x, np.ndarray) else np.array_equal(a.x, b.x)
    y_same = (a.y is None and b.y is None) or np.array_equal(a.y, b.y)
    return bool(x_same and y_same and np.array_equal(a.ids, b.ids) and np.array_equal(a.classes, b.classes))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three classes, names that meet when files move, two formats, one nested file, one GIF."""
    rng = np.random.default_rng(0)
    for name in ("cup", "mug", "pen"):
        for i in range(8):
            ending = ".png" if i % 2 else ".jpg"
            path = tmp_path / "web" / name / ("old" if i == 7 else ".") / f"{i:02d}{ending}"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(0, 256, (30, 40, 3)).astype(np.uint8)).save(path)
        Image.fromarray(rng.integers(0, 256, (30, 40)).astype(np.uint8)).save(path.parents[1] / "moving.gif")
    return tmp_path / "web"


def contents(path: Path) -> dict[str, bytes]:
    return {p.relative_to(path).as_posix(): p.read_bytes() for p in path.rglob("*") if p.is_file()}


class TestTransition:
    @given(st.sampled_from(["symmetric", "uniform", "pair"]), st.integers(2, 12), rates)
    def test_equals_its_definition(self, kind: str, n_classes: int, rate: float) -> None:
        expected = [[0.0] * n_classes for _ in range(n_classes)]
        for i in range(n_classes):
            expected[i][i] += 1 - rate
            for j in range(n_classes):
                if kind == "uniform":
                    expected[i][j] += rate / n_classes
                elif kind == "symmetric" and i != j:
                    expected[i][j] += rate / (n_classes - 1)
                elif kind == "pair" and j == (i + 1) % n_classes:
                    expected[i][j] += rate
        matrix = transition_matrix(kind, n_classes, rate)
        np.testing.assert_allclose(matrix, expected, atol=1e-12)
        np.testing.assert_array_equal(check_transition(matrix, n_classes), matrix)

    @pytest.mark.parametrize(
        ("matrix", "words"),
        [
            ([[1, 0]], "1×2"),
            ([[0.5, 0.4], [0, 1]], "row 0 .* sums to 0.9"),
            ([[1.5, -0.5], [0, 1]], "negative"),
            ([[np.nan, 1], [0, 1]], "NaN"),
            ([["a", "b"], ["c", "d"]], "no table of numbers"),
            (0.3, "single number"),
        ],
    )
    def test_other_matrices_are_refused_in_one_line(self, matrix: object, words: str) -> None:
        with pytest.raises(ConfigError, match=words) as error:
            check_transition(matrix, 2)  # type: ignore[arg-type]
        assert "\n" not in str(error.value)

    def test_bad_options(self) -> None:
        with pytest.raises(ConfigError, match="two classes"):
            transition_matrix("symmetric", 1, 0.2)
        with pytest.raises(ConfigError, match="share from 0 to 1"):
            transition_matrix("symmetric", 3, 1.2)
        with pytest.raises(ConfigError, match="symmetric, uniform, pair"):
            transition_matrix("blue", 3, 0.2)


class TestLabels:
    @given(st.lists(st.integers(-1, 3), max_size=60), seeds)
    def test_equals_inverse_cdf_by_hand(self, y: list[int], seed: int) -> None:
        matrix = np.random.default_rng(seed).dirichlet(np.full(4, 0.5), size=4)
        draws = np.random.default_rng(seed).random(len(y))
        expected = []
        for label, draw in zip(y, draws, strict=True):
            reached, j = 0.0, 0
            while label >= 0:
                reached += matrix[label, j]
                if draw < reached or j == 3:
                    break
                j += 1
            expected.append(j if label >= 0 else -1)
        np.testing.assert_array_equal(corrupt_labels(y, matrix, seed), expected)

    @pytest.mark.parametrize("kind", ["symmetric", "uniform", "pair"])
    def test_frequencies_are_the_matrix(self, kind: str) -> None:
        matrix = transition_matrix(kind, 5, 0.4)
        y = np.repeat(np.arange(5), 4000)
        noisy = corrupt_labels(y, matrix, 7)
        seen = np.array([np.bincount(noisy[y == k], minlength=5) for k in range(5)]) / 4000
        assert (np.abs(seen - matrix) <= 5 * np.sqrt(matrix * (1 - matrix) / 4000)).all()

    @given(st.integers(2, 9), seeds)
    def test_rate_one(self, n_classes: int, seed: int) -> None:
        y = np.arange(200) % n_classes
        assert (corrupt_labels(y, transition_matrix("symmetric", n_classes, 1), seed) != y).all()
        pair = corrupt_labels(y, transition_matrix("pair", n_classes, 1), seed)
        np.testing.assert_array_equal(pair, (y + 1) % n_classes)
        np.testing.assert_array_equal(corrupt_labels(y, np.eye(n_classes), seed), y)

    def test_rounding_never_reaches_a_class_of_probability_zero(self) -> None:
        matrix = np.full((12, 12), 0.0)
        matrix[:, :10] = 0.1 - 1e-7
        noisy = corrupt_labels(np.zeros(200_000, dtype=int), matrix, 0)
        assert noisy.max() == 9

    def test_codes_outside_the_classes(self) -> None:
        with pytest.raises(DataError, match="codes"):
            corrupt_labels([0, 2], np.eye(2), 0)


class TestImage:
    def test_blur_is_a_gaussian_reflected_at_the_border(self) -> None:
        rng = np.random.default_rng(0)
        image = rng.integers(0, 256, (23, 17, 3)).astype(np.uint8)
        sigma, reach = 2.0, 8
        weights = np.array([math.exp(-0.5 * (d / sigma) ** 2) for d in range(-reach, reach + 1)])
        kernel = np.outer(weights, weights) / weights.sum() ** 2
        padded = np.pad(image.astype(float), ((reach, reach), (reach, reach), (0, 0)), mode="symmetric")
        expected = np.zeros(image.shape)
        for i in range(23):
            for j in range(17):
                window = padded[i : i + 2 * reach + 1, j : j + 2 * reach + 1]
                expected[i, j] = (kernel[..., None] * window).sum(axis=(0, 1))
        assert np.abs(corrupt_image(image, 0, blur=sigma, share=0) - expected).max() <= 0.51

    @given(st.integers(3, 120), st.integers(3, 120), seeds)
    @settings(max_examples=25, deadline=None)
    def test_salt_and_pepper_fills_whole_cells(self, height: int, width: int, seed: int) -> None:
        image = np.full((height, width, 3), (90, 100, 110), dtype=np.uint8)
        noisy = corrupt_image(image, seed)
        masked = (noisy == noisy[..., :1]).all(axis=2)
        # Blurring a flat image leaves it flat, so whatever is not grey was not masked.
        assert (noisy[~masked] == (90, 100, 110)).all()
        rows, columns = max(3, height * 4 // 100), max(3, width * 4 // 100)
        for a in range(rows):
            for b in range(columns):
                inside = [
                    masked[i, j]
                    for i in range(height)
                    for j in range(width)
                    if i * rows // height == a and j * columns // width == b
                ]
                assert len(set(inside)) <= 1

    def test_values_follow_beta_one_half(self) -> None:
        noisy = corrupt_image(np.zeros((300, 300, 3), dtype=np.uint8), 1, share=1)
        assert (noisy == noisy[..., :1]).all()
        for level in (10, 60, 128, 200, 245):
            expected = 2 / math.pi * math.asin(math.sqrt((level + 0.5) / 255))
            assert abs((noisy[..., 0] <= level).mean() - expected) < 5 * 0.5 / 300
        half = corrupt_image(np.full((2000, 2000, 3), (9, 99, 9), dtype=np.uint8), 2, blur=0)
        share = 1 - (half == (9, 99, 9)).all(axis=2).mean()
        assert abs(share - 0.5) < 5 * 0.5 / 80

    def test_edit(self) -> None:
        image = np.random.default_rng(0).integers(0, 256, (40, 50, 3)).astype(np.uint8)
        edit = BlurSaltPepper.of(3, "mug/1.jpg")
        assert np.array_equal(edit(image), pickle.loads(pickle.dumps(edit))(image))
        assert edit(image).shape == image.shape
        others = [BlurSaltPepper.of(3, "mug/2.jpg"), BlurSaltPepper.of(4, "mug/1.jpg")]
        others.append(BlurSaltPepper.of(3, "mug/1.jpg", 7.5))
        assert len({e.key for e in [edit, *others]}) == 4
        assert not any(np.array_equal(edit(image), other(image)) for other in others)

    def test_other_arrays_are_refused(self) -> None:
        with pytest.raises(DataError, match="uint8"):
            corrupt_image(np.zeros((4, 4, 3)), 0)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="blur"):
            corrupt_image(np.zeros((4, 4, 3), dtype=np.uint8), 0, blur=-1)


class TestVectors:
    @given(st.lists(st.integers(0, 39), unique=True, max_size=20), seeds)
    def test_only_the_chosen_rows_change(self, rows: list[int], seed: int) -> None:
        x = np.random.default_rng(1).normal(size=(40, 3)).astype(np.float32)
        x[:, 1] = 5
        before = x.copy()
        noisy = corrupt_vectors(x, rows, seed)
        np.testing.assert_array_equal(x, before)
        assert noisy.dtype == np.float32
        rest = np.setdiff1d(np.arange(40), rows)
        np.testing.assert_array_equal(noisy[rest], x[rest])
        np.testing.assert_array_equal(noisy[:, 1], x[:, 1])
        assert (noisy[rows][:, [0, 2]] != x[rows][:, [0, 2]]).all()
        mask = np.isin(np.arange(40), rows)
        np.testing.assert_array_equal(corrupt_vectors(x, mask, seed), corrupt_vectors(x, sorted(rows), seed))

    def test_noise_has_the_scale_of_each_feature(self) -> None:
        x = (np.random.default_rng(1).normal(size=(20_000, 130)) * np.arange(1, 131)).astype(np.float32)
        noise = corrupt_vectors(x, np.arange(20_000), 0, scale=2) - x
        np.testing.assert_allclose(noise.std(axis=0), 2 * x.std(axis=0), rtol=0.04)
        assert (np.abs(noise.mean(axis=0)) < 6 * 2 * x.std(axis=0) / math.sqrt(20_000)).all()


class TestCorrupt:
    @pytest.mark.parametrize("kind", ["label", "feature", "mixed"])
    @pytest.mark.parametrize("make", [vectors, images])
    @given(rate=rates, seed=seeds)
    @settings(max_examples=8, deadline=None)
    def test_the_record_inverts_exactly(self, make: object, kind: str, rate: float, seed: int) -> None:
        clean = make()  # type: ignore[operator]
        noisy, record = corrupt(clean, kind, rate, seed=seed)  # type: ignore[arg-type]
        assert same(record.restore(noisy), clean)
        assert same(clean, make())  # type: ignore[operator]
        assert same(noisy, corrupt(clean, kind, rate, seed=seed).domain)  # type: ignore[arg-type]
        np.testing.assert_array_equal(record.wrong_labels, noisy.y != clean.y)
        changed = (noisy.x != clean.x).reshape(len(clean), -1).any(axis=1)
        np.testing.assert_array_equal(record.corrupted_features, changed)
        np.testing.assert_array_equal(record.corrupted, changed | (noisy.y != clean.y))
        some = np.random.default_rng(seed).permutation(len(clean))[:7]
        assert same(record.restore(noisy.take(some)), clean.take(some))

    def test_shares_of_mixed_noise(self) -> None:
        record = corrupt(vectors(20_000), "mixed", 0.4, seed=1).record
        bound = 5 * math.sqrt(0.2 * 0.8 / 20_000)
        assert abs(record.wrong_labels.mean() - 0.2) < bound
        assert abs(record.corrupted_features.mean() - 0.2) < bound
        assert abs((record.wrong_labels & record.corrupted_features).mean() - 0.04) < bound

    def test_labels_and_features_draw_apart(self) -> None:
        clean = vectors(500)
        label, feature = (corrupt(clean, kind, 0.2, seed=5) for kind in ("label", "feature"))
        both = corrupt(clean, "mixed", 0.4, seed=5)
        np.testing.assert_array_equal(both.domain.y, label.domain.y)
        np.testing.assert_array_equal(both.domain.x, feature.domain.x)
        assert not np.array_equal(label.domain.y, corrupt(clean, "label", 0.2, seed=6).domain.y)

    def test_a_given_matrix_is_used_as_it_is(self) -> None:
        clean = vectors(3000)
        matrix = np.eye(4)
        matrix[0] = [0.1, 0.9, 0, 0]
        noisy, record = corrupt(clean, "mixed", 0.2, transition=matrix)
        moved = clean.y == 0
        assert abs((noisy.y[moved] == 1).mean() - 0.9) < 5 * 0.3 / math.sqrt(moved.sum())
        np.testing.assert_array_equal(noisy.y[~moved], clean.y[~moved])
        assert abs(record.corrupted_features.mean() - 0.1) < 5 * 0.3 / math.sqrt(3000)

    def test_examples_without_label_keep_none(self) -> None:
        clean = vectors(200)
        clean = clean.with_labels(np.where(np.arange(200) % 3, clean.y, -1))
        noisy, record = corrupt(clean, "label", 1.0)
        np.testing.assert_array_equal(noisy.y < 0, clean.y < 0)
        np.testing.assert_array_equal(record.wrong_labels, clean.y >= 0)
        assert same(record.restore(noisy), clean)
        bare = vectors().unlabelled()
        noisy, record = corrupt(bare, "feature", 0.5)
        assert noisy.y is None
        assert same(record.restore(noisy), bare)
        with pytest.raises(DataError, match="no labels to corrupt"):
            corrupt(bare, "mixed", 0.4)

    def test_image_files_get_edits_and_nothing_is_decoded(self, folder: Path, tmp_path: Path) -> None:
        clean = Domain.from_folder(folder)
        noisy, record = corrupt(clean, "mixed", 0.8, seed=2)
        assert sorted(noisy.x.edits) == np.flatnonzero(record.corrupted_features).tolist()
        assert noisy.x.paths == clean.x.paths
        assert same(record.restore(noisy), clean)
        assert same(record.restore(noisy.take(slice(3, 20))), clean.take(slice(3, 20)))
        row = next(iter(noisy.x.edits))
        pixels = noisy.decoded(40, cache_dir=tmp_path / "cache").x
        untouched = clean.decoded(40, cache_dir=tmp_path / "cache").x
        changed = (pixels != untouched).any(axis=(1, 2, 3))
        np.testing.assert_array_equal(changed, record.corrupted_features)
        with pytest.raises(DataError, match="already"):
            corrupt(noisy.take([row]), "feature", 1.0)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"kind": "sound"}, "label, feature or mixed"),
            ({"rate": -0.1}, "from 0 to 1"),
            ({"rate": float("nan")}, "from 0 to 1"),
            ({"seed": -1}, "seed"),
            ({"seed": 0.5}, "seed"),
            ({"blur": float("inf")}, "blur"),
            ({"scale": -1.0, "kind": "feature"}, "scale"),
            ({"transition": np.eye(3)}, "4×4"),
        ],
    )
    def test_bad_options(self, options: dict[str, object], words: str) -> None:
        given_options = {"kind": "label", "rate": 0.4} | options
        with pytest.raises(ConfigError, match=words):
            corrupt(vectors(), **given_options)  # type: ignore[arg-type]


names = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00\r"), max_size=8)


class TestRecord:
    @given(st.lists(st.tuples(names, names, names, st.booleans(), names), max_size=12, unique_by=lambda r: r[0]))
    @settings(deadline=None)
    def test_csv_round_trip(
        self, tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str, str, bool, str]]
    ) -> None:
        path = tmp_path_factory.getbasetemp() / "names.csv"
        columns = [list(column) for column in zip(*rows, strict=True)] or [[]] * 5
        record = NoiseRecord(*columns[:4], extra={"note": np.array(columns[4], dtype=str)})
        record.to_csv(path)
        again = NoiseRecord.from_csv(path)
        assert again.ids.tolist() == record.ids.tolist()
        assert again.labels.tolist() == record.labels.tolist()
        assert again.given_labels.tolist() == record.given_labels.tolist()
        assert again.corrupted_features.tolist() == record.corrupted_features.tolist()
        assert again.extra["note"].tolist() == record.extra["note"].tolist()

    @pytest.mark.parametrize("make", [vectors, images])
    @pytest.mark.parametrize("transition", ["pair", "matrix"])
    def test_saved_records_do_and_undo(self, make: object, transition: str, tmp_path: Path) -> None:
        clean = make()  # type: ignore[operator]
        matrix = np.roll(np.eye(len(clean.classes)), 1, axis=0)
        chosen = matrix if transition == "matrix" else transition
        noisy, record = corrupt(clean, "mixed", 0.6, seed=4, transition=chosen, blur=1.5, scale=0.5)
        record.save(tmp_path / "noise.csv")
        again = NoiseRecord.load(tmp_path / "noise.csv")
        assert same(again.apply(clean), noisy)
        assert same(again.restore(noisy), clean)
        assert (again.kind, again.rate, again.seed) == ("mixed", 0.6, 4)
        np.testing.assert_array_equal(again.transition, chosen)
        record.to_csv(tmp_path / "alone.csv")
        bare = NoiseRecord.load(tmp_path / "alone.csv")
        with pytest.raises(DataError, match="remember"):
            bare.restore(noisy)
        assert same(bare.remember(clean).restore(noisy), clean)

    def test_a_record_is_matched_by_id(self) -> None:
        clean = vectors(20)
        record = corrupt(clean, "label", 0.5).record
        shuffled = clean.take(np.random.default_rng(0).permutation(20)[:15])
        expected = dict(zip(record.ids.tolist(), record.given_labels.tolist(), strict=True))
        noisy = record.apply(shuffled)
        assert noisy.labels.tolist() == [expected[i] for i in shuffled.ids.tolist()]

    def test_another_domain_is_refused(self) -> None:
        clean = vectors(20)
        noisy, record = corrupt(clean, "label", 1.0)
        with pytest.raises(DataError, match="20 labels differ"):
            record.apply(noisy)
        with pytest.raises(DataError, match="20 labels differ"):
            record.restore(clean)
        with pytest.raises(DataError, match="4 examples are not in the noise record, 20 first"):
            record.apply(vectors(24))
        other = NoiseRecord(record.ids, record.labels, np.full(20, "unicorn"), record.corrupted_features)
        with pytest.raises(DataError, match="'unicorn' that is no class"):
            other.apply(clean)

    def test_a_strangers_file_beside_the_table(self, tmp_path: Path) -> None:
        corrupt(vectors(), "label", 0.4).record.save(tmp_path / "noise.csv")
        for text in ('{"colour": "red"}', "[1]", "{"):
            (tmp_path / "noise.json").write_text(text)
            with pytest.raises(DataError, match="not of this noise record"):
                NoiseRecord.load(tmp_path / "noise.csv")

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("", "no column 'file'"),
            ("file,label,blurred\na,b,0\n", "no column 'given_label'"),
            ("file,label,given_label,blurred\na,b,b\n", "row 2, has 3 fields"),
            ("file,label,given_label,blurred\na,b,b,maybe\n", "'maybe'"),
            ("file,label,given_label,blurred\na,b,b,0\na,b,c,0\n", "twice"),
        ],
    )
    def test_broken_tables(self, tmp_path: Path, text: str, words: str) -> None:
        (tmp_path / "noise.csv").write_text(text)
        with pytest.raises(DataError, match=words):
            NoiseRecord.load(tmp_path / "noise.csv")
        with pytest.raises(DataError, match="No such file"):
            NoiseRecord.load(tmp_path / "none.csv")


class TestFolder:
    def test_a_noisy_copy_and_back(self, folder: Path, tmp_path: Path) -> None:
        before = contents(folder)
        record = corrupt_folder(folder, tmp_path / "noisy", "mixed", 0.9, seed=1, blur=2.0)
        assert contents(folder) == before
        clean, noisy = Domain.from_folder(folder), Domain.from_folder(tmp_path / "noisy")
        assert sorted(noisy.ids) == sorted(record.ids)
        assert len(noisy) == len(clean) == 27
        expected = corrupt(clean, "mixed", 0.9, seed=1, blur=2.0).record
        np.testing.assert_array_equal(record.extra["original"], clean.ids)
        np.testing.assert_array_equal(record.given_labels, expected.given_labels)
        np.testing.assert_array_equal(record.corrupted_features, expected.corrupted_features)
        written = contents(tmp_path / "noisy")
        for i, file in enumerate(record.ids.tolist()):
            assert file.split("/")[0] == record.given_labels[i]
            original = record.extra["original"][i]
            assert (written[file] == before[original]) == (not record.corrupted_features[i])
            if record.corrupted_features[i] and not file.endswith(".jpg"):
                assert file.endswith(".png")
                image = np.asarray(Image.open(folder / original).convert("RGB"))
                edited = BlurSaltPepper.of(1, original, 2.0)(image)
                np.testing.assert_array_equal(np.asarray(Image.open(tmp_path / "noisy" / file)), edited)
        restore_folder(tmp_path / "noisy", folder, tmp_path / "again")
        assert contents(tmp_path / "again") == before

    def test_labels_alone_need_no_original(self, folder: Path, tmp_path: Path) -> None:
        record = corrupt_folder(folder, tmp_path / "deep" / "noisy", "label", 1.0, transition="pair")
        assert record.wrong_labels.all()
        restored = NoiseRecord.load(tmp_path / "deep" / "noisy" / "noise.csv").restore(
            Domain.from_folder(tmp_path / "deep" / "noisy")
        )
        truth = dict(zip(record.ids.tolist(), record.labels.tolist(), strict=True))
        assert restored.labels.tolist() == [truth[i] for i in restored.ids.tolist()]
        restore_folder(tmp_path / "deep" / "noisy", None, tmp_path / "again")
        assert contents(tmp_path / "again") == contents(folder)

    def test_blurred_files_need_the_original(self, folder: Path, tmp_path: Path) -> None:
        record = corrupt_folder(folder, tmp_path / "noisy", "feature", 0.5)
        with pytest.raises(DataError, match="give the original folder"):
            restore_folder(tmp_path / "noisy", None, tmp_path / "again")
        with pytest.raises(DataError, match="restore_folder"):
            record.restore(Domain.from_folder(tmp_path / "noisy"))

    def test_a_class_without_examples_stays_a_class(self, folder: Path, tmp_path: Path) -> None:
        into_one = np.array([[1.0, 0, 0]] * 3)
        corrupt_folder(folder, tmp_path / "noisy", "label", 0.0, transition=into_one)
        assert Domain.from_folder(tmp_path / "noisy").classes.tolist() == ["cup", "mug", "pen"]
        restore_folder(tmp_path / "noisy", None, tmp_path / "again")
        assert contents(tmp_path / "again") == contents(folder)

    def test_never_over_something_and_never_half(
        self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(DataError, match="not an empty folder"):
            corrupt_folder(folder, tmp_path, "label", 0.4)
        for inside in (folder, folder / "noisy"):
            with pytest.raises(DataError, match="inside"):
                corrupt_folder(folder, inside, "label", 0.4)

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("shutil.copyfile", full)
        with pytest.raises(DataError, match="No space left"):
            corrupt_folder(folder, tmp_path / "noisy", "label", 0.4)
        assert [p.name for p in tmp_path.iterdir()] == ["web"]
        monkeypatch.undo()
        (tmp_path / "noisy").mkdir()
        corrupt_folder(folder, tmp_path / "noisy", "label", 0.4)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["noisy", "web"]

    def test_unreadable_images_are_counted_and_copied(self, folder: Path, tmp_path: Path) -> None:
        (folder / "cup" / "broken.jpg").write_bytes(b"no image")
        with pytest.warns(RobustDAWarning, match="1 image of .* cannot be read"):
            record = corrupt_folder(folder, tmp_path / "noisy", "feature", 1.0)
        left = record.extra["original"][~record.corrupted_features]
        assert left.tolist() == ["cup/broken.jpg"]
        assert (tmp_path / "noisy" / "cup" / "broken.jpg").read_bytes() == b"no image"

    def test_a_record_that_points_outside_is_refused(self, folder: Path, tmp_path: Path) -> None:
        record = corrupt_folder(folder, tmp_path / "noisy", "label", 0.4)
        wild = record.extra["original"].astype(object)
        wild[0] = "../../elsewhere.jpg"
        evil = NoiseRecord(
            record.ids, record.labels, record.given_labels, record.corrupted_features, extra={"original": wild}
        )
        evil.to_csv(tmp_path / "noisy" / "noise.csv")
        with pytest.raises(DataError, match="outside"):
            restore_folder(tmp_path / "noisy", folder, tmp_path / "again")
        assert not os.path.lexists(tmp_path / "again")

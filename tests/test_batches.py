"""The order of the examples is a pure function of seed and step; inputs come by row number, ready for the network."""

from __future__ import annotations

import hashlib
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from robustda.data.batches import Inputs, Order, Stream, Views, derive_seed
from robustda.data.domain import Domain

CPU = torch.device("cpu")


@settings(deadline=None, max_examples=40)
@given(n_rows=st.integers(1, 70), batch_size=st.integers(1, 40), seed=st.integers(0, 1000))
def test_every_epoch_sees_every_row_once(n_rows, batch_size, seed) -> None:
    order = Order(torch.arange(n_rows), batch_size, CPU, seed)
    steps = max(20, 3 * n_rows // batch_size + 2)
    batches = [order.batch(step) for step in range(steps)]
    assert all(batch.shape == (batch_size,) for batch in batches)
    stream = torch.cat(batches)
    for start in range(0, len(stream) - n_rows + 1, n_rows):
        assert stream[start : start + n_rows].sort().values.tolist() == list(range(n_rows))
    unfinished = stream[len(stream) - len(stream) % n_rows :]
    assert len(unfinished.unique()) == len(unfinished)


@settings(deadline=None, max_examples=15)
@given(n_rows=st.integers(1, 100), batch_size=st.integers(1, 33), steps=st.lists(st.integers(0, 1200), min_size=1))
def test_any_batch_can_be_had_at_any_time(n_rows, batch_size, steps) -> None:
    rows = torch.arange(n_rows) * 3
    in_turn = Order(rows, batch_size, CPU, 7, "adapt")
    expected = [in_turn.batch(step) for step in range(max(steps) + 1)]
    jumping = Order(rows, batch_size, CPU, 7, "adapt")
    for step in steps:
        assert torch.equal(jumping.batch(step), expected[step])
        assert torch.equal(Order(rows, batch_size, CPU, 7, "adapt").batch(step), expected[step])


def test_the_stream_does_not_depend_on_how_it_is_cut() -> None:
    small, large = Order(torch.arange(50), 4, CPU, 1), Order(torch.arange(50), 12, CPU, 1)
    stream = torch.cat([small.batch(step) for step in range(300)])
    assert torch.equal(stream, torch.cat([large.batch(step) for step in range(100)]))


def test_other_seeds_phases_and_epochs_have_other_orders() -> None:
    def first(*seed: int | str, step: int = 0) -> list[int]:
        return Order(torch.arange(64), 64, CPU, *seed).batch(step).tolist()

    seen = [first(0, "source"), first(1, "source"), first(0, "target"), first(0), first(0, "source", step=1)]
    assert len({tuple(batch) for batch in seen}) == len(seen)


def test_only_the_given_rows_are_drawn_and_each_as_often_as_the_others() -> None:
    rows = torch.tensor([3, 5, 8, 13, 21, 34])
    order = Order(rows, 4, CPU, 0)
    counts = torch.cat([order.batch(step) for step in range(300)]).bincount()
    assert counts[rows].tolist() == [200] * 6
    assert counts.sum() == 1200


def test_a_single_row_fills_every_batch() -> None:
    order = Order(torch.tensor([9]), 5, CPU, 0)
    assert order.batch(0).tolist() == order.batch(777).tolist() == [9] * 5


def test_the_default_generator_is_left_alone() -> None:
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    Order(torch.arange(10), 3, CPU, 5).batch(0)
    assert torch.equal(torch.rand(3), expected)


def test_derived_seeds_are_the_same_for_ever() -> None:
    assert derive_seed(0, "adapt", "weights") == 2599990211426142215
    assert derive_seed(12345, "epoch", 3) == 9147618025833811054


@settings(deadline=None)
@given(parts=st.lists(st.integers(0, 10**9) | st.text(max_size=5), min_size=1, max_size=4))
def test_a_derived_seed_is_a_hash_of_its_parts_that_every_generator_takes(parts) -> None:
    seed = derive_seed(*parts)
    digest = hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest()
    assert seed == int.from_bytes(digest, "little") >> 1
    assert 0 <= seed < 2**63
    torch.Generator().manual_seed(seed)
    np.random.default_rng(seed)


def test_derived_seeds_tell_their_parts_apart() -> None:
    parts = [(0,), (1,), (0, 0), (0, 1), (1, 0), (10,), ("a", 1), ("a1",), ("a", "1", "")]
    assert len({derive_seed(*p) for p in parts}) == len(parts)


def test_inputs_of_vectors() -> None:
    x = np.random.default_rng(0).normal(size=(7, 4)).astype(np.float32)
    inputs = Inputs(Domain.from_arrays(x), CPU, augmentation="photo", crop=3)
    rows = torch.tensor([6, 0, 0, 2])
    assert len(inputs) == 7
    assert inputs.example_shape == (4,)
    assert inputs.resident
    for batch in (inputs.train(rows), inputs.test(rows)):
        assert batch.dtype == torch.float32
        assert np.array_equal(batch.numpy(), x[rows.numpy()])
    batches = list(inputs.in_order(3))
    assert [len(batch) for batch in batches] == [3, 3, 1]
    assert np.array_equal(torch.cat(batches).numpy(), x)


@pytest.mark.parametrize("crop", [None, 12])
def test_inputs_of_images_as_they_are(crop: int | None) -> None:
    x = pictures(5, 16)
    inputs = Inputs(Domain.from_arrays(x), CPU, crop=crop)
    side = crop or 16
    assert inputs.example_shape == (side, side, 3)
    edge = (16 - side) // 2
    expected = x[:, edge : edge + side, edge : edge + side].transpose(0, 3, 1, 2) / np.float32(255)
    rows = torch.tensor([4, 1])
    for batch in (inputs.train(rows), inputs.test(rows)):
        np.testing.assert_allclose(batch.numpy(), expected[rows.numpy()], rtol=1e-6)
    np.testing.assert_allclose(torch.cat(list(inputs.in_order(2))).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize(("augmentation", "crop"), [("photo", 12), ("shift", None)])
def test_only_training_augments_and_it_follows_the_seed(augmentation, crop) -> None:
    inputs = Inputs(Domain.from_arrays(pictures(6, 16)), CPU, augmentation=augmentation, crop=crop)
    rows = torch.arange(6)
    torch.manual_seed(1)
    first = inputs.train(rows)
    torch.manual_seed(1)
    assert torch.equal(inputs.train(rows), first)
    assert not torch.equal(inputs.train(rows), first)
    assert first.shape[1:] == (3, *inputs.example_shape[:2])
    assert torch.equal(inputs.test(rows), inputs.test(rows))
    assert not torch.equal(inputs.test(rows), first)


def test_read_only_arrays_are_taken_without_a_warning_and_never_written_to() -> None:
    x = pictures(3, 8)
    x.flags.writeable = False
    domain = Domain.from_arrays(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        inputs = Inputs(domain, CPU, augmentation="shift")
        inputs.train(torch.arange(3))
    assert np.array_equal(domain.x, x)


def test_image_files_must_be_decoded_first(tmp_path) -> None:
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        Image.fromarray(pictures(1, 8)[0]).save(tmp_path / name / "1.png")
    with pytest.raises(TypeError, match="decode the images first"):
        Inputs(Domain.from_folder(tmp_path), CPU)


def pictures(count: int, side: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (count, side, side, 3)).astype(np.uint8)


def test_views_of_a_batch_depend_on_its_number_alone() -> None:
    inputs = Inputs(Domain.from_arrays(pictures(6, 16)), CPU, augmentation="photo", crop=12)
    in_turn = Views(inputs, 4, CPU, 7, "adapt")
    expected = [in_turn.batch(step).clone() for step in range(200)]
    for step in (199, 64, 63, 0, 128):
        assert torch.equal(Views(inputs, 4, CPU, 7, "adapt").batch(step), expected[step])
    assert len({tuple(views.flatten().tolist()) for views in expected}) == 200
    assert not torch.equal(Views(inputs, 4, CPU, 8, "adapt").batch(0), expected[0])


def test_what_is_not_varied_has_no_views() -> None:
    inputs = Inputs(Domain.from_arrays(np.ones((3, 2), dtype=np.float32)), CPU)
    assert Views(inputs, 4, CPU, 0).batch(1).shape == (4, 0)


@pytest.mark.parametrize("x", [np.arange(40, dtype=np.float32).reshape(20, 2), None], ids=["vectors", "images"])
def test_a_stream_brings_the_batches_of_its_order_wherever_it_begins(x) -> None:
    domain = Domain.from_arrays(pictures(20, 8) if x is None else x)
    inputs = Inputs(domain, CPU, resident=False)
    assert not inputs.resident
    order = Order(torch.arange(20), 6, CPU, 3)
    stream = Stream(inputs, order, 6)
    place = stream.now
    for step in (*range(254, 260), 7, 7, 8):
        stream.load(step)
        assert stream.now is place
        assert np.array_equal(stream.now.numpy(), np.asarray(domain.x)[order.batch(step).numpy()])
    assert torch.equal(torch.cat(list(inputs.in_order(7))), torch.cat(list(Inputs(domain, CPU).in_order(7))))

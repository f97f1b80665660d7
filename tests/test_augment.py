"""Augmentation: the same crops as torchvision's, drawn from the same distribution, for a whole batch at once."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from torch import Tensor
from torchvision.transforms import InterpolationMode, RandomResizedCrop
from torchvision.transforms.v2.functional import resized_crop

from robustda.data.augment import box_views, centre_crop, crop_boxes, draw_views, resample, to_float


def test_bytes_become_floats_between_zero_and_one() -> None:
    images = torch.tensor([[[[0, 51, 255]] * 2] * 3], dtype=torch.uint8)
    floats = to_float(images)
    assert floats.shape == (1, 3, 3, 2)
    assert floats.dtype == torch.float32
    assert floats[0, :, 0, 0].tolist() == pytest.approx([0, 0.2, 1])


@settings(deadline=None, max_examples=40)
@given(data=st.data(), size=st.sampled_from([16, 24, 40, 64]))
def test_a_box_is_cut_as_torchvision_cuts_it(data, size) -> None:
    height, width = 64, 80
    images = smooth(3, height, width)
    boxes = []
    for _ in range(3):
        h, w = data.draw(st.integers(16, height)), data.draw(st.integers(16, width))
        boxes.append((data.draw(st.integers(0, height - h)), data.draw(st.integers(0, width - w)), h, w))
    got = cut_out(images, torch.tensor(boxes, dtype=torch.float32), torch.zeros(3, dtype=torch.bool), size)
    assert got.shape == (3, 3, size, size)
    for image, box, cut in zip(images, boxes, got, strict=True):
        expected = resized_crop(image, *box, [size, size], interpolation=InterpolationMode.BILINEAR, antialias=False)
        # torchvision repeats the crop's border where we look at the image beyond it: half a pixel, one at the most.
        assert float((cut - expected).abs().max()) < 0.05
        edge = math.ceil(size / min(box[2:]))
        inner = slice(edge, size - edge)
        torch.testing.assert_close(cut[:, inner, inner], expected[:, inner, inner], rtol=0, atol=2e-4)


def test_the_whole_image_at_its_own_size_is_itself() -> None:
    images = torch.rand(2, 3, 20, 20)
    boxes = torch.tensor([[0.0, 0.0, 20.0, 20.0]]).expand(2, 4)
    torch.testing.assert_close(cut_out(images, boxes, torch.tensor([False, False]), 20), images, rtol=0, atol=1e-5)


def test_a_flip_is_the_mirror_image_and_each_image_has_its_own() -> None:
    images = torch.rand(2, 3, 24, 30)
    boxes = torch.tensor([[2.0, 3.0, 16.0, 20.0], [5.0, 0.0, 10.0, 30.0]])
    plain = cut_out(images, boxes, torch.tensor([False, False]), 16)
    mixed = cut_out(images, boxes, torch.tensor([False, True]), 16)
    torch.testing.assert_close(mixed[0], plain[0])
    torch.testing.assert_close(mixed[1], plain[1].flip(-1), rtol=0, atol=1e-5)


@pytest.mark.parametrize(("height", "width"), [(256, 256), (64, 200), (300, 32), (50, 400), (6, 6)])
def test_boxes_are_distributed_as_torchvision_draws_them(height: int, width: int) -> None:
    count = 3000
    torch.manual_seed(0)
    ours = crop_boxes(count, height, width).double().numpy()
    image = torch.empty(3, height, width)
    theirs = np.array(
        [RandomResizedCrop.get_params(image, [0.08, 1.0], [3 / 4, 4 / 3]) for _ in range(count)], dtype=float
    )
    measures = {
        "share of the area": lambda b: b[:, 2] * b[:, 3] / (height * width),
        "ratio": lambda b: b[:, 3] / b[:, 2],
        # torchvision rounds down the place of the box that it takes for want of a better one.
        "top": lambda b: np.floor(b[:, 0]),
        "left": lambda b: np.floor(b[:, 1]),
    }
    for name, measure in measures.items():
        assert ks_2samp(measure(ours), measure(theirs)).pvalue > 1e-3, name


@settings(deadline=None, max_examples=60)
@given(height=st.integers(1, 300), width=st.integers(1, 300), seed=st.integers(0, 2**31))
def test_boxes_lie_inside_the_image_whatever_its_shape(height, width, seed) -> None:
    torch.manual_seed(seed)
    top, left, box_height, box_width = crop_boxes(200, height, width).unbind(1)
    assert bool((box_height >= 1).all() and (box_width >= 1).all())
    assert bool((top >= 0).all() and (left >= 0).all())
    assert bool((top + box_height <= height).all() and (left + box_width <= width).all())


def test_a_very_wide_image_gives_its_middle_at_the_allowed_ratio() -> None:
    boxes = crop_boxes(50, 3, 3000)
    assert boxes.unique(dim=0).tolist() == [[0, 1498, 3, 4]]


def test_photo_gives_a_batch_of_the_asked_size_with_about_half_mirrored() -> None:
    torch.manual_seed(0)
    ramp = torch.linspace(0, 1, 64).expand(400, 3, 64, 64)
    out = look(ramp, "photo", 48)
    assert out.shape == (400, 3, 48, 48)
    assert float(out.min()) >= 0
    assert float(out.max()) <= 1
    mirrored = (out[:, 0, 0, 0] > out[:, 0, 0, -1]).float().mean()
    assert float(mirrored) == pytest.approx(0.5, abs=0.1)
    assert len(out[:, 0, 0].unique(dim=0)) > 390


@pytest.mark.parametrize("augmentation", ["photo", "shift"])
def test_augmentation_follows_the_seed_and_leaves_its_input_alone(augmentation) -> None:
    images = torch.rand(5, 3, 24, 24)
    before = images.clone()
    torch.manual_seed(3)
    first = look(images, augmentation, 16)
    torch.manual_seed(3)
    assert torch.equal(look(images, augmentation, 16), first)
    assert not torch.equal(look(images, augmentation, 16), first)
    assert torch.equal(images, before)


def test_shift_moves_by_at_most_an_eighth_and_by_all_of_that() -> None:
    torch.manual_seed(0)
    side = 32
    place = torch.arange(side, dtype=torch.float32)
    images = torch.stack([place.expand(side, side), place[:, None].expand(side, side), torch.zeros(side, side)])
    out = look(images.expand(500, 3, side, side), "shift", side)
    assert out.shape == (500, 3, side, side)
    inner = slice(side // 4, -side // 4)
    moves = torch.stack([out[:, 0] - images[0], out[:, 1] - images[1]], dim=1)[:, :, inner, inner].flatten(2)
    assert float((moves - moves[:, :, :1]).abs().max()) < 1e-3  # the whole image moves as one
    moves = moves[:, :, 0]
    assert float(moves.abs().max()) <= side / 8 + 1e-3
    for axis in (0, 1):
        assert float(moves[:, axis].min()) < -0.95 * side / 8
        assert float(moves[:, axis].max()) > 0.95 * side / 8
    assert abs(float(torch.corrcoef(moves.T)[0, 1])) < 0.15
    assert float(out.min()) >= 0  # the border is repeated, nothing comes in from outside
    assert float(out[:, :2].max()) <= side - 1
    assert float(out[:, 2].abs().max()) == 0


@pytest.mark.parametrize(("height", "width", "size"), [(8, 8, 4), (9, 9, 4), (10, 7, 5), (6, 6, 6)])
def test_the_centre_crop_is_the_middle(height: int, width: int, size: int) -> None:
    images = torch.randint(0, 256, (2, height, width, 3), dtype=torch.uint8)
    top, left = (height - size) // 2, (width - size) // 2
    out = centre_crop(images, size)
    assert out.shape == (2, size, size, 3)
    assert torch.equal(out, images[:, top : top + size, left : left + size])


def test_views_follow_their_generator_and_leave_the_default_one_alone() -> None:
    state = torch.get_rng_state()
    first, again = (draw_views("photo", 9, 32, 40, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(torch.get_rng_state(), state)


def cut_out(images: Tensor, boxes: Tensor, flip: Tensor, size: int) -> Tensor:
    return resample(images, box_views(boxes, flip, *images.shape[2:]), size)


def look(images: Tensor, augmentation, size: int) -> Tensor:
    return resample(images, draw_views(augmentation, len(images), *images.shape[2:]), size)


def smooth(count: int, height: int, width: int) -> Tensor:
    """Waves of low frequency, different in every image and channel, between 0 and 1."""
    generator = torch.Generator().manual_seed(0)
    rows, columns = torch.arange(height)[:, None] / 64, torch.arange(width)[None] / 64
    a, b, c = torch.rand(3, count, 3, 1, 1, generator=generator) * 2
    return 0.5 + 0.5 * torch.sin(a * rows + b * columns + 3 * c)

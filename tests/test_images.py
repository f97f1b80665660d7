"""Images: every mode Pillow knows, and a cache that is whole or absent whatever happens to it."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from robustda.data import cache, images
from robustda.data.images import ImageFiles, decode, fit_image, image_extensions, read_image
from robustda.data.parallel import in_order
from robustda.errors import ConfigError, DataError


def pattern(height: int = 9, width: int = 13, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def make_files(folder: Path, count: int = 5) -> ImageFiles:
    folder.mkdir(exist_ok=True)
    for number in range(count):
        Image.fromarray(pattern(9 + number, 13, seed=number)).save(folder / f"{number}.png")
    return ImageFiles(tuple(str(folder / f"{number}.png") for number in range(count)))


@pytest.fixture
def decoded_paths(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files decoded so far."""
    seen: list[str] = []
    original = images._open_rgb
    monkeypatch.setattr(images, "_open_rgb", lambda path: seen.append(str(path)) or original(path))
    return seen


@dataclass
class Darker:
    key: str = "darker"

    def __call__(self, image: np.ndarray) -> np.ndarray:
        assert image.dtype == np.uint8
        assert image.shape[2] == 3
        return image // 2


GRAY = pattern()[..., 0]
AS_RGB = np.repeat(GRAY[..., None], 3, axis=2)
STRETCHED = np.rint((AS_RGB - float(GRAY.min())) * 255 / (int(GRAY.max()) - int(GRAY.min())))
SIXTEEN = GRAY.astype(np.uint16) * 257


@pytest.mark.parametrize(
    ("make", "ending", "expected", "tolerance"),
    [
        (lambda: Image.fromarray(pattern()), "png", pattern(), 0),
        (lambda: Image.new("RGB", (13, 9), (90, 90, 90)), "webp", 90, 2),
        (lambda: Image.fromarray(pattern()), "bmp", pattern(), 0),
        (lambda: Image.fromarray(GRAY), "png", AS_RGB, 0),
        (lambda: Image.fromarray(GRAY), "tiff", AS_RGB, 0),
        (lambda: Image.fromarray(AS_RGB).quantize(256), "png", AS_RGB, 1),
        (lambda: Image.fromarray(AS_RGB).quantize(256), "gif", AS_RGB, 1),
        (lambda: Image.fromarray(GRAY > 128), "png", np.where(AS_RGB > 128, 255, 0), 0),
        (lambda: Image.fromarray(pattern()).convert("CMYK"), "tiff", pattern(), 0),
        (lambda: Image.new("RGB", (13, 9), (90, 90, 90)).convert("CMYK"), "jpg", 90, 2),
        (lambda: Image.fromarray(SIXTEEN), "png", AS_RGB, 0),
        (lambda: Image.fromarray(SIXTEEN), "tiff", AS_RGB, 0),
        (lambda: Image.fromarray(GRAY.astype(np.int32)), "tiff", AS_RGB, 0),
        (lambda: Image.fromarray(GRAY.astype(np.int32) * 257), "tiff", AS_RGB, 0),
        (lambda: Image.fromarray(GRAY.astype(np.int32) * 1_000_000 - 7), "tiff", STRETCHED, 1),
        (lambda: Image.fromarray(GRAY.astype(np.float32)), "tiff", AS_RGB, 0),
        (lambda: Image.fromarray(GRAY.astype(np.float32) / 255), "tiff", AS_RGB, 0),
        (lambda: Image.fromarray(GRAY.astype(np.float32) - 1000), "tiff", STRETCHED, 1),
        (lambda: Image.fromarray(np.full((9, 13), -5, np.float32)), "tiff", 0, 0),
        (lambda: Image.fromarray(np.full((9, 13), np.nan, np.float32)), "tiff", 0, 0),
    ],
)
def test_every_mode_is_read_as_rgb(tmp_path, make, ending, expected, tolerance):
    make().save(tmp_path / f"one.{ending}")
    found = read_image(tmp_path / f"one.{ending}")
    assert found.dtype == np.uint8
    assert found.shape == (9, 13, 3)
    assert np.abs(found.astype(int) - expected).max() <= tolerance


def test_lab_is_read_as_rgb(tmp_path):
    profiles = ImageCms.createProfile("sRGB"), ImageCms.createProfile("LAB")
    image = ImageCms.profileToProfile(Image.new("RGB", (13, 9), (128, 60, 60)), *profiles, outputMode="LAB")
    image.save(tmp_path / "a.tiff")
    assert np.abs(read_image(tmp_path / "a.tiff").astype(int) - (128, 60, 60)).max() <= 3


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_transparency_lies_over_white(tmp_path, mode):
    if mode == "P":
        image = Image.new("P", (4, 4), 0)
        image.putpalette([10, 10, 10, 200, 0, 0])
        image.putpixel((0, 0), 1)
        image.save(tmp_path / "a.png", transparency=0)
    else:
        image = Image.new(mode, (4, 4), (10, 10, 10, 0) if mode == "RGBA" else (10, 0))
        image.putpixel((0, 0), (200, 0, 0, 255) if mode == "RGBA" else (200, 255))
        image.save(tmp_path / "a.png")
    found = read_image(tmp_path / "a.png")
    assert found[0, 0].tolist() == ([200, 200, 200] if mode == "LA" else [200, 0, 0])
    assert (found[1:] == 255).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_applied(tmp_path, orientation):
    upright = np.zeros((8, 16, 3), dtype=np.uint8)
    upright[:, :8] = (250, 0, 0)
    upright[:4, 8:] = (0, 0, 250)
    stored = {  # how a camera stores an image that this orientation turns upright again
        1: upright,
        2: upright[:, ::-1],
        3: upright[::-1, ::-1],
        4: upright[::-1],
        5: upright.transpose(1, 0, 2),
        6: np.rot90(upright),
        7: upright[::-1, ::-1].transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), upright)


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_a_broken_exif_block_does_not_lose_the_image(tmp_path):
    Image.fromarray(pattern()).save(tmp_path / "a.png", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\x05nonsense")
    np.testing.assert_array_equal(read_image(tmp_path / "a.png"), pattern())


def test_the_first_frame_of_an_animation(tmp_path):
    frames = [Image.new("RGB", (5, 5), colour) for colour in ("red", "blue", "lime")]
    for name in ("a.gif", "a.webp", "a.tiff"):
        lossless = {"lossless": True} if name.endswith("webp") else {}
        frames[0].save(tmp_path / name, save_all=True, append_images=frames[1:], **lossless)
        assert (read_image(tmp_path / name) == (255, 0, 0)).all()


@pytest.mark.parametrize("kind", ["jpeg", "png", "bmp", "tiff", "webp"])
def test_a_truncated_image_is_an_error(tmp_path, kind):
    whole = io.BytesIO()
    Image.fromarray(pattern(200, 200)).save(whole, kind)
    (tmp_path / "a").write_bytes(whole.getvalue()[: len(whole.getvalue()) // 2])
    with pytest.raises(DataError, match="^" + str(tmp_path / "a") + ": ."):
        read_image(tmp_path / "a")


def test_what_is_no_image_is_an_error(tmp_path):
    (tmp_path / "a.jpg").write_text("<html>404</html>")
    (tmp_path / "b.jpg").touch()
    for path in ("a.jpg", "b.jpg"):
        with pytest.raises(DataError, match=rf"{path}: not an image that Pillow can read"):
            read_image(tmp_path / path)
    with pytest.raises(DataError, match=r"c\.jpg: No such file"):
        read_image(tmp_path / "c.jpg")


def test_a_decompression_bomb_is_an_error(tmp_path, monkeypatch):
    Image.new("1", (400, 400)).save(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(DataError, match="too large to be decoded safely"):
        read_image(tmp_path / "a.png")


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kind=st.sampled_from(["jpeg", "png", "gif", "bmp", "tiff", "webp", "ppm", "tga", "pcx", "sgi"]),
    place=st.floats(0, 1, exclude_max=True),
    noise=st.binary(min_size=1, max_size=8),
    cut=st.booleans(),
)
def test_a_damaged_file_gives_an_image_or_a_data_error(tmp_path, kind, place, noise, cut):
    whole = io.BytesIO()
    Image.fromarray(pattern(24, 24)).save(whole, kind)
    data = bytearray(whole.getvalue())
    at = int(place * len(data))
    data[at : len(data) if cut else at + len(noise)] = noise
    (tmp_path / "a").write_bytes(data)
    try:
        found = read_image(tmp_path / "a")
    except DataError:
        return
    assert found.dtype == np.uint8
    assert found.shape[2] == 3


def test_fit_squashes_with_antialiasing():
    stripes = np.zeros((64, 32, 3), dtype=np.uint8)
    stripes[::2] = 255
    fitted = fit_image(stripes, 8)
    assert fitted.shape == (8, 8, 3)
    assert np.abs(fitted[2:-2].astype(int) - 127).max() <= 2
    np.testing.assert_array_equal(fit_image(pattern(8, 8), 8), pattern(8, 8))


def test_extensions_are_those_pillow_opens():
    assert {".jpg", ".jpeg", ".png", ".webp", ".tif", ".gif", ".bmp"} <= image_extensions()
    assert not {".pdf", ".h5", ".txt", ".npz"} & image_extensions()


def test_files_take_their_edits_with_them():
    files = ImageFiles(("a", "b", "c")).with_edits({2: Darker("two")}).with_edits({0: Darker("zero")})
    taken = files.take([2, 1])
    assert taken.paths == ("c", "b")
    assert {row: edit.key for row, edit in taken.edits.items()} == {0: "two"}
    assert files.take(np.array([True, False, True])).edits.keys() == {0, 1}
    with pytest.raises(IndexError, match="no image at row 3"):
        files.with_edits({3: Darker()})


def test_decode_equals_reading_one_by_one(tmp_path):
    files = make_files(tmp_path / "in").with_edits({1: Darker()})
    pixels, kept, bad = decode(files, 8, cache_dir=tmp_path / "cache")
    expected = [fit_image(read_image(path), 8) for path in files.paths]
    expected[1] = fit_image(read_image(files.paths[1]) // 2, 8)
    np.testing.assert_array_equal(pixels, expected)
    assert isinstance(pixels, np.memmap)
    assert not pixels.flags.writeable
    assert kept.tolist() == [0, 1, 2, 3, 4]
    assert bad == []


def test_a_second_start_decodes_nothing(tmp_path, decoded_paths):
    files = make_files(tmp_path / "in")
    first = decode(files, 8, cache_dir=tmp_path / "cache").pixels
    assert len(decoded_paths) == 5
    np.testing.assert_array_equal(decode(files, 8, cache_dir=tmp_path / "cache").pixels, first)
    assert len(decoded_paths) == 5
    (tmp_path / "in").rename(tmp_path / "renamed")
    moved = ImageFiles(tuple(path.replace("/in/", "/renamed/") for path in files.paths))
    np.testing.assert_array_equal(decode(moved, 8, cache_dir=tmp_path / "cache").pixels, first)
    assert len(decoded_paths) == 5
    decode(moved, 9, cache_dir=tmp_path / "cache")
    decode(moved.with_edits({0: Darker()}), 8, cache_dir=tmp_path / "cache")
    decode(moved.take([1, 0, 2, 3, 4]), 8, cache_dir=tmp_path / "cache")
    assert len(decoded_paths) == 20


def test_settled_files_are_not_even_read_again(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "SETTLED_NS", 0)
    files = make_files(tmp_path / "in")
    time.sleep(0.02)
    read: list[str] = []
    original = cache._digest
    monkeypatch.setattr(cache, "_digest", lambda path: read.append(path) or original(path))
    decode(files, 8, cache_dir=tmp_path / "cache")
    decode(files, 8, cache_dir=tmp_path / "cache")
    assert len(read) == 5
    os.utime(files.paths[0])
    decode(files, 8, cache_dir=tmp_path / "cache")
    assert len(read) == 6
    for index in (tmp_path / "cache" / "states").iterdir():
        index.write_bytes(index.read_bytes()[:40])
    decode(files, 8, cache_dir=tmp_path / "cache")
    assert len(read) == 11


@pytest.mark.parametrize("settled", [0, 10**12])
def test_a_changed_file_is_noticed(tmp_path, decoded_paths, monkeypatch, settled):
    monkeypatch.setattr(cache, "SETTLED_NS", settled)
    files = make_files(tmp_path / "in")
    before = decode(files, 8, cache_dir=tmp_path / "cache").pixels.copy()
    changed = pattern(11, 13, seed=99)
    Image.fromarray(changed).save(files.paths[2])
    after = decode(files, 8, cache_dir=tmp_path / "cache").pixels
    np.testing.assert_array_equal(after[2], fit_image(changed, 8))
    np.testing.assert_array_equal(np.delete(after, 2, 0), np.delete(before, 2, 0))
    decoded_paths.clear()
    os.remove(files.paths[2])
    gone = decode(files, 8, cache_dir=tmp_path / "cache")
    assert gone.kept.tolist() == [0, 1, 3, 4]
    assert gone.bad == [(files.paths[2], "No such file or directory")]


def test_a_same_sized_change_with_the_old_times_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(cache, "SETTLED_NS", 0)
    path = tmp_path / "a.bmp"
    Image.new("RGB", (8, 8), "red").save(path)
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    files = ImageFiles((str(path),))
    time.sleep(0.02)
    decode(files, 8, cache_dir=tmp_path / "cache")
    Image.new("RGB", (8, 8), "blue").save(path)
    os.utime(path, ns=times)
    assert decode(files, 8, cache_dir=tmp_path / "cache").pixels[0, 0, 0].tolist() == [0, 0, 255]


def test_a_file_that_changes_while_it_is_decoded_stops_the_work(tmp_path, monkeypatch):
    files = make_files(tmp_path / "in")
    original = images._open_rgb

    def meanwhile(path):
        found = original(path)
        os.utime(path, (1, 1))
        return found

    monkeypatch.setattr(images, "_open_rgb", meanwhile)
    with pytest.raises(DataError, match=r"\.png changed while it was being read: run again"):
        decode(files, 8, cache_dir=tmp_path / "cache")
    assert list((tmp_path / "cache" / "images").iterdir()) == []


def test_unreadable_files_are_listed_and_remembered(tmp_path, decoded_paths):
    files = make_files(tmp_path / "in")
    Path(files.paths[0]).write_bytes(Path(files.paths[0]).read_bytes()[:80])
    Path(files.paths[3]).write_text("no image")
    os.mkfifo(tmp_path / "pipe.png")
    files = ImageFiles((*files.paths, str(tmp_path / "pipe.png"), "nul\0.png"))
    for _ in range(2):
        found = decode(files, 8, cache_dir=tmp_path / "cache")
        assert found.kept.tolist() == [1, 2, 4]
        assert [path for path, _ in found.bad] == [files.paths[0], files.paths[3], *files.paths[5:]]
        assert found.bad[1][1] == "not an image that Pillow can read"
        assert found.bad[2][1] == "not a file"
        np.testing.assert_array_equal(found.pixels[2], fit_image(pattern(13, 13, seed=4), 8))
    assert len(decoded_paths) == 5
    entry = next((tmp_path / "cache" / "images").iterdir())
    meta = json.loads((entry / "meta.json").read_text())
    (entry / "meta.json").write_text(json.dumps(meta | {"decoder": "an older Pillow"}))
    decode(files, 8, cache_dir=tmp_path / "cache")
    assert len(decoded_paths) == 10, "another Pillow might read what this one could not"


def test_nothing_to_decode_is_an_error(tmp_path):
    (tmp_path / "a.png").write_text("no image")
    with pytest.raises(DataError, match=r"none of the 1 images can be read \(first .*a\.png: not an image"):
        decode(ImageFiles((str(tmp_path / "a.png"),)), 8, cache_dir=tmp_path / "cache")
    with pytest.raises(DataError, match="no images"):
        decode(ImageFiles(()), 8, cache_dir=tmp_path / "cache")
    with pytest.raises(ConfigError, match="0 pixels wide"):
        decode(ImageFiles(("a",)), 0, cache_dir=tmp_path / "cache")


def _truncate(entry: Path) -> None:
    os.truncate(entry / "pixels.raw", 100)


def _zero(entry: Path) -> None:
    size = (entry / "pixels.raw").stat().st_size
    (entry / "pixels.raw").write_bytes(bytes(size))


def _half_meta(entry: Path) -> None:
    (entry / "meta.json").write_text((entry / "meta.json").read_text()[:20])


@pytest.mark.parametrize(
    "damage",
    [
        _truncate,
        _zero,
        _half_meta,
        lambda e: (e / "meta.json").unlink(),
        lambda e: (e / "pixels.raw").unlink(),
    ],
)
def test_a_damaged_entry_is_rebuilt(tmp_path, decoded_paths, damage):
    files = make_files(tmp_path / "in")
    before = decode(files, 8, cache_dir=tmp_path / "cache").pixels.copy()
    (entry,) = (tmp_path / "cache" / "images").iterdir()
    damage(entry)
    np.testing.assert_array_equal(decode(files, 8, cache_dir=tmp_path / "cache").pixels, before)
    assert len(decoded_paths) == 10
    np.testing.assert_array_equal(decode(files, 8, cache_dir=tmp_path / "cache").pixels, before)
    assert len(decoded_paths) == 10
    assert list((tmp_path / "cache" / "images").iterdir()) == [entry]


def run_python(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


SLOW_DECODE = """
    import glob, os, sys, time
    from robustda.data import images
    original = images._open_rgb
    def slow(path):
        open(f"{sys.argv[3]}/{os.getpid()}", "w").close()
        while len(os.listdir(sys.argv[3])) < int(sys.argv[4]):  # all who race have begun to fill
            time.sleep(0.01)
        time.sleep(0.02)
        print("decoding", flush=True)
        return original(path)
    images._open_rgb = slow
    files = images.ImageFiles(tuple(sorted(glob.glob(sys.argv[1] + "/*.png"))))
    found = images.decode(files, 8, cache_dir=sys.argv[2], workers=1)
    print("sum", int(found.pixels.sum()), found.pixels.filename, flush=True)
"""


def test_two_processes_fill_the_same_entry_at_once(tmp_path, decoded_paths):
    files = make_files(tmp_path / "in", count=8)
    (tmp_path / "begun").mkdir()
    arguments = tmp_path / "in", tmp_path / "cache", tmp_path / "begun", 2
    racers = [run_python(SLOW_DECODE, *arguments) for _ in range(2)]
    outputs = [racer.communicate(timeout=60) for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0], outputs
    for out, _ in outputs:
        assert out.count("decoding") == 8
    expected = sum(int(fit_image(read_image(path), 8).sum()) for path in files.paths)
    (entry,) = (tmp_path / "cache" / "images").iterdir()
    assert {out.splitlines()[-1] for out, _ in outputs} == {f"sum {expected} {entry / 'pixels.raw'}"}
    decoded_paths.clear()
    decode(files, 8, cache_dir=tmp_path / "cache")
    assert decoded_paths == []


def test_a_process_killed_while_filling_leaves_nothing_trusted(tmp_path, decoded_paths, monkeypatch):
    files = make_files(tmp_path / "in", count=40)
    (tmp_path / "begun").mkdir()
    process = run_python(SLOW_DECODE, tmp_path / "in", tmp_path / "cache", tmp_path / "begun", 1)
    for _ in range(5):
        assert process.stdout is not None
        assert process.stdout.readline() == "decoding\n"
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    (left,) = (tmp_path / "cache" / "images").iterdir()
    assert left.name.startswith(".filling-")
    found = decode(files, 8, cache_dir=tmp_path / "cache")
    assert len(decoded_paths) == 40
    np.testing.assert_array_equal(found.pixels[39], fit_image(read_image(files.paths[39]), 8))
    assert left.exists(), "it might belong to a process at work"
    monkeypatch.setattr(cache, "ABANDONED_S", -1)
    decode(files, 9, cache_dir=tmp_path / "cache")
    assert not left.exists()


def test_a_full_disk_is_one_line_that_names_the_way_out(tmp_path):
    make_files(tmp_path / "in", count=8)
    process = run_python(
        """
        import resource, sys
        from robustda.data.domain import Domain
        from robustda.errors import DataError
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))
        try:
            Domain.from_folder(sys.argv[1]).decoded(64, cache_dir=sys.argv[2])
        except DataError as error:
            print(error)
        """,
        tmp_path / "in",
        tmp_path / "cache",
    )
    out, problems = process.communicate(timeout=60)
    assert out.startswith(f"cannot write the image cache in {tmp_path / 'cache'} (File too large): "), problems
    assert "set ROBUSTDA_CACHE to a folder" in out
    assert out.count("\n") == 1
    assert list((tmp_path / "cache" / "images").iterdir()) == []


def test_a_cache_that_cannot_be_written(tmp_path):
    files = make_files(tmp_path / "in")
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.raises(DataError, match=r"cannot write the image cache .*set ROBUSTDA_CACHE"):
        decode(files, 8, cache_dir=tmp_path / "cache")


def test_a_cache_that_may_only_be_read_still_serves(tmp_path, decoded_paths, monkeypatch):
    files = make_files(tmp_path / "in")
    decode(files, 8, cache_dir=tmp_path / "cache")
    original = open

    def read_only(path, mode="r", *rest, **more):
        if "w" in mode:
            raise PermissionError(13, "Permission denied", str(path))
        return original(path, mode, *rest, **more)

    monkeypatch.setattr(cache, "open", read_only, raising=False)
    decode(files, 8, cache_dir=tmp_path / "cache")
    assert len(decoded_paths) == 5
    with pytest.raises(DataError, match="Permission denied"):
        decode(files, 9, cache_dir=tmp_path / "cache")


def test_where_the_cache_is(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ROBUSTDA_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache.cache_folder() == tmp_path / ".cache" / "robustda"
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache.cache_folder() == Path("/xdg/robustda")
    monkeypatch.setenv("ROBUSTDA_CACHE", "~/mine")
    assert cache.cache_folder() == tmp_path / "mine"
    assert cache.cache_folder("/given") == Path("/given")


@settings(max_examples=50, deadline=None)
@given(
    one=st.lists(st.tuples(st.binary(max_size=3), st.text(max_size=3)), max_size=4),
    other=st.lists(st.tuples(st.binary(max_size=3), st.text(max_size=3)), max_size=4),
)
def test_different_contents_have_different_keys(one, other):
    assert (cache.entry_key(8, one) == cache.entry_key(8, other)) == (one == other)
    assert cache.entry_key(8, one) != cache.entry_key(9, one)


def test_results_keep_their_order_and_stay_few():
    started: list[int] = []

    def work(item: int) -> int:
        started.append(item)
        time.sleep(0.001 * (item % 3))
        return item * item

    for taken, result in enumerate(in_order(work, range(100), workers=2), start=1):
        assert result == (taken - 1) ** 2
        assert len(started) <= taken + 8
    assert taken == 100


def test_an_edit_that_fails_is_no_unreadable_image(tmp_path):
    class Broken:
        key = "broken"

        def __call__(self, image: np.ndarray) -> np.ndarray:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        decode(make_files(tmp_path / "in").with_edits({1: Broken()}), 8, cache_dir=tmp_path / "cache")

"""Images that are not what they should be."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

from hostile import bad, encoded, fit, images

# Images.


def chunk(kind: bytes, content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))


def png_of(width: int, height: int, body: bytes, *more: bytes) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join([chunk(b"IHDR", header), *more, chunk(b"IDAT", body), chunk(b"IEND", b"")])


RED = Image.new("RGB", (20, 14), "red")
LARGE = png_of(30_000, 30_000, zlib.compress(b"\0" * 30_001 * 100))
bad("image", "cut short", "cannot be read", "truncated", warns=True)(
    images(("odd.jpg", encoded(Image.effect_noise((90, 90), 9), "JPEG")[:600]))
)
bad("image", "no bytes", "cannot be read", "not an image", warns=True)(images(("odd.jpg", b"")))
bad("image", "text called .jpg", "cannot be read", "not an image", warns=True)(images(("odd.jpg", b"hello")))
bad("image", "random bytes called .png", "cannot be read", "not an image", warns=True)(
    images(("odd.png", np.random.default_rng(3).bytes(900)))
)
bad("image", "30,000 × 30,000 pixels", "cannot be read", "too large to be decoded safely", warns=True)(
    images(("odd.png", LARGE))
)
bad("image", "a header that says 2³¹ − 1 pixels a side", "cannot be read", warns=True)(
    images(("odd.png", png_of(2**31 - 1, 2**31 - 1, zlib.compress(b"\0" * 100))))
)
bad("image", "pixels that are missing", "cannot be read", warns=True)(
    images(("odd.png", png_of(400, 400, zlib.compress(b"\0" * 100))))
)
bad("image", "a wrong checksum", "cannot be read", warns=True)(
    images(("odd.png", png_of(4, 4, zlib.compress(b"\0" * 20))[:-20] + b"\0" * 20))
)
bad("image", "a text block of packed zeros", "cannot be read", warns=True)(
    images(
        (
            "odd.png",
            png_of(4, 4, zlib.compress(b"\0" * 20), chunk(b"zTXt", b"k\0\0" + zlib.compress(b"\0" * 80_000_000))),
        )
    )
)
bad("image", "PostScript called .jpg (Ghostscript is not started)", "cannot be read", "not an image", warns=True)(
    images(("odd.jpg", b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n"))
)
bad("image", "one pixel")(images(("odd.png", encoded(Image.new("RGB", (1, 1)), "PNG"))))
bad("image", "animated (the first frame is used)")(
    images(("odd.gif", encoded(RED, "GIF", save_all=True, append_images=[RED.rotate(90), RED.rotate(9)])))
)
bad("image", "CMYK")(images(("odd.jpg", encoded(RED.convert("CMYK"), "JPEG"))))
bad("image", "16 bits")(images(("odd.png", encoded(Image.fromarray(np.full((9, 9), 40_000, np.uint16)), "PNG"))))
bad("image", "a palette with transparency")(images(("odd.png", encoded(RED.convert("P"), "PNG", transparency=0))))
bad("image", "one bit")(images(("odd.tif", encoded(RED.convert("1"), "TIFF"))))
bad("image", "a broken EXIF block")(
    images(("odd.jpg", encoded(RED, "JPEG", exif=b"Exif\0\0II*\0\xff\xff\xff\xff" + b"\xff" * 40)))
)


@bad("image", "a link that leads nowhere", "cannot be read", "No such file", warns=True)
def _(place: Path) -> object:
    web = images()(place)
    (web / "x" / "odd.png").symlink_to(place / "none.png")
    return web


@bad("image", "a folder that links to the one above it")
def _(place: Path) -> object:
    web = images()(place)
    (web / "x" / "loop").symlink_to(web)
    return web


@bad("image", "every image unreadable", "none of the", "can be read")
def _(place: Path) -> object:
    for name in ("x", "y"):
        (place / "web" / name).mkdir(parents=True)
        (place / "web" / name / "a.png").write_bytes(b"hello")
    return place / "web"


@bad("image", "an unreadable image, with --strict", "cannot be read", "replace or remove them")
def _(place: Path) -> object:
    web = images(("odd.png", b"hello"))(place)
    return fit(place, "--strict", source=web)

"""Many small classes: icons of some fifty sets by their name, drawn as lines in one domain and filled in the other.

    pip install resvg-py
    for s in $(python benchmarks/icons.py --sets); do npm pack @iconify-json/$s; done
    for f in iconify-json-*.tgz; do mkdir -p $f.d; tar xzf $f -C $f.d; done
    python benchmarks/icons.py --packages . --weights resnet50.safetensors [--rates 0 0.2 0.4] [--classes 150]

The names that most sets have in both styles (heart, folder, wallet, ...), from 15 to 30 icons of each, on frozen
ResNet-50 features of images and their mirror images. Names of directions are left out. Only the say of
a plain classifier, and what is expected, where classes overlap was chosen with these data at hand (`words.py`). What is
printed is as in `emoji.py`.
"""

from __future__ import annotations

import argparse
import io
import json
import warnings
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from PIL import Image

from emoji import METHODS, accuracy, on_white
from robustda import Domain
from robustda.features import extract_features
from robustda.noise.recipes import corrupt_labels, transition_matrix

TASKS = ("lines-filled", "filled-lines")
NAMES = """
akar-icons ant-design basil bi bx carbon clarity cuida ep eva f7 famicons flowbite fluent gravity-ui heroicons
humbleicons hugeicons ic iconamoon iconoir ion la lets-icons line-md lucide majesticons material-symbols mdi memory
mingcute mynaui octicon pepicons-pop pepicons-print ph pixelarticons ri si solar stash streamline tabler tdesign
teenyicons typcn uil zondicons
"""
LINES = "outline outlined line linear thin light regular stroke lines duoline"
FILLED = "fill filled solid bold duotone twotone bulk"
SAME = "rounded round sharp 12 16 20 24 28 32 48 1 2 alt o"  # forms of one and the same thing
TURNED = "left right up down forward backward back next previous"
SETS = NAMES.split()
STYLES = {"lines": {*LINES.split()}, "filled": {*FILLED.split()}}
FORMS, DIRECTIONS = {*SAME.split()}, {*TURNED.split()}
FEWEST, MOST, SIDE = 15, 30, 240  # icons of a class in each domain; pixels


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", action="store_true", help="print the names of the icon sets, and end")
    parser.add_argument("--packages", type=Path, default=Path("."), help="the folder with the unpacked npm packages")
    parser.add_argument("--weights", help="of ResNet-50, as for robustda fit --backbone resnet50_v1")
    parser.add_argument("--pooling", default="auto", choices=["auto", "mean", "peaks"], help="as in robustda features")
    parser.add_argument("--work", type=Path, default=Path("runs/icons"), help="where images and features go")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--rates", nargs="+", type=float, default=[0.0, 0.2, 0.4])
    parser.add_argument("--classes", type=int, default=150, help="the largest so many")
    parser.add_argument("--draw", type=int, default=1, help="of the noise")
    parser.add_argument("--seed", type=int, default=0, help="of the methods")
    arguments = parser.parse_args()
    if arguments.sets:
        print(*SETS)
        return
    warnings.simplefilter("ignore")
    print("| task | wrong labels | " + " | ".join(arguments.methods) + " |")
    print("|---" * (2 + len(arguments.methods)) + "|")
    for task in arguments.tasks:
        source, target = (features_of(name, arguments) for name in task.split("-"))
        for rate in arguments.rates:
            assert source.y is not None
            transition = transition_matrix("symmetric", len(source.classes), rate)
            noisy = replace(source, y=corrupt_labels(source.y, transition, arguments.draw))
            found = [accuracy(method, noisy, target, arguments.seed) for method in arguments.methods]
            print(f"| {task} | {rate:g} | " + " | ".join(found) + " |", flush=True)


def features_of(style: str, arguments: argparse.Namespace) -> Domain:
    file = arguments.work / f"{style}-{arguments.classes}-{arguments.pooling}.npz"
    if not file.exists():
        folder = arguments.work / "images"
        draw(arguments.packages, folder, arguments.classes)
        images = Domain.from_folder(folder / style)
        how = {"backbone": "resnet50_v1", "weights": arguments.weights, "pooling": arguments.pooling}
        extract_features(images, **how).save_npz(file)
    return Domain.from_npz(file)


def draw(packages: Path, folder: Path, n_classes: int) -> None:
    """Folders of images, one a style, with a sub-folder for each class."""
    import resvg_py

    found: dict[str, dict[str, list[tuple[str, str]]]] = {style: defaultdict(list) for style in STYLES}
    for style, name, key, svg in icons(packages):
        found[style][name].append((key, svg))
    sizes = {name: min(len(found[style][name]) for style in STYLES) for name in found["lines"]}
    names = sorted((name for name in sizes if sizes[name] >= FEWEST), key=lambda name: (-sizes[name], name))
    for style, by_name in found.items():
        for name in sorted(names[:n_classes]):
            rows = by_name[name]
            for chosen in sorted(np.random.default_rng(0).permutation(len(rows))[:MOST]):
                key, svg = rows[chosen]
                file = folder / style / name / f"{key}.jpg"
                if not file.exists():
                    drawn = resvg_py.svg_to_bytes(svg_string=svg, width=SIDE, height=SIDE)
                    on_white(Image.open(io.BytesIO(bytes(drawn))), file)


def icons(packages: Path) -> Iterator[tuple[str, str, str, str]]:
    """Style, name without it, a key, and the drawing of each icon that has either style in its name."""
    for file in sorted(packages.glob("iconify-json-*/package/icons.json")):
        collection = json.loads(file.read_text(encoding="utf-8"))
        if collection["prefix"] not in SETS:
            continue
        width, height = collection.get("width", 16), collection.get("height", 16)
        for key, icon in collection["icons"].items():
            words = key.split("-")
            styles = [style for style, marks in STYLES.items() if marks & set(words)]
            name = "-".join(word for word in words if word not in FORMS.union(*STYLES.values()))
            if len(styles) != 1 or not name or DIRECTIONS & set(words):
                continue
            box = f"{icon.get('left', 0)} {icon.get('top', 0)} {icon.get('width', width)} {icon.get('height', height)}"
            svg = f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="{box}">'
            yield styles[0], name, f"{collection['prefix']}-{key}", f"{svg}{icon['body']}</svg>"


if __name__ == "__main__":
    main()

"""A third data set, by which hardly anything was chosen (`words.py`): clip art and emoji, by what they show.

    apt-get download openclipart-png && dpkg -x openclipart-png_*.deb .
    npm pack emoji-datasource-google emoji-datasource-twitter     # and unpack them as benchmarks/emoji.py says
    python benchmarks/clipart.py --clipart usr/share/openclipart/png --packages . --weights resnet50.safetensors

Some 1,200 pictures of the Open Clip Art Library, as its contributors filed them, and 600 emoji of each vendor, in 25
classes that both know (birds, boats, clothing, weather, ...) of many kinds of things each, on frozen ResNet-50
features of images and their mirror images. What is printed is as in `emoji.py`.
"""

from __future__ import annotations

import argparse
import json
import re
import warnings
from dataclasses import replace
from pathlib import Path

from PIL import Image

from emoji import METHODS, accuracy, on_white
from robustda import Domain
from robustda.features import extract_features
from robustda.noise import witnesses
from robustda.noise.recipes import corrupt_labels, transition_matrix

TASKS = ("clipart-google", "clipart-twitter", "google-clipart", "twitter-clipart")
CLASSES = {
    # folders of the library, subgroups of Unicode
    "aquatic": (r"animals/fish", ["animal-marine"]),
    "arrow": (r"shapes/arrows", ["arrow"]),
    "bird": (r"animals/birds", ["animal-bird"]),
    "boat": (r"transportation/boating", ["transport-water"]),
    "body part": (r"people/bodypart", ["body-parts", "hands", "hand-fingers-open"]),
    "book": (r"education/books", ["book-paper"]),
    "bug": (r"animals/bugs", ["animal-bug"]),
    "building": (r"buildings(/(?!furniture).*)?", ["place-building"]),
    "clock": (r"signs_and_symbols/clocks", ["time"]),
    "clothing": (r"people/clothing", ["clothing"]),
    "computer": (r"computer/hardware", ["computer"]),
    "dessert": (r"food/desserts", ["food-sweet"]),
    "drink": (r"food/beverages.*", ["drink"]),
    "flower": (r"plants/flowers", ["plant-flower"]),
    "fruit": (r"food/fruit", ["food-fruit"]),
    "mammal": (r"animals/mammals", ["animal-mammal"]),
    "music": (r"recreation/music", ["musical-instrument", "music"]),
    "plant": (r"plants(/(?!flowers).*)?", ["plant-other"]),
    "religion": (r"recreation/religion.*", ["religion"]),
    "smiley": (r"people/smilies", ["face-concerned", "face-smiling", "face-neutral-skeptical"]),
    "sport": (r"recreation/sports", ["sport", "person-sport"]),
    "tool": (r"tools(/hand)?", ["tool"]),
    "vegetable": (r"food/vegetables", ["food-vegetable"]),
    "vehicle": (r"transportation/vehicles", ["transport-ground"]),
    "weather": (r"signs_and_symbols/weather", ["sky & weather"]),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clipart", type=Path, required=True, help="the folder png of the package openclipart-png")
    parser.add_argument("--packages", type=Path, required=True, help="the folder with the unpacked npm packages")
    parser.add_argument("--weights", required=True, help="of ResNet-50, as for robustda fit --backbone resnet50_v1")
    parser.add_argument("--pooling", default="auto", choices=["auto", "mean", "peaks"], help="as in robustda features")
    parser.add_argument("--work", type=Path, default=Path("runs/clipart"), help="where images and features go")
    parser.add_argument("--tasks", nargs="+", default=TASKS)
    parser.add_argument("--methods", nargs="+", default=METHODS)
    parser.add_argument("--rates", nargs="+", type=float, default=[0.0, 0.2, 0.4, 0.6])
    parser.add_argument("--draws", nargs="+", type=int, default=[1])
    parser.add_argument("--seed", type=int, default=0, help="of the methods")
    parser.add_argument("--bold", action="store_true", help="never read labels cautiously")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.bold:
        witnesses._CLEARLY = float("inf")
    print("| task | wrong labels | draw | " + " | ".join(arguments.methods) + " |")
    print("|---" * (3 + len(arguments.methods)) + "|")
    for task in arguments.tasks:
        source, target = (features_of(name, arguments) for name in task.split("-"))
        assert source.y is not None
        for rate in arguments.rates:
            transition = transition_matrix("symmetric", len(source.classes), rate)
            for draw in arguments.draws if rate else arguments.draws[:1]:
                noisy = replace(source, y=corrupt_labels(source.y, transition, draw))
                found = [accuracy(method, noisy, target, arguments.seed) for method in arguments.methods]
                print(f"| {task} | {rate:g} | {draw} | " + " | ".join(found) + " |", flush=True)


def features_of(name: str, arguments: argparse.Namespace) -> Domain:
    file = arguments.work / f"{name}-{arguments.pooling}.npz"
    if not file.exists():
        folder = arguments.work / "images" / name
        if name == "clipart":
            clip_art(arguments.clipart, folder)
        else:
            emoji(name, arguments.packages, folder)
        images = Domain.from_folder(folder)
        how = {"backbone": "resnet50_v1", "weights": arguments.weights, "pooling": arguments.pooling}
        extract_features(images, **how).save_npz(file)
    return Domain.from_npz(file)


def clip_art(library: Path, folder: Path) -> None:
    for path in sorted(library.rglob("*.png")):
        place = str(path.parent.relative_to(library))
        named = [label for label, (pattern, _) in CLASSES.items() if re.fullmatch(pattern, place)]
        if named:
            try:
                image = Image.open(path)
                image.thumbnail((512, 512))
            except (OSError, ValueError):  # a few are damaged
                continue
            on_white(image, folder / named[0] / f"{place.replace('/', '-')}-{path.stem}.jpg")


def emoji(vendor: str, packages: Path, folder: Path) -> None:
    package = next(packages.glob(f"emoji-datasource-{vendor}*/package"))
    for entry in json.loads((package / "emoji.json").read_text()):
        named = [label for label, (_, groups) in CLASSES.items() if entry["subcategory"] in groups]
        path = package / "img" / vendor / "64" / entry["image"]
        if named and path.exists():
            on_white(Image.open(path), folder / named[0] / f"{path.stem}.jpg")


if __name__ == "__main__":
    main()

"""Folders of runs and exports that somebody else may have written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from hostile import bad, fit, images
from robustda.cli import main
from robustda.exported import file_digest

# Run folders.


def run_folder(change: Callable[[Path], object]) -> Callable[[Path], list[str]]:
    """Predict with a run that has been changed."""

    def make(place: Path) -> list[str]:
        assert main(fit(place)) == 0
        change(place / "run")
        return [
            "predict",
            str(place / "run"),
            str(place / "sound.csv"),
            "--out",
            str(place / "p.csv"),
            "--device",
            "cpu",
        ]

    return make


def edited(name: str, **changed: object) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        about = json.loads((run / name).read_text())
        (run / name).write_text(json.dumps(about | changed))

    return change


def written(name: str, content: str | bytes) -> Callable[[Path], object]:
    return lambda run: (run / name).write_bytes(content.encode() if isinstance(content, str) else content)


def params(**changed: object) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        about = json.loads((run / "model.json").read_text())
        about["params"] |= changed
        (run / "model.json").write_text(json.dumps(about))

    return change


bad("run folder", "of a fit that has not ended", "holds no finished run")(
    run_folder(lambda run: (run / "model.json").unlink())
)
bad("run folder", "model.json is no JSON", "the model in", "is no JSON")(run_folder(written("model.json", "{")))
bad("run folder", "model.json is a list", "holds no JSON object")(run_folder(written("model.json", "[]")))
bad("run folder", "model.json nests 100,000 deep", "nests too deep")(run_folder(written("model.json", "[" * 100_000)))
bad("run folder", "model.json of 70 MB", "more than the 67,108,864 that it may have")(
    run_folder(written("model.json", b" " * 70_000_000))
)
bad("run folder", "model.json is no text", "is no text")(run_folder(written("model.json", b"\xff\xfe\xfa" * 9)))
bad("run folder", "a method that does not exist", "there is no method 'os'")(
    run_folder(edited("model.json", method="os"))
)
bad("run folder", "an option that does not exist", "has no option 'command'")(run_folder(params(command="true")))
bad("run folder", "weights that were changed", "its content is not what was written")(
    run_folder(written("model.safetensors", b"x" * 100))
)
bad("run folder", "weights lost", "No such file")(run_folder(lambda run: (run / "model.safetensors").unlink()))
bad("run folder", "an example of 10⁹ numbers", "do not agree about")(
    run_folder(edited("model.json", example_shape=[10**9]))
)
bad("run folder", "a shape of words", "the model in")(run_folder(edited("model.json", example_shape=["a"])))
bad("run folder", "a class more", "do not agree about")(run_folder(edited("model.json", classes=["x", "y", "z"])))
bad("run folder", "summary.json is no JSON", "the model in")(run_folder(written("summary.json", "nothing")))

# Looking back at runs.


def reported(change: Callable[[Path], object]) -> Callable[[Path], list[str]]:
    """Report on a run that has been changed."""

    def make(place: Path) -> list[str]:
        assert main(fit(place)) == 0
        change(place / "run")
        return ["report", str(place / "run"), "--points", "0"]

    return make


def with_data(**changed: object) -> Callable[[Path], object]:
    def change(run: Path) -> None:
        about = json.loads((run / "config.json").read_text())
        about["data"] |= changed
        (run / "config.json").write_text(json.dumps(about))

    return change


bad("report", "of a folder of images", "is no run folder")(lambda place: ["report", images()(place)])
bad("report", "of nothing", "is no run folder")(lambda place: ["report", place / "none"])
bad("report", "of one run twice", "is given twice")(
    lambda place: [*reported(lambda run: run)(place)[:2], place / "run"]
)
bad("report", "a number of points below 0", "points is -3: give a number of at least 0")(
    lambda place: [*reported(lambda run: run)(place)[:2], "--points", "-3"]
)
bad("report", "config.json is no JSON", "the run in", "is no JSON")(reported(written("config.json", "{")))
bad("report", "config.json is empty of all", "'data' is missing")(reported(written("config.json", "{}")))
bad("report", "config.json nests 100,000 deep", "nests too deep")(reported(written("config.json", "[" * 100_000)))
bad("report", "summary.json is a list", "holds no JSON object")(reported(written("summary.json", "[]")))
bad("report", "summary.json has words for numbers", "has 'most' for a number")(
    reported(edited("summary.json", target_accuracy="most"))
)
bad("report", "classes that are no list", "config.json has '3' for classes")(reported(with_data(classes=3)))
bad("report", "other classes", "that is no class of the run")(reported(with_data(classes=["p", "q"])))
bad("report", "as many examples as a word", "for target_examples")(reported(with_data(target_examples="many")))
bad("report", "metrics.csv without its columns", "metrics.csv has no column phase")(
    reported(written("metrics.csv", "a,b\n1,2\n"))
)
bad("report", "metrics.csv with words for numbers", "the run in")(
    reported(written("metrics.csv", "phase,step,metric,value\na,b,c,d\n"))
)
bad("report", "predictions.csv is empty", "the run in")(reported(written("predictions.csv", "")))
bad("report", "a file in the way of the page", "cannot write")(
    lambda place: [*reported(lambda run: run)(place), "--out", place / "sound.csv" / "page.html"]
)

# Exports.


def exported(change: Callable[[Path], object], kind: str = "safetensors") -> Callable[[Path], list[str]]:
    """Predict with an export that has been changed."""

    def make(place: Path) -> list[str]:
        assert main(fit(place)) == 0
        assert main(["export", str(place / "run"), "--format", kind, "--out", str(place / "export")]) == 0
        change(place / "export")
        told = ["--out", place / "p.csv", "--device", "cpu"]
        return ["predict", *map(str, [place / "export", place / "sound.csv", *told])]

    return make


def forged(name: str, content: bytes) -> Callable[[Path], object]:
    """Another model file, and its digest noted as if it were the one that was written."""

    def change(folder: Path) -> None:
        (folder / name).write_bytes(content)
        edited("export.json", digests={name: file_digest(folder / name)})(folder)

    return change


def export_to(out: Callable[[Path], object], *more: object, kind: str = "safetensors") -> Callable[[Path], list[str]]:
    def make(place: Path) -> list[str]:
        assert main(fit(place)) == 0
        return ["export", *map(str, [place / "run", "--format", kind, "--out", out(place), *more])]

    return make


bad("export", "export.json is no JSON", "the export in", "is no JSON")(exported(written("export.json", "{")))
bad("export", "export.json is empty of all", "is missing")(exported(written("export.json", "{}")))
bad("export", "export.json nests 100,000 deep", "nests too deep")(exported(written("export.json", "[" * 100_000)))
bad("export", "a format that is none", "its format cannot be 'pickle'")(
    exported(edited("export.json", format="pickle"))
)
bad("export", "no digest of the model", "its digests cannot be")(exported(edited("export.json", digests={})))
bad("export", "a digest of a file elsewhere", "is not the file that was written")(
    exported(edited("export.json", digests={"model.safetensors": "", "../sound.csv": ""}))
)
bad("export", "a model that was changed", "is not the file that was written")(
    exported(written("model.safetensors", b"x" * 100))
)
bad("export", "another model with a digest that fits", "the header of model.safetensors")(
    exported(forged("model.safetensors", b"x" * 100))
)
bad("export", "an archive that is none, with a digest that fits", "cannot be read as a .pt2 archive")(
    exported(forged("model.pt2", b"x" * 100), "torch-export")
)
bad("export", "the model lost", "No such file")(exported(lambda folder: (folder / "model.safetensors").unlink()))
bad("export", "a word for the classes", "its classes cannot be 'abc'")(exported(edited("export.json", classes="abc")))
bad("export", "a class more", "do not agree about")(exported(edited("export.json", classes=["x", "y", "z"])))
bad("export", "a class less than the model has", "gives (4, 2) numbers in place of (4, 1)")(
    exported(edited("export.json", classes=["x"]), "torch-export")
)
bad("export", "a shape of words", "its example_shape cannot be")(exported(edited("export.json", example_shape=["a"])))
bad("export", "an example of no numbers", "its example_shape cannot be")(
    exported(edited("export.json", example_shape=[]))
)
bad("export", "more features than the model takes", "the model was trained on vectors of 3 features")(
    exported(edited("export.json", example_shape=[3], features=[]), "torch-export")
)
bad("export", "of a folder without a run", "holds no finished run")(
    lambda place: ["export", images()(place), "--format", "safetensors", "--out", place / "e"]
)
bad("export", "to a format that is none", "format is 'pickle'", "onnx")(
    export_to(lambda place: place / "e", kind="pickle")
)
bad("export", "over what is there", "is there already")(export_to(lambda place: place / "run"))
bad("export", "below a file", "cannot write", "choose another --out")(
    export_to(lambda place: place / "sound.csv" / "e")
)
bad("export", "checked on data that are not there", "there is nothing at")(
    export_to(lambda place: place / "e", "--data", "none.npz")
)

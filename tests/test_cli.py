"""The command line: every way in, and for every mistake one line that says what to do."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml

from conftest import command, environment, make_folders, make_pair
from robustda import Domain, __version__
from robustda.cli import main
from robustda.errors import RobustDAWarning

BRIEF = ["--steps=5", "--width=4", "--tensorboard=false", "--device=cpu"]
FAST = ["--method=rda", *BRIEF, "--epochs=1", "--noise_rate=0.2"]


@pytest.fixture(scope="module")
def material(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same task as .npz, .csv and .parquet, and folders of images; then all that may be wrong with such things."""
    place = tmp_path_factory.mktemp("material")
    pair = make_pair(size=60, target_size=40)
    columns = [f"f{number}" for number in range(10)]
    pair.source.save_npz(place / "source.npz")
    pair.target.save_npz(place / "target.npz")
    source = pd.DataFrame(pair.source.x, columns=columns).assign(label=pair.source.labels)
    target = pd.DataFrame(pair.target.x, columns=columns)
    for name, table in (("source", source), ("target", target)):
        table.to_csv(place / f"{name}.csv", index=False)
        table.to_parquet(place / f"{name}.parquet")
    make_folders(place)
    listed = sorted(path.relative_to(place) for path in (place / "web").rglob("*.*"))
    paths = pd.DataFrame({"path": listed, "label": [path.parts[1] for path in listed]}, dtype=str)
    paths.to_csv(place / "paths.csv", index=False)

    (place / "empty").mkdir()
    shutil.copytree(place / "web" / "ant", place / "one_class" / "ant")
    shutil.copytree(place / "web", place / "missing_class")
    (place / "missing_class" / "dog").mkdir()
    shutil.copytree(place / "web" / "ant", place / "flat")
    with_nan = source.copy()
    with_nan.loc[3, "f2"] = np.nan
    with_nan.to_csv(place / "nan.csv", index=False)
    source.drop(columns="f9").to_csv(place / "narrow.csv", index=False)
    source.drop(columns="label").to_csv(place / "unlabelled.csv", index=False)
    source.head(0).to_csv(place / "no_rows.csv", index=False)
    np.savez(place / "narrow.npz", x=pair.target.x[:, :5])
    np.savez(place / "one_class.npz", x=pair.source.x, y=np.full(60, "ant"))
    np.savez(place / "other_classes.npz", x=pair.target.x, y=np.where(np.arange(40) % 2, "ant", "yak"))
    for name in ("broken.npz", "broken.parquet", "broken.safetensors", "thing.xyz"):
        (place / name).write_bytes(b"not what the name says")
    (place / "broken.yaml").write_text("steps: [1\nwidth: 3")
    (place / "unknown_key.yaml").write_text("stepz: 3\n")
    (place / "odd_method.yaml").write_text("method: {rda: 1}\n")
    (place / "odd_variant.yaml").write_text("variant: [paper]\n")
    (place / "list.yaml").write_text("- 1\n")
    return place


@pytest.fixture(scope="module")
def trained(material: Path) -> Path:
    """A finished run on vectors."""
    arguments = ["--source", str(material / "source.csv"), "--target", str(material / "target.csv")]
    assert main(["fit", *arguments, "--out", str(material / "trained"), *FAST]) == 0
    return material / "trained"


@pytest.fixture(autouse=True)
def at_the_material(material, monkeypatch):
    monkeypatch.chdir(material)


def well(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command that must end well and quietly; returns what it printed."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    return printed.out


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """Run a command that must be refused; returns the one line that it prints."""
    capsys.readouterr()
    assert main([str(argument) for argument in arguments]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith("robustda: error: ")
    return line.removeprefix("robustda: error: ")


# fit.


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("source.npz", "target.npz"),
        ("source.csv", "target.csv"),
        ("source.parquet", "target.parquet"),
        ("source.csv", "target.npz"),
        ("web", "camera"),
        ("paths.csv", "camera"),
    ],
)
def test_fit_takes_folders_tables_and_arrays(capsys, tmp_path, source, target):
    out = well(capsys, "fit", "--source", source, "--target", target, "--out", tmp_path / "run", *FAST)
    assert f"predictions in {tmp_path / 'run' / 'predictions.csv'}" in out
    assert "about 20% of the labels look wrong" in out
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    labelled = target in ("target.npz", "camera")
    assert (summary["target_accuracy"] is not None) == labelled
    assert ("target accuracy" in out) == labelled
    assert (tmp_path / "run" / "done").exists()


def test_options_may_be_written_with_dashes(capsys, tmp_path):
    given = ["fit", "--source", "source.npz", "--target", "target.npz", "--out", tmp_path / "run"]
    with pytest.raises(SystemExit):
        main([*map(str, given), "--batch-size", "16", "--backbone-rate=0.5", "--label", "a-b", "--print-config"])
    printed = capsys.readouterr().out.splitlines()
    assert {"batch_size: 16", "backbone_rate: 0.5", "label: a-b"} <= set(printed)


def test_the_form_of_the_data_does_not_change_what_is_learned(capsys, tmp_path):
    for ending in ("npz", "csv", "parquet"):
        out = tmp_path / ending
        well(capsys, "fit", "--source", f"source.{ending}", "--target", f"target.{ending}", "--out", out, *FAST)
    models = {(tmp_path / ending / "model.safetensors").read_bytes() for ending in ("npz", "csv", "parquet")}
    assert len(models) == 1


def test_columns_have_options_of_their_own(capsys, tmp_path):
    table = pd.read_csv("source.csv").rename(columns={"label": "kind"})
    table.insert(0, "number", [f"n{row}" for row in range(len(table))])
    table.to_csv(tmp_path / "s.csv", index=False)
    target = pd.read_csv("target.csv").assign(kind="ant", number=range(40))
    target.to_csv(tmp_path / "t.csv", index=False)
    columns = ["--label", "kind", "--id_column", "number"]
    files = ["--source", tmp_path / "s.csv", "--target", tmp_path / "t.csv"]
    well(capsys, "fit", *files, *columns, "--out", tmp_path / "run", *FAST)
    assert pd.read_csv(tmp_path / "run" / "trust.csv")["id"].iloc[2] == "n2"
    well(capsys, "predict", tmp_path / "run", tmp_path / "s.csv", *columns, "--out", tmp_path / "p.csv")
    assert pd.read_csv(tmp_path / "p.csv")["id"].iloc[2] == "n2"


def test_target_labels_may_be_ignored(capsys, tmp_path):
    files = ["--source", "source.npz", "--target", "other_classes.npz", "--out", tmp_path / "run"]
    assert "--target_labels ignore" in refused(capsys, "fit", *files, *FAST)
    well(capsys, "fit", *files, *FAST, "--target_labels", "ignore")
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["target_accuracy"] is None


@pytest.mark.parametrize("method", ["source_only", "mdd"])
def test_fit_takes_any_method(capsys, tmp_path, method):
    files = ["--source", "source.npz", "--target", "target.npz", "--out", tmp_path / "run"]
    out = well(capsys, "fit", "--method", method, *files, *BRIEF)
    assert "labels look wrong" not in out
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["method"] == method


def test_noise_rates_may_be_listed(capsys, tmp_path):
    files = ["--source", "source.npz", "--target", "target.npz", "--out", tmp_path / "run"]
    well(capsys, "fit", *files, *FAST, "--noise_rate", "[0.1, 0.2, 0.3, 0.4]")
    assert settings(tmp_path / "run")["noise_rate"] == [0.1, 0.2, 0.3, 0.4]


def test_a_failed_start_does_not_claim_the_folder(capsys, tmp_path):
    files = ["--source", "source.npz", "--target", "target.npz", "--out", tmp_path / "run"]
    assert "use identity, table or mlp" in refused(capsys, "fit", *files, *FAST, "--backbone", "small_cnn")
    well(capsys, "fit", *files, *FAST, "--backbone", "mlp")


# Config files and presets.


def settings(run: Path) -> dict[str, object]:
    return json.loads((run / "config.json").read_text())["params"]


def printed_config(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, object]:
    with pytest.raises(SystemExit) as end:
        main(["fit", *map(str, arguments), "--print_config"])
    assert end.value.code in (None, 0)
    return yaml.safe_load(capsys.readouterr().out)


def test_a_printed_config_gives_the_same_run(capsys, tmp_path):
    files = ["--source", "source.npz", "--target", "target.npz"]
    config = printed_config(capsys, *files, "--out", tmp_path / "a", *FAST, "--variant", "paper", "--alpha", "2.5")
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(config))
    assert printed_config(capsys, "--config", tmp_path / "c.yaml") == config
    well(capsys, "fit", *files, "--out", tmp_path / "a", *FAST, "--variant", "paper", "--alpha", "2.5")
    well(capsys, "fit", "--config", tmp_path / "c.yaml", "--out", tmp_path / "b")
    for name in ("config.json", "model.safetensors", "metrics.csv", "trust.csv", "predictions.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_the_command_line_wins_over_the_config_file(capsys, tmp_path):
    (tmp_path / "c.yaml").write_text("method: mdd\nsource: source.npz\ntarget: target.npz\nsteps: 3\nwidth: 4\n")
    for method in ("mdd", "source_only"):
        chosen = [] if method == "mdd" else ["--method", method]
        out = tmp_path / method
        well(capsys, "fit", "--config", tmp_path / "c.yaml", *chosen, "--steps=4", "--tensorboard=false", "--out", out)
        assert json.loads((out / "summary.json").read_text())["method"] == method
        assert (settings(out)["steps"], settings(out)["width"]) == (4, 4)


def test_a_variant_changes_the_defaults_from_wherever_it_comes(capsys, tmp_path):
    plain = printed_config(capsys, "--method", "rda")
    assert (plain["variant"], plain["alpha"]) == ("authors", 4.0)
    assert (plain["keep_rule"], plain["collect"], plain["proxy_size"]) == ("authors", "after", "shrink")
    (tmp_path / "c.yaml").write_text("method: rda\nvariant: paper\nalpha: 5.0\n")
    by_option = printed_config(capsys, "--method", "rda", "--variant", "paper")
    by_file = printed_config(capsys, "--config", tmp_path / "c.yaml")
    for found, alpha in ((by_option, 3.0), (by_file, 5.0)):
        assert found["variant"] == "paper"
        assert found["alpha"] == alpha  # what is given wins over the preset
        assert (found["learning_rate"], found["decay"], found["beta_rise"]) == (0.001, 0.0, 0.0)
        assert (found["keep_rule"], found["collect"], found["proxy_size"]) == ("paper", "before", "grow")
        assert (found["first_pair"], found["classifier_on"]) == (True, "proxy")
    both = printed_config(capsys, "--config", tmp_path / "c.yaml", "--variant", "authors")
    assert (both["variant"], both["keep_rule"], both["alpha"]) == ("authors", "authors", 5.0)


# predict.


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predict_writes_a_table(capsys, tmp_path, trained, ending):
    out = tmp_path / "deep" / "er" / f"p.{ending}"
    assert "40 predictions written" in well(capsys, "predict", trained, "target.npz", "--out", out)
    found = pd.read_csv(out, dtype={"id": str}) if ending == "csv" else pd.read_parquet(out)
    assert list(found.columns) == ["id", "prediction", "probability", "label"]
    assert found["id"].tolist() == [str(row) for row in range(40)]
    expected = pd.read_csv(trained / "predictions.csv", dtype={"id": str})
    assert found["prediction"].tolist() == expected["prediction"].tolist()
    np.testing.assert_allclose(found["probability"], expected["probability"], rtol=1e-6)
    assert [path.name for path in out.parent.iterdir()] == [out.name]


@pytest.mark.parametrize("switch", [["--probabilities"], ["--probabilities", "true"], ["--probabilities=true"]])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predict_with_probabilities(capsys, tmp_path, trained, ending, switch):
    out = tmp_path / f"p.{ending}"
    printed = well(capsys, "predict", trained, "target.csv", "--out", out, *switch)
    assert "agree with their label" not in printed
    found = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    shares = ["p(ant)", "p(bee)", "p(cat)", "p(dog)"]
    assert list(found.columns) == ["id", "prediction", "probability", *shares]
    np.testing.assert_allclose(found[shares].sum(axis=1), 1, atol=1e-5)
    assert found[shares].idxmax(axis=1).tolist() == [f"p({name})" for name in found["prediction"]]


def test_predict_scores_against_labels_that_are_there(capsys, tmp_path, trained):
    printed = well(capsys, "predict", trained, "source.csv", "--out", tmp_path / "p.csv")
    found = pd.read_csv(tmp_path / "p.csv")
    share = (found["prediction"] == found["label"]).mean()
    assert f"{share:.1%} of 60 labelled ones agree with their label" in printed


def test_predict_compares_only_labels_that_the_model_can_give(capsys, tmp_path, trained):
    known = pd.read_csv("source.csv")
    name = next(column for column in known.columns if known[column].isin(["ant", "bee", "cat", "dog"]).all())
    known[name] = ["elk"] * 3 + known[name].tolist()[3:]
    known.to_csv(tmp_path / "some.csv", index=False)
    printed = well(capsys, "predict", trained, tmp_path / "some.csv", "--out", tmp_path / "p.csv")
    assert "of 57 labelled ones agree with their label; 3 more have a label that is no class of the model" in printed
    known[name] = "monday"
    known.to_csv(tmp_path / "none.csv", index=False)
    printed = well(capsys, "predict", trained, tmp_path / "none.csv", "--out", tmp_path / "p.csv")
    assert "none of the labels is a class of the model ('monday'): nothing to compare with" in printed


def test_predict_a_folder_with_an_unreadable_image(capsys, tmp_path):
    well(capsys, "fit", "--source", "web", "--target", "camera", "--out", tmp_path / "run", *FAST)
    shutil.copytree("flat", tmp_path / "images")
    (tmp_path / "images" / "x.png").write_bytes(b"no image")
    with warnings.catch_warnings():
        warnings.simplefilter("always", RobustDAWarning)
        assert main(["predict", str(tmp_path / "run"), str(tmp_path / "images"), "--out", str(tmp_path / "p.csv")]) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("robustda: warning: 1 of 9 images")
    assert len(pd.read_csv(tmp_path / "p.csv")) == 8
    line = refused(capsys, "predict", tmp_path / "run", tmp_path / "images", "--out", tmp_path / "p.csv", "--strict")
    assert "1 of 9 images" in line


# corrupt.


def test_corrupt_a_folder(capsys, tmp_path):
    noisy = tmp_path / "noisy"
    printed = well(capsys, "corrupt", "web", "--kind", "mixed", "--rate", "0.8", "--blur", "2", "--out", noisy)
    record = pd.read_csv(noisy / "noise.csv")
    wrong, blurred = (record["label"] != record["given_label"]).sum(), record["blurred"].sum()
    assert f"24 examples: {wrong} with a wrong label, {blurred} with corrupted features → {noisy}" in printed
    assert 0 < wrong < 24
    assert 0 < blurred < 24
    assert len(Domain.from_folder(noisy)) == 24
    well(capsys, "fit", "--source", noisy, "--target", "camera", "--out", tmp_path / "run", *FAST)


@pytest.mark.parametrize("name", ["source.npz", "source.csv", "source.parquet"])
@pytest.mark.parametrize("ending", ["npz", "csv", "parquet"])
def test_corrupt_vectors(capsys, tmp_path, name, ending):
    out = tmp_path / f"noisy.{ending}"
    options = ["--kind", "mixed", "--rate", "0.6", "--seed", "5"]
    printed = well(capsys, "corrupt", name, *options, "--out", out)
    clean, noisy = Domain.read(name), Domain.read(out)
    changed, moved = (clean.labels != noisy.labels), (clean.x != noisy.x).any(axis=1)
    assert f"60 examples: {changed.sum()} with a wrong label, {moved.sum()} with corrupted features" in printed
    assert changed.any()
    assert moved.any()
    assert noisy.ids.tolist() == clean.ids.tolist()
    record = pd.read_csv(tmp_path / "noisy.noise.csv")
    np.testing.assert_array_equal(record["label"] != record["given_label"], changed)
    again = tmp_path / f"again.{ending}"
    well(capsys, "corrupt", name, *options, "--out", again)
    np.testing.assert_array_equal(Domain.read(again).x, noisy.x)


def test_corrupt_by_a_matrix_in_a_file(capsys, tmp_path):
    matrix = np.roll(np.eye(4), 1, axis=1)
    np.savetxt(tmp_path / "t.csv", matrix, delimiter=",")
    np.save(tmp_path / "t.npy", matrix)
    for file in ("t.csv", "t.npy"):
        options = ["--kind", "label", "--transition", tmp_path / file]
        well(capsys, "corrupt", "source.npz", *options, "--out", tmp_path / "noisy.npz")
        np.testing.assert_array_equal(Domain.read(tmp_path / "noisy.npz").y, (Domain.read("source.npz").y + 1) % 4)


# The other commands.


def test_methods_lists_them_and_shows_one(capsys):
    printed = well(capsys, "methods")
    for name in ("mdd", "rda", "source_only"):
        assert name in printed
    printed = well(capsys, "methods", "rda")
    assert "IJCAI 2020" in " ".join(printed.split())
    for word in ("--noise_rate", "--epochs", "--variant", "--seed", "authors", "paper"):
        assert word in printed


def test_version_overview_and_help(capsys):
    assert well(capsys, "--version") == f"robustda {__version__}\n"
    overview = well(capsys)
    assert well(capsys, "--help") == well(capsys, "-h") == overview
    for name in ("fit", "predict", "corrupt", "methods", "demo"):
        assert f"robustda {name}" in overview
        with pytest.raises(SystemExit) as end:
            main([name, "--help"])
        assert end.value.code in (None, 0)
        assert f"robustda {name}" in capsys.readouterr().out


def test_every_option_of_a_method_is_explained(capsys):
    with pytest.raises(SystemExit):
        main(["fit", "--method", "rda", "--help"])
    shown = capsys.readouterr().out
    for word in ("--noise_rate", "--source", "--checkpoint_seconds", "--strict", "--out", "--config", "--seed"):
        assert word in shown


# Mistakes.

VECTORS = "--source source.npz --target target.npz"
IMAGES = "--source web --target camera"

MISTAKES = {
    # The data.
    "an empty folder": ("fit --source empty --target camera", "no images in empty", ".jpg, .png"),
    "a class missing in the source": ("fit --source missing_class --target camera", "'dog'", "add examples"),
    "one class only, folder": ("fit --source one_class --target camera", "one class only ('ant')", "two are needed"),
    "one class only, arrays": ("fit --source one_class.npz --target target.npz", "one class only ('ant')", "two are"),
    "no class folders": ("fit --source flat --target camera", "no class folders", "in a sub-folder of its name"),
    "NaN features": ("fit --source nan.csv --target target.csv", "1 of 60 rows in nan.csv have NaN", "fill them in"),
    "different widths": ("fit --source source.npz --target narrow.npz", "source.npz has 10 and narrow.npz has 5"),
    "a column fewer": ("fit --source narrow.csv --target target.csv", "only one of them has: 'f9'"),
    "no such label column": (f"fit {VECTORS.replace('npz', 'csv')} --label labl", "did you mean 'label'?"),
    "no label column": ("fit --source unlabelled.csv --target target.csv", "no label column 'label'", "name the label"),
    "no such path column": (f"fit {VECTORS.replace('npz', 'csv')} --path_column p", "no column 'p'", "there are: 'f0'"),
    "no rows": ("fit --source no_rows.csv --target target.csv", "no_rows.csv has no rows"),
    "no source there": ("fit --source nowhere.npz --target target.npz", "nothing at nowhere.npz: check the path"),
    "no target there": ("fit --source source.npz --target nowhere", "nothing at nowhere: check the path"),
    "an unknown extension": ("fit --source thing.xyz --target target.npz", "cannot tell what thing.xyz is", ".parquet"),
    "a broken .npz": ("fit --source broken.npz --target target.npz", "cannot be read", "save it again with np.savez"),
    "a broken .parquet": ("fit --source broken.parquet --target target.npz", "cannot be read", "save it again"),
    "vectors against images": ("fit --source source.npz --target camera", "both must be of one kind"),
    "unknown classes in the target": ("fit --source source.npz --target other_classes.npz", "'yak'", "ignore"),
    # The settings.
    "no steps": (f"fit {VECTORS} --steps 0", "steps is 0: give a number of at least 1"),
    "half a step": (f"fit {VECTORS} --steps 2.5", "steps is '2.5': give a whole number"),
    "a word for a number": (f"fit {VECTORS} --width wide", "width is 'wide': give a whole number"),
    "a batch of one": (f"fit {VECTORS} --batch_size 1", "batch_size is 1: give a number of at least 2"),
    "dropout of one": (f"fit {VECTORS} --dropout 1", "dropout is 1.0: give a number from 0 to 1, less than 1"),
    "a negative rate": (f"fit {VECTORS} --learning_rate -1", "learning_rate is -1.0: give a number of at least 0"),
    "a rate that is no number": (f"fit {VECTORS} --learning_rate nan", "learning_rate is 'nan': give a number"),
    "more noise than all": (f"fit {VECTORS} --noise_rate 1.5", "noise_rate is 1.5: give auto, a number from 0 up to 1"),
    "a word for a noise rate": (f"fit {VECTORS} --noise_rate some", "noise_rate is 'some': give a number or auto or a"),
    "noise rates for other classes": (f"fit {VECTORS} --noise_rate [0.1,0.2]", "2 numbers for 4 classes"),
    "a negative seed": (f"fit {VECTORS} --seed -1", "seed is -1: give a number of at least 0"),
    "no such choice": (f"fit {VECTORS} --estimator best", "estimator is 'best': give one of combined, confident,"),
    "neither true nor false": (f"fit {VECTORS} --del_ocl maybe", "del_ocl is 'maybe': give true or false"),
    "no such variant": (f"fit {VECTORS} --variant papr", "variant is 'papr': choose one of authors, paper"),
    "no such method": (f"fit {VECTORS} --method rdq", "there is no method 'rdq': choose one of", "source_only"),
    "no such option": (f"fit {VECTORS} --stepz 3", "--stepz", "did you mean steps?", "fit --help"),
    "an abbreviation": (f"fit {VECTORS} --meth mdd", "--meth", "did you mean method?"),
    "an option of another method": (f"fit {VECTORS} --method mdd --noise_rate 0.1", "--noise_rate", "fit --help"),
    "something left over": (f"fit {VECTORS} elsewhere", "unrecognized arguments: elsewhere", "fit --help"),
    "no source": ("fit --target target.npz", "required", "source"),
    "a value forgotten": (f"fit {VECTORS} --steps", "--steps", "expected one argument"),
    "no such backbone": (f"fit {IMAGES} --backbone nosuch", "no backbone is called 'nosuch': use identity, table, mlp"),
    "a backbone for images": (f"fit {VECTORS} --backbone small_cnn", "use identity, table or mlp"),
    "a backbone for vectors": (f"fit {IMAGES} --backbone mlp", "use small_cnn or a timm name"),
    "weights that are not there": (
        f"fit {IMAGES} --backbone small_cnn --weights no.safetensors",
        "no weights file no.safetensors: give",
    ),
    "unreadable weights": (
        f"fit {IMAGES} --backbone small_cnn --weights broken.safetensors",
        "not a safetensors file",
        "convert",
    ),
    "no such device": (f"fit {VECTORS} --device cuda:99", "device 'cuda:99' cannot be used here: give cpu, or auto"),
    "logging never": (f"fit {VECTORS} --log_every 0", "log_every is 0: give a number of at least 1"),
    "out is a file": (f"fit {VECTORS} --out source.npz", "cannot write to the run folder source.npz", "another --out"),
    "out lies below a file": (f"fit {VECTORS} --out source.npz/run", "cannot write to the run folder", "another --out"),
    "diverging": (f"fit {VECTORS} --learning_rate 1e20", "training diverged", "smaller learning rate"),
    # The config file.
    "no config there": ("fit --config nowhere.yaml", "nowhere.yaml", "does not exist"),
    "a config that is no YAML": (f"fit {VECTORS} --config broken.yaml", "broken.yaml is not YAML"),
    "an unknown key": (f"fit {VECTORS} --config unknown_key.yaml", "'stepz'", "did you mean steps?"),
    "a list": (f"fit {VECTORS} --config list.yaml", "config", "fit --help"),
    "an odd method": (f"fit {VECTORS} --config odd_method.yaml", "there is no method", "choose one of"),
    "an odd variant": (f"fit {VECTORS} --config odd_variant.yaml", "variant is", "choose one of authors, paper"),
    # predict.
    "nothing to predict": ("predict trained", "required", "data"),
    "no run there": ("predict nowhere target.npz --out p.csv", "nowhere holds no finished run: give the --out folder"),
    "no run in it": ("predict web target.npz --out p.csv", "web holds no finished run"),
    "predictions of an unknown kind": ("predict trained target.npz --out p.txt", "end the name with .csv or .parquet"),
    "predictions below a file": ("predict trained target.npz --out target.npz/p.csv", "cannot write", "another place"),
    "predicting the wrong width": ("predict trained narrow.npz --out p.csv", "vectors of 10 features", "these have 5"),
    "predicting the wrong kind": ("predict trained camera --out p.csv", "trained on vectors, not images"),
    "predicting what is not there": ("predict trained nowhere.csv --out p.csv", "nothing at nowhere.csv"),
    # corrupt.
    "corrupting what is not there": ("corrupt nowhere --out c.npz", "nothing at nowhere: check the path"),
    "corrupting an empty folder": ("corrupt empty --out noisy", "no images in empty"),
    "corrupting without labels": ("corrupt unlabelled.csv --out c.csv", "no label column"),
    "corrupting into the unknown": ("corrupt source.npz --out c.txt", "end the name with .npz, .csv or .parquet"),
    "corrupting over something": ("corrupt web --out camera", "camera exists", "choose a new one"),
    "corrupting into itself": ("corrupt web --out web/noisy", "lies inside web", "choose another folder"),
    "corrupting a list of files": ("corrupt paths.csv --out c.npz", "paths.csv lists image files: give a folder"),
    "corrupting too much": ("corrupt source.npz --out c.npz --rate 3", "rate is 3.0: give a share from 0 to 1"),
    "corrupting in another way": ("corrupt source.npz --out c.npz --kind odd", "give one of label, feature, mixed"),
    "a transition without a name": ("corrupt source.npz --out c.npz --transition odd", "choose symmetric, uniform"),
    "a transition that is not there": ("corrupt source.npz --out c.npz --transition no.csv", "no.csv cannot be read"),
    "a negative blur": ("corrupt web --out noisy --blur -1", "blur is -1.0: give"),
    # The rest.
    "a command misspelt": ("fti", "there is no command 'fti': did you mean fit?"),
    "no such command": ("xyz", "choose one of fit, predict, export, features"),
    "no such method to show": ("methods rdaa", "there is no method 'rdaa': choose one of"),
    "no seeds": ("demo --seeds 0", "seeds is 0: give a number of at least 1"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_that_says_what_to_do(capsys, tmp_path, trained, mistake):
    given, *words = MISTAKES[mistake]
    arguments = given.split()
    if arguments[0] == "fit" and "--out" not in arguments:
        arguments += ["--out", str(tmp_path / "run"), "--tensorboard", "false"]
        if "mdd" not in arguments:
            arguments += ["--epochs", "1"]
        if "--method" not in given and "odd_method" not in given:
            arguments += ["--method", "rda"]
    before = sorted(Path().rglob("*"))
    line = refused(capsys, *arguments)
    for word in words:
        assert word in line
    assert sorted(Path().rglob("*")) == before  # nothing is left behind


def test_corrupting_below_a_file_is_one_line(capsys):
    line = refused(capsys, "corrupt", "source.npz", "--out", "source.npz/c.npz")
    assert "choose another place" in line


# As a user runs it.


def test_the_real_command_from_folders_to_predictions(command_line, folders, tmp_path):
    (folders.source / "ant" / "x.jpg").write_bytes(b"no image")
    run = tmp_path / "run"
    done = command_line("fit", "--source", folders.source, "--target", folders.target, "--out", run, *FAST)
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        f"robustda: warning: 1 of 25 images in {folders.source} cannot be read "
        f"({folders.source / 'ant' / 'x.jpg'}: not an image that Pillow can read): they are left out"
    ]
    assert "target accuracy" in done.stdout
    done = command_line("predict", run, folders.target, "--out", tmp_path / "p.csv")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(pd.read_csv(tmp_path / "p.csv")) == 24
    done = command_line("fit", "--source", folders.source, "--target", folders.target, "--out", run, "--strict", *FAST)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "1 of 25 images" in line


def test_the_real_command_refuses_a_mistake_with_one_line(command_line):
    done = command_line("fit", "--source", "empty", "--target", "camera", "--out", "nowhere")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "robustda: error: no images in empty: nothing there ends in .jpg, .png or another of Pillow's endings"
    ]


def test_an_interrupt_from_the_keyboard_is_one_line(tmp_path):
    files = ["--source", "source.npz", "--target", "target.npz", "--out", tmp_path / "run"]
    endless = command("fit", *files, *FAST, "--steps=1000000")
    with subprocess.Popen(endless, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        while not (tmp_path / "run" / "checkpoints").exists():
            time.sleep(0.01)
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        printed = process.communicate()[1]
    assert process.returncode == 130
    assert printed == "robustda: interrupted; the same command with --out takes it up again\n"


def test_output_that_nobody_reads_to_its_end_is_no_trouble():
    reading, writing = os.pipe()
    os.close(reading)  # as `| head` does once it has its lines
    with os.fdopen(writing, "w") as nowhere:
        done = subprocess.run(
            command("--help"), env=environment(), stdout=nowhere, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_warnings_are_shown_as_before_once_the_command_is_over(capsys):
    shown = warnings.showwarning
    well(capsys, "--version")
    assert warnings.showwarning is shown

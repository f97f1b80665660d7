"""The audit: its numbers, its files, what it makes of bad input; and decisions, from the table to the fit."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import robustda
from conftest import make_pair
from robustda import RDA, Domain, apply_decisions, audit
from robustda.cli import main
from robustda.data.catalog import office31_draw, office31_features
from robustda.decisions import read_decisions
from robustda.errors import ConfigError, DataError, RobustDAWarning
from robustda.report.page import as_json, assemble, payload
from robustda.report.transfer import measure_transfer

HOSTILE = '</script><img src=x onerror="hacked=1">\u2028@@style@@'
QUICK = {"device": "cpu", "progress": False, "tensorboard": False}


def clouds(rate: float = 0.3, size: int = 400, **how: object) -> tuple[Domain, np.ndarray]:
    """A source with so many wrong labels, and which they are."""
    found = make_pair(size=size, rate=rate, **how)
    return found.source, found.record.wrong_labels


def test_it_finds_the_wrong_labels_and_their_share():
    source, wrong = clouds()
    found = audit(source)
    low, high = found.noise.combined.interval
    assert low - 0.02 <= wrong.mean() <= high + 0.02
    assert wrong[found.issues].mean() > 0.85
    assert found.issues[wrong].mean() > 0.8
    assert re.match(r"About \d+\s% of the labels look wrong \(\d+\sto\s\d+\s%\)", found.headline[0])


def test_the_classes_that_are_worst_are_named():
    source, _ = clouds(rate=0.0)
    rng = np.random.default_rng(0)
    cats = np.flatnonzero(source.y == 2)
    codes = source.y.copy()
    codes[rng.choice(cats, 35, replace=False)] = 1
    found = audit(source.with_labels(codes))
    assert found.headline[0].endswith(": bee is worst.")
    assert found.noise.combined.rates.argmax() == 1


def test_clean_data_look_clean():
    x = np.repeat(np.eye(4, 10), 60, axis=0) * 6 + np.random.default_rng(0).normal(size=(240, 10))
    found = audit(Domain.from_arrays(x, np.repeat(["a", "b", "c", "d"], 60)))
    assert found.headline[0].startswith("The data look clean")
    assert found.issues.mean() <= 0.03


def test_one_bad_class_among_clean_ones_is_not_hidden():
    rng = np.random.default_rng(0)
    true = np.repeat(np.arange(20), 40)
    given = true.copy()
    given[:19] = 1  # nearly half of class 0's examples are given label 1
    x = (np.eye(20) * 8)[true] + rng.normal(size=(800, 20))
    found = audit(Domain.from_arrays(x, np.char.add("class ", given.astype(str))))
    assert "Most of the data look clean" in found.headline[0]
    assert "class 1 look wrong" in found.headline[0]


def with_strangers(strangers: int, width: int = 200) -> tuple[Domain, np.ndarray]:
    """Twelve classes, and examples of four others, each with any of the twelve labels; and which these are."""
    rng = np.random.default_rng(1)
    true = np.r_[np.repeat(np.arange(12), 40), 12 + np.arange(strangers) % 4]
    strange = true >= 12
    given = np.where(strange, rng.integers(0, 12, len(true)), true)
    x = (np.eye(16, width) * 5)[true] + rng.normal(size=(len(true), width))
    return Domain.from_arrays(x, np.char.add("class ", given.astype(str))), strange


def test_what_is_of_no_class_is_said_and_listed_but_not_called_a_wrong_label(tmp_path: Path):
    source, strange = with_strangers(160)
    found = audit(source, out=tmp_path)
    assert found.unlike[strange].mean() > 0.6
    assert found.unlike[~strange].mean() < 0.02
    assert not (found.unlike & found.issues).any()
    assert "clean" not in found.headline[1]
    share = re.search(r"([\d]+) examples resemble no class, not even that of the label \((\d+)\s%\)", found.headline[0])
    assert share is not None
    assert (
        int(share[1])
        == found.unlike.sum()
        == json.loads((tmp_path / "audit.json").read_text())["issues"]["like_no_class"]
    )
    table = pd.read_csv(tmp_path / "issues.csv")
    listed = set(table.loc[table["like_no_class"], "id"].astype(str))
    assert listed == set(source.ids[found.unlike].tolist())
    assert (table.loc[table["like_no_class"], "confidence"] < 0.5).all()
    content = payload(found)["suspects"]
    assert sum(content["unlike"]) == found.unlike.sum()
    assert max(np.array(content["confidence"])[np.array(content["unlike"], dtype=bool)]) < 0.5


def test_where_all_are_of_some_class_or_classes_are_few_nothing_is_like_none():
    source, _ = with_strangers(0)
    found = audit(source)
    assert found.unlike.mean() < 0.01
    assert "resemble" not in " ".join(found.headline)
    assert found.headline[0].startswith("The data look clean")
    rng = np.random.default_rng(0)
    hopeless = audit(Domain.from_arrays(rng.normal(size=(200, 200)), rng.integers(0, 4, 200)))
    assert not hopeless.unlike.any()


def test_the_files_say_the_same(tmp_path: Path):
    source, _ = clouds()
    found = audit(source, out=tmp_path / "deep" / "audit")
    folder = tmp_path / "deep" / "audit"
    assert sorted(path.name for path in folder.iterdir()) == ["audit.html", "audit.json", "issues.csv"]
    written = json.loads((folder / "audit.json").read_text())
    assert written["headline"] == found.headline
    assert set(written["noise_rate"]) == {"combined", "confident", "likelihood", "anchor", "mixture"}
    assert written["noise_rate"]["combined"]["rate"] == pytest.approx(found.rate, abs=1e-4)
    assert [entry["name"] for entry in written["classes"]] == ["ant", "bee", "cat", "dog"]
    assert sum(entry["examples"] for entry in written["classes"]) == len(source)
    np.testing.assert_allclose(np.sum(written["transition"]["matrix"], axis=1), 1, atol=1e-3)
    table = pd.read_csv(folder / "issues.csv", dtype={"id": str}, keep_default_na=False)
    assert table["id"].tolist() == source.ids[found.suspects].tolist()
    assert table["probability_wrong"].is_monotonic_decreasing
    row = int(found.suspects[0])
    assert table["given_label"][0] == source.labels[row]
    assert table["suggested_label"][0] == source.classes[found.evidence.suggested[row]]


def test_the_same_data_give_the_same_files(tmp_path: Path):
    source, _ = clouds(size=120)
    pages = [audit(source, out=tmp_path / name).save(tmp_path / name).read_bytes() for name in "ab"]
    assert pages[0] == pages[1]
    assert audit(source).digest != audit(source.take(np.arange(1, 120))).digest


def test_nothing_from_the_data_is_markup():
    source, _ = clouds(size=120)
    names = np.array([HOSTILE, "bee", "cat", "dog"])
    ids = [f"{HOSTILE}{i}" for i in range(len(source))]
    found = audit(Domain.from_arrays(source.x, names[source.y], ids=ids, name=HOSTILE))
    page = assemble(payload(found))
    assert page.count("<script") == 2
    assert "onerror=" not in page.replace('onerror=\\"', "")
    assert "\u2028" not in page
    assert "<img" not in page
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert not set("<>&") & set(data)
    read = json.loads(data)
    assert HOSTILE in read["names"]
    assert read["source"] == HOSTILE
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none'; img-src data:;")
    assert "unsafe" not in policy


def test_json_keeps_what_it_is_given():
    text = "<>&\u2028\u2029\"'\\ 😀 é"
    assert json.loads(as_json([text])) == [text]


def test_pictures_are_small_and_only_of_images(folders, tmp_path: Path):
    found = audit(folders.source, folders.target, cache_dir=str(tmp_path))
    assert found.described_by == "pixels"
    assert found.transfer is not None
    content = payload(found)
    assert all(picture.startswith("data:image/jpeg;base64,") for picture in content["suspects"]["picture"])
    assert payload(audit(clouds(size=80)[0]))["suspects"]["picture"] == []


def test_photographs_without_pretrained_weights_are_warned_about():
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (24, 80, 80, 3), dtype=np.uint8)
    source = Domain.from_arrays(images, np.arange(24) % 2)
    with pytest.warns(RobustDAWarning, match="no pretrained weights"):
        found = audit(source, backbone="resnet18", weights="random", image_size=80)
    assert any("pixels alone" in sentence for sentence in found.headline)


def test_features_made_before_are_matched_by_id(folders, tmp_path: Path):
    images = Domain.from_folder(folders.source)
    x = np.eye(3, 6)[images.y] * 5 + np.random.default_rng(0).normal(size=(len(images), 6))
    mixed = np.random.default_rng(1).permutation(len(images))
    Domain.from_arrays(x[mixed], ids=images.ids[mixed]).save_npz(tmp_path / "features.npz")
    by_file = audit(images, features=tmp_path / "features.npz")
    by_array = audit(images, features=x)
    assert by_file.described_by == "given features"
    (tmp_path / "decisions.csv").write_text(f"id,decision,label\n{images.ids[0]},drop,\n")
    assert len(audit(images, features=x, decisions=tmp_path / "decisions.csv").source) == len(images) - 1
    np.testing.assert_allclose(by_file.evidence.wrong, by_array.evidence.wrong)
    with pytest.raises(DataError, match="give a row for each"):
        audit(images, features=x[1:])
    with pytest.raises(DataError, match="lack 1 example"):
        audit(images, features=Domain.from_arrays(x[1:], ids=images.ids[1:]))


def test_copies_with_different_labels_are_suspects():
    source, _ = clouds(rate=0.0)
    x, codes = source.x.copy(), source.y.copy()
    x[1], x[3] = x[0], x[0]
    codes[[0, 1, 3]] = [0, 0, 1]
    found = audit(Domain.from_arrays(x, source.classes[codes]))
    assert {0, 1, 3} <= set(found.suspects.tolist())
    assert found.copy_of[[0, 1, 3]].tolist() == [3, 3, 0]
    assert found.copy_of[5] == -1
    table = found.table().set_index("id")
    assert table.loc["0", "duplicate_of"] == "3"
    assert bool(table.loc["0", "duplicate_conflict"])


def test_how_far_the_target_is(tmp_path: Path):
    near, far = make_pair(rate=0.1, shift=0.0), make_pair(rate=0.1, shift=8.0)
    alike, apart = audit(near.source, near.target), audit(far.source, far.target, out=tmp_path)
    assert alike.transfer.distance < 0.4 < 1.5 < apart.transfer.distance
    assert any("look alike" in sentence for sentence in alike.headline)
    assert any("easy to tell apart" in sentence for sentence in apart.headline)
    assert "Every class of the source seems to occur in the target." in alike.headline
    written = json.loads((tmp_path / "audit.json").read_text())["target"]
    assert written["proxy_a_distance"] == pytest.approx(apart.transfer.distance, abs=1e-4)
    assert alike.transfer.terms.discrepancy.value < 0.2 < apart.transfer.terms.discrepancy.value
    assert written["terms"]["discrepancy"]["value"] == pytest.approx(apart.transfer.terms.discrepancy.value, abs=1e-4)
    assert [row["times"] for row in written["terms"]["bound"]] == [1, 2, 4, 10]
    assert set(written["terms"]["meaning"]) == {"risk", "discrepancy", "proxy", "divergence", "bound"}
    assert written["terms"]["sample_sizes"]["proxy"] <= written["terms"]["sample_sizes"]["source"] == len(far.source)


def test_the_accuracy_to_expect(tmp_path: Path):
    made = make_pair(rate=0.2, shift=1.0, size=400, target_size=400)
    found = audit(made.source, made.target, out=tmp_path)
    model = robustda.ConcordClassifier().fit(made.source.x, made.source.labels, X_target=made.target.x)
    value, low, high = found.transfer.adapted
    assert low <= model.score(made.target.x, made.target.labels) <= high
    assert high - low < 0.3
    (said,) = (sentence for sentence in found.headline if sentence.startswith("Without labels of the target"))
    best = max(found.transfer.adapted, found.transfer.plain)
    assert f"should get about {100 * best.value:.0f}\N{NO-BREAK SPACE}% (" in said
    assert "guess" not in said
    written = json.loads((tmp_path / "audit.json").read_text())["target"]["expected_accuracy"]
    assert written["adapted"]["value"] == pytest.approx(value, abs=1e-4)
    assert written["plain"]["interval"] == pytest.approx(found.transfer.plain[1:], abs=1e-4)


def test_a_guess_is_called_one():
    rng = np.random.default_rng(0)
    found = audit(make_pair(size=160).source, Domain.from_arrays(rng.normal(size=(200, 10)) * 3))
    (said,) = (sentence for sentence in found.headline if sentence.startswith("Without labels of the target"))
    assert said.endswith("a guess, as there are few examples, classes overlap or classifiers disagree.")


def test_labels_of_the_target_are_not_looked_at():
    made = make_pair(size=160)
    mixed = made.target.with_labels(np.roll(made.target.y, 1))
    first, second = (payload(audit(made.source, target))["transfer"] for target in (made.target, mixed))
    assert first == second


def test_losses_and_their_threshold():
    source, wrong = clouds(rate=0.3)
    found = audit(source)
    shown = payload(found)["losses"]
    assert sum(shown["right"]) + sum(shown["wrong"]) == len(source)
    assert sum(shown["wrong"]) == found.issues.sum()
    beyond = found.losses >= found.loss_threshold
    assert wrong[beyond].mean() > 0.8 > 0.2 > wrong[~beyond].mean()


def test_classes_that_the_target_lacks():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(6, 12)) * 3
    codes = np.arange(300) % 6
    source = (centres[codes] + rng.normal(size=(300, 12))).astype(np.float32)
    kept = codes[codes != 4]
    target = (centres[kept] + rng.normal(size=(len(kept), 12)) + 0.5).astype(np.float32)
    assert measure_transfer(source, codes, 6, target).missing.tolist() == [4]
    found = audit(Domain.from_arrays(source, codes), Domain.from_arrays(target))
    assert any(sentence.startswith("The target seems to lack 4: ") for sentence in found.headline)


@pytest.mark.parametrize(
    ("make", "advice"),
    [
        (lambda d: d.unlabelled(), "has no labels"),
        (lambda d: d.take(d.y == 0), "one class only"),
        (lambda d: d.take(np.arange(6)), "give at least 12|no example of"),
    ],
)
def test_bad_sources_are_answered_by_one_line(make, advice):
    with pytest.raises(DataError, match=advice) as error:
        audit(make(clouds(size=80)[0]))
    assert "\n" not in str(error.value)


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="choose another place"):
        audit(clouds(size=60)[0], out=tmp_path / "file" / "audit")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    made = make_pair(size=160)
    for name, domain in (("web", made.source), ("camera", made.target)):
        table = pd.DataFrame(domain.x).add_prefix("x")
        table["kind"] = domain.labels
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    arguments = [str(tmp_path / "web.csv"), "--target", str(tmp_path / "camera.csv"), "--label", "kind"]
    assert main(["audit", *arguments, "--out", str(tmp_path / "audit")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("About ")
    assert said[-1].endswith(f"open {tmp_path / 'audit' / 'audit.html'} in a browser")
    assert main(["audit", "--source", *arguments, "--out", str(tmp_path / "again")]) == 0  # as for fit
    assert (tmp_path / "again" / "issues.csv").read_bytes() == (tmp_path / "audit" / "issues.csv").read_bytes()
    capsys.readouterr()
    assert main(["audit", str(tmp_path / "nowhere"), "--out", str(tmp_path / "audit")]) == 2
    assert capsys.readouterr().err.startswith("robustda: error: there is nothing at ")


def test_decisions_are_applied(tmp_path: Path):
    source = Domain.from_arrays(np.eye(4), ["a", "b", "a", "b"], ids=["1", "2", 'x,"y"\n', "\u2028😀"])
    path = tmp_path / "decisions.csv"
    path.write_text('id,decision,label\n1,keep,a\n"x,""y""\n",relabel,b\n\u2028😀,drop,\n', encoding="utf-8")
    changed = apply_decisions(source, path)
    assert changed.ids.tolist() == ["1", "2", 'x,"y"\n']
    assert changed.labels.tolist() == ["a", "b", "b"]
    assert source.labels.tolist() == ["a", "b", "a", "b"]
    assert read_decisions(path).confirmed == {"1", 'x,"y"\n'}
    assert apply_decisions(Domain.from_arrays(np.eye(4), [0, 1, 0, 1], ids=source.ids), _relabel(path, "1")).y[0] == 1


def _relabel(path: Path, label: str) -> Path:
    path.write_text(f"id,decision,label\n1,relabel,{label}\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("", "no column 'id'"),
        ("id,decision\n1,keep\n", "no column 'label'"),
        ("id,decision,label\n7,keep,a\n", "decides about 1 example that the data does not have, first '7'"),
        ("id,decision,label\n1,relabel,c\n", "'c', which is no class"),
        ("id,decision,label\n1,relabel,\n", "gives no label"),
        ("id,decision,label\n1,perhaps,a\n", "is 'perhaps': write keep, relabel, drop"),
        ("id,decision,label\n1,keep,a\n1,drop,\n", "decides twice about '1'"),
        (f"id,decision,label\n{'1' * 200_000},keep,a\n", "not a table (field larger"),
        ("id,decision,label\n1,keep\n", "has 2 fields for 3 columns"),
    ],
)
def test_decisions_that_make_no_sense_are_answered_by_one_line(tmp_path: Path, text: str, advice: str):
    path = tmp_path / "decisions.csv"
    path.write_text(text)
    with pytest.raises(DataError, match=re.escape(advice)) as error:
        apply_decisions(Domain.from_arrays(np.eye(2), ["a", "b"], ids=["1", "2"]), path)
    assert "\n" not in str(error.value)


def test_decisions_that_cannot_be_read(tmp_path: Path):
    with pytest.raises(DataError, match="check the path"):
        read_decisions(tmp_path / "nowhere.csv")
    (tmp_path / "latin.csv").write_bytes("id,decision,label\né,keep,a\n".encode("latin-1"))
    with pytest.raises(DataError, match="not UTF-8"):
        read_decisions(tmp_path / "latin.csv")


def test_suggestions_of_the_audit_mend_the_source(tmp_path: Path):
    source, wrong = clouds()
    found = audit(source)
    table = found.table()
    relabelled = table[table["label_issue"]]
    rows = pd.DataFrame({"id": relabelled["id"], "decision": "relabel", "label": relabelled["suggested_label"]})
    rows.to_csv(tmp_path / "decisions.csv", index=False)
    again = audit(source, decisions=tmp_path / "decisions.csv")
    assert again.rate < 0.05 < wrong.mean()
    assert len(again.source) == len(source)


def test_fit_applies_decisions_trusts_them_and_records_them(tmp_path: Path):
    made = make_pair(size=120)
    path = tmp_path / "decisions.csv"
    wrong = np.flatnonzero(made.record.wrong_labels)
    right = dict(zip(made.record.ids.tolist(), made.record.labels.tolist(), strict=True))
    lines = [f"{made.source.ids[row]},relabel,{right[made.source.ids[row]]}" for row in wrong[:10]]
    lines += [f"{made.source.ids[row]},drop," for row in wrong[10:15]]
    path.write_text("\n".join(["id,decision,label", *lines]) + "\n")
    how = {"steps": 4, "epochs": 2, "width": 8, "noise_rate": 0.9}
    model = RDA(**how).fit(made.source, made.target, out=tmp_path / "run", decisions=path, **QUICK)
    trust = pd.read_csv(tmp_path / "run" / "trust.csv", dtype={"id": str}).set_index("id")
    assert len(trust) == len(model.trust_) == 115
    assert (trust.loc[made.source.ids[wrong[:10]], "weight"] == 1).all()
    assert trust["weight"].mean() < 0.4
    assert trust.loc[made.source.ids[wrong[0]], "given_label"] == right[made.source.ids[wrong[0]]]
    assert (tmp_path / "run" / "decisions.csv").read_bytes() == path.read_bytes()
    with pytest.raises(robustda.RobustDAError, match="other settings"):
        RDA(**how).fit(made.source, made.target, out=tmp_path / "run", **QUICK)


@pytest.mark.skipif("ROBUSTDA_DATA" not in os.environ, reason="ROBUSTDA_DATA does not name the folder with Office-31")
def test_office31_with_the_authors_noise():
    clean = office31_features(None, "webcam")
    noisy = office31_draw(None, "webcam", "label", 0.4).apply(clean)
    found = audit(noisy, office31_features(None, "dslr"))
    wrong = noisy.y != clean.y
    assert abs(found.rate - wrong.mean()) <= 0.03
    both = (found.issues & wrong).sum()
    assert 2 * both / (found.issues.sum() + wrong.sum()) >= 0.93
    assert not len(found.transfer.missing)
    assert audit(clean).headline[0].startswith("The data look clean")

"""fit, predict and load: what goes in comes out in its own names, and nothing depends on what it should not."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pandas as pd
import pytest
import torch

from conftest import make_pair
from robustda import MDD, RDA, Domain, SourceOnly, create_method, load
from robustda.errors import ConfigError, DataError, RobustDAWarning, RunError
from robustda.files import load_tensors
from robustda.methods import Method
from robustda.noise import corrupt
from robustda.predict import predict_table

SMALL = {"width": 8, "steps": 20, "batch_size": 16}
RUNTIME = {"device": "cpu", "tensorboard": False}


def small_rda(**params) -> RDA:
    return RDA(**{**SMALL, "epochs": 2, "noise_rate": 0.4, **params})


@pytest.fixture(params=["source_only", "mdd", "rda"])
def method(request) -> Method:
    return small_rda() if request.param == "rda" else create_method(request.param, **SMALL)


def weights(method: Method) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in method.network_.state_dict().items()}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def one_line(error: pytest.ExceptionInfo) -> str:
    assert "\n" not in str(error.value)
    return str(error.value)


# Out, and back in.


def test_a_loaded_run_predicts_the_same(pair, tmp_path, method):
    method.fit(pair.source, pair.target, out=tmp_path / "run", **RUNTIME)
    again = load(tmp_path / "run", device="cpu")
    assert type(again) is type(method)
    assert again.params() == method.params()
    np.testing.assert_array_equal(again.predict_proba(pair.target), method.predict_proba(pair.target))
    np.testing.assert_array_equal(again.predict(pair.target), method.predict(pair.target))
    np.testing.assert_array_equal(again.classes_, method.classes_)
    assert again.summary_ == method.summary_
    assert again.example_shape_ == method.example_shape_
    pd.testing.assert_frame_equal(again.history_, method.history_)
    assert hasattr(again, "trust_") == (method.name == "rda")
    if method.name == "rda":
        np.testing.assert_array_equal(again.trust_, method.trust_)
        assert again.trust_.dtype == method.trust_.dtype
        assert again.noise_rate_ == method.noise_rate_


def test_a_run_on_images_predicts_the_same_when_loaded(folders, tmp_path):
    model = small_rda().fit(Domain.read(folders.source), Domain.read(folders.target), out=tmp_path / "run", **RUNTIME)
    again = load(tmp_path / "run", device="cpu")
    expected = model.predict_proba(folders.target)
    assert expected.shape == (24, 3)
    np.testing.assert_array_equal(again.predict_proba(folders.target), expected)
    np.testing.assert_array_equal(again.predict_proba(Domain.from_folder(folders.target)), expected)
    assert again.image_size_ == model.image_size_ > 0


def test_a_path_will_do_for_a_domain(folders):
    by_path = SourceOnly(**SMALL).fit(folders.source, str(folders.target), **RUNTIME)
    by_domain = SourceOnly(**SMALL).fit(Domain.read(folders.source), Domain.read(folders.target), **RUNTIME)
    assert same(weights(by_path), weights(by_domain))


def test_arrays_are_told_where_they_belong(pair):
    x, y = pair[0].x, pair[0].y
    with pytest.raises(DataError) as error:
        SourceOnly(**SMALL).fit(x, y)
    assert "source is of type ndarray" in one_line(error)
    assert "SourceOnlyClassifier().fit(X, y, X_target=...)" in one_line(error)
    with pytest.raises(DataError, match="the target is of type list"):
        SourceOnly(**SMALL).fit(pair[0], [1, 2])


@pytest.mark.parametrize(("given", "says"), [("eval_evry", "did you mean eval_every?"), ("X_target", "it has device")])
def test_an_option_that_fit_does_not_have_is_named(pair, given, says):
    with pytest.raises(ConfigError) as error:
        SourceOnly(**SMALL).fit(*pair[:2], **{given: 3})
    assert f"fit has no option '{given}'" in one_line(error)
    assert says in one_line(error)


def test_fitting_a_finished_run_takes_it_over(pair, tmp_path):
    first = small_rda().fit(*pair[:2], out=tmp_path / "run", **RUNTIME)
    second = small_rda().fit(*pair[:2], out=tmp_path / "run", **RUNTIME)
    assert same(weights(first), weights(second))
    assert second.summary_ == first.summary_
    np.testing.assert_array_equal(second.trust_, first.trust_)


def test_a_run_in_memory_equals_one_in_a_folder(pair, tmp_path):
    kept = small_rda().fit(*pair[:2], out=tmp_path / "run", **RUNTIME)
    loose = small_rda().fit(*pair[:2], **RUNTIME)
    assert same(weights(kept), weights(loose))
    pd.testing.assert_frame_equal(kept.history_, loose.history_)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (["ant", "bee", "cat", "dog"], "U"),
        ([2, 3, 10, 700], "i"),
        ([-1.5, 0.0, 0.25, 8.0], "f"),
        (["02", "1", "10", "é, ü"], "U"),
    ],
)
def test_labels_come_back_in_their_own_type(pair, tmp_path, given, dtype):
    own = np.array(given)
    source = Domain.from_arrays(pair.source.x, own[pair.source.y])
    target = Domain.from_arrays(pair.target.x, own[pair.target.y])
    model = SourceOnly(**SMALL).fit(source, target, out=tmp_path / "run", **RUNTIME)
    for fitted in (model, load(tmp_path / "run", device="cpu")):
        np.testing.assert_array_equal(fitted.classes_, np.sort(own))
        found = fitted.predict(target)
        assert found.dtype.kind == fitted.classes_.dtype.kind == dtype
        assert set(found.tolist()) <= set(given)
    written = Domain.from_table(tmp_path / "run" / "predictions.csv", label="prediction", features=["probability"])
    assert list(map(str, written.labels)) == list(map(str, model.predict(target)))
    score = (model.predict(target) == target.labels).mean()
    assert model.summary_["target_accuracy"] == pytest.approx(score)


# What must not matter, and what must.


def stripped(history: pd.DataFrame) -> pd.DataFrame:
    return history[history["metric"] != "target_accuracy"].reset_index(drop=True)


def test_labels_of_the_target_are_for_scoring_only(pair, method):
    with_labels = weights(method.fit(pair.source, pair.target, eval_every=5, log_every=5, **RUNTIME))
    history, summary = method.history_, method.summary_
    wrong = pair.target.with_labels(np.roll(pair.target.y, 1))
    for target in (pair.target.unlabelled(), wrong):
        assert same(weights(method.fit(pair.source, target, eval_every=5, log_every=5, **RUNTIME)), with_labels)
        pd.testing.assert_frame_equal(stripped(method.history_), stripped(history))
    assert summary["target_accuracy"] != method.summary_["target_accuracy"]


def test_labels_of_some_target_examples_are_scored_on_those(pair):
    some = np.where(np.arange(len(pair.target)) < 50, pair.target.y, -1)
    model = small_rda().fit(pair.source, pair.target.with_labels(some), **RUNTIME)
    right = model.predict(pair.target)[:50] == pair.target.labels[:50]
    assert model.summary_["target_accuracy"] == pytest.approx(right.mean())


def test_the_seed_decides(pair, method):
    first = weights(method.fit(pair.source, pair.target, **RUNTIME))
    torch.rand(17)  # the state of the global generator is of no consequence
    np.random.default_rng().random()
    assert same(weights(method.fit(pair.source, pair.target, **RUNTIME)), first)
    method.seed = 1
    assert not same(weights(method.fit(pair.source, pair.target, **RUNTIME)), first)


@pytest.mark.parametrize("runtime", [{"log_every": 1}, {"eval_every": 3}, {"checkpoint_seconds": 0.0, "log_every": 3}])
def test_how_often_it_looks_does_not_change_what_is_learned(pair, tmp_path, runtime):
    plain = small_rda().fit(*pair[:2], **RUNTIME)
    watched = small_rda().fit(*pair[:2], out=tmp_path / "run", **RUNTIME, **runtime)
    assert same(weights(plain), weights(watched))


def test_streaming_the_data_does_not_change_what_is_learned(pair, folders, tmp_path):
    for source, target in (pair[:2], (Domain.read(folders.source), Domain.read(folders.target))):
        kept = small_rda().fit(source, target, placement="device", **RUNTIME)
        streamed = small_rda().fit(source, target, placement="stream", **RUNTIME)
        assert same(weights(kept), weights(streamed))
        np.testing.assert_array_equal(kept.trust_, streamed.trust_)
        assert kept.summary_["placement"] == "on the device"
        assert streamed.summary_["placement"] == "streamed"


def test_predicting_does_not_depend_on_the_company(pair):
    model = small_rda().fit(*pair[:2], **RUNTIME)
    whole = model.predict_proba(pair.target)
    np.testing.assert_allclose(whole.sum(axis=1), 1, atol=1e-6)
    for rows in ([3], [7, 5, 3], slice(0, 150)):
        np.testing.assert_allclose(model.predict_proba(pair.target.x[rows]), whole[rows], atol=1e-6)


# The run folder.


def test_the_run_folder_holds_what_it_promises(pair, tmp_path):
    model = small_rda(steps=60).fit(*pair[:2], out=tmp_path / "run", device="cpu", log_every=10)
    run = tmp_path / "run"
    assert {path.name for path in run.iterdir()} == {
        *("config.json", "environment.json", "metrics.csv", "tensorboard", "trust.csv", "model.safetensors"),
        *("model.json", "predictions.csv", "summary.json", "done", "lock"),
    }

    summary = json.loads((run / "summary.json").read_text())
    expected = ["method", "variant", "seed", "steps", "seconds", "noise_rate", "kept_share", "mended_share"]
    assert list(summary) == [*expected, "target_accuracy", "placement", "seen_as", "class_noise_rates"]
    assert summary["seen_as"] == f"rows of a table with {pair[0].shape[0]} columns"
    assert (summary["method"], summary["variant"], summary["seed"], summary["steps"]) == ("rda", "authors", 0, 60)
    assert summary["noise_rate"] == pytest.approx(0.4)
    assert summary["kept_share"] == pytest.approx(model.trust_.mean())
    assert summary["target_accuracy"] == pytest.approx((model.predict(pair.target) == pair.target.labels).mean())
    assert summary["seconds"] > 0

    trust = pd.read_csv(run / "trust.csv", dtype={"id": str})
    assert list(trust.columns) == ["id", "given_label", "mean_loss", "threshold", "weight", "learned_as"]
    assert trust["id"].tolist() == pair.source.ids.tolist()
    assert trust["given_label"].tolist() == pair.source.labels.tolist()
    assert set(trust["weight"]) == {0.0, 1.0}
    np.testing.assert_array_equal(trust["weight"] == 1, trust["mean_loss"] <= trust["threshold"])
    assert (trust.groupby("given_label")["threshold"].nunique() == 1).all()
    learned = trust["learned_as"].fillna("")
    assert (learned == trust["given_label"].where(trust["weight"] == 1, "")).all()
    assert summary["mended_share"] == 0

    predictions = pd.read_csv(run / "predictions.csv", dtype={"id": str})
    assert list(predictions.columns) == ["id", "prediction", "probability", "label"]
    assert predictions["id"].tolist() == pair.target.ids.tolist()
    assert predictions["prediction"].tolist() == model.predict(pair.target).tolist()
    assert predictions["label"].tolist() == pair.target.labels.tolist()
    np.testing.assert_allclose(predictions["probability"], model.predict_proba(pair.target).max(axis=1), rtol=1e-6)

    metrics = pd.read_csv(run / "metrics.csv")
    assert list(metrics.columns) == ["phase", "step", "metric", "value"]
    assert metrics["phase"].unique().tolist() == ["filter", "adapt"]
    losses = metrics[(metrics["metric"] == "loss") & (metrics["phase"] == "adapt")]
    assert losses["step"].tolist() == [10, 20, 30, 40, 50, 60]
    accuracy = metrics[metrics["metric"] == "target_accuracy"]
    assert accuracy["value"].iloc[-1] == summary["target_accuracy"]
    assert any((run / "tensorboard").iterdir())

    config = json.loads((run / "config.json").read_text())
    assert config["method"] == "rda"
    assert config["params"] == model.params()
    assert config["data"]["classes"] == pair.source.classes.tolist()


def test_without_target_labels_the_accuracy_is_null(pair, tmp_path):
    small_rda().fit(pair.source, pair.target.unlabelled(), out=tmp_path / "run", **RUNTIME)
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["target_accuracy"] is None
    header = (tmp_path / "run" / "predictions.csv").read_text().splitlines()[0]
    assert header == "id,prediction,probability"
    assert "target_accuracy" not in (tmp_path / "run" / "metrics.csv").read_text()


@pytest.mark.parametrize("kind", ["source_only", "mdd", "rda without its curriculum"])
def test_without_a_curriculum_there_is_no_trust(pair, tmp_path, kind):
    method = small_rda(del_ocl=True) if "rda" in kind else create_method(kind, **SMALL)
    method.fit(*pair[:2], out=tmp_path / "run", **RUNTIME)
    assert not (tmp_path / "run" / "trust.csv").exists()
    assert not hasattr(method, "trust_")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["noise_rate"] is None
    assert summary["kept_share"] is None
    assert summary["variant"] == ("authors" if method.name == "rda" else None)


def test_ids_and_classes_with_commas_and_quotes_survive_the_tables(pair, tmp_path):
    own = np.array(['a,"b"', "line\nbreak", "ψ", "plain"])
    ids = [f'x,{number}"' for number in range(len(pair.source))]
    source = Domain.from_arrays(pair.source.x, own[pair.source.y], ids=ids)
    small_rda().fit(source, pair.target.unlabelled(), out=tmp_path / "run", **RUNTIME)
    trust = pd.read_csv(tmp_path / "run" / "trust.csv", dtype={"id": str})
    assert trust["id"].tolist() == ids
    assert trust["given_label"].tolist() == source.labels.tolist()


def test_unlabelled_source_examples_are_left_out_of_the_trust_table(pair, tmp_path):
    codes = np.where(np.arange(len(pair.source)) % 10 == 0, -1, pair.source.y)
    with pytest.warns(RobustDAWarning, match="24 of 240 examples in the source source have no label"):
        model = small_rda().fit(pair.source.with_labels(codes), pair.target, out=tmp_path / "run", **RUNTIME)
    trust = pd.read_csv(tmp_path / "run" / "trust.csv", dtype={"id": str})
    assert trust["id"].tolist() == pair.source.ids[codes >= 0].tolist()
    assert len(model.trust_) == len(trust)


# Sizes.


@pytest.mark.parametrize(
    "sizes",
    [
        {"target_size": 5},
        {"target_size": 1},
        {"size": 11},
        {"size": 4, "rate": 0.0},
        {"classes": 2},
        {"size": 3, "target_size": 1, "classes": 2, "rate": 0.0},
    ],
    ids=["small target", "one target example", "small source", "one example a class", "two classes", "all of it"],
)
def test_any_size_will_do(method, sizes):
    pair = make_pair(**sizes)
    method.fit(pair.source, pair.target, **RUNTIME)
    probabilities = method.predict_proba(pair.target)
    assert probabilities.shape == (len(pair.target), len(pair.source.classes))
    assert np.isfinite(probabilities).all()
    if method.name == "rda":  # every class keeps at least one
        assert set(pair.source.y[method.trust_ > 0]) == set(pair.source.y)


@pytest.mark.parametrize("batch_size", [2, 3, 7, 33, 500])
def test_any_batch_size_will_do(pair, batch_size):
    model = small_rda(batch_size=batch_size, steps=5).fit(*pair[:2], **RUNTIME)
    assert np.isfinite(model.predict_proba(pair.target)).all()


def test_one_step_is_a_run(pair, tmp_path):
    model = small_rda(steps=1, epochs=1).fit(*pair[:2], out=tmp_path / "run", **RUNTIME)
    assert model.history_["step"].max() == 15


# Noise rates and variants.


def test_noise_rate_may_be_a_number_a_list_or_estimated(pair):
    by_number = small_rda(noise_rate=0.3).fit(*pair[:2], **RUNTIME)
    assert by_number.noise_rate_ == pytest.approx(0.3)
    by_list = small_rda(noise_rate=[0.3] * 4).fit(*pair[:2], **RUNTIME)
    np.testing.assert_array_equal(by_list.trust_, by_number.trust_)
    uneven = small_rda(noise_rate=[0.0, 0.2, 0.5, 0.8]).fit(*pair[:2], **RUNTIME)
    counts = np.bincount(pair.source.y)
    kept = np.bincount(pair.source.y[uneven.trust_ > 0]) / counts
    assert (np.diff(kept) < 0).all()
    assert uneven.noise_rate_ == pytest.approx((counts * [0.0, 0.2, 0.5, 0.8]).sum() / counts.sum())
    estimated = small_rda(noise_rate="auto").fit(*pair[:2], **RUNTIME)
    assert estimated.noise_rate_ == pytest.approx(pair.record.wrong_labels.mean(), abs=0.1)


def test_corrupted_examples_that_are_told_apart_are_judged_among_their_own_kind():
    clean = make_pair(rate=0.0, size=600)
    noisy, record = corrupt(clean.source, "mixed", 0.5, seed=1, scale=6.0)
    params = {"noise_rate": "auto", "width": 32, "steps": 5, "epochs": 20, "curriculum_rate": 0.02}
    found = {}
    for how in ("ignore", "tell_apart"):
        model = RDA(corrupted=how, batch_size=32, backbone="identity", **params).fit(noisy, clean.target, **RUNTIME)
        odd, wrong = record.corrupted_features, record.wrong_labels
        share = {"right": model.trust_[odd & ~wrong].mean(), "wrong": model.trust_[wrong].mean()}
        found[how] = share | {"precision": 1 - wrong[model.trust_ > 0].mean(), "rate": model.noise_rate_}
    assert found["tell_apart"]["right"] > found["ignore"]["right"] + 0.1
    assert found["tell_apart"]["wrong"] < 0.25
    # The rate is that of the sound ones either way, as in the audit.
    assert found["tell_apart"]["rate"] == found["ignore"]["rate"] == pytest.approx(0.25, abs=0.04)


def test_a_proxy_batch_is_smaller_by_the_corrupted_examples_that_were_told_apart(pair):
    noisy, _ = corrupt(pair.record.restore(pair.source), "feature", 0.4, seed=1, scale=8.0)
    model = small_rda(corrupted="tell_apart", noise_rate=0.0, steps=200).fit(
        noisy, pair.target, log_every=10, **RUNTIME
    )
    shares = model.history_.query("metric == 'proxy_share'").value
    assert 0.5 < float(shares.iloc[-1]) < 0.75
    plain = small_rda(noise_rate=0.0).fit(noisy, pair.target, **RUNTIME)
    assert plain.history_.query("metric == 'proxy_share'").value.unique().tolist() == [1.0]


def tell_apart_or_not(source: Domain, target: Domain, message: str) -> None:
    """Where corrupted examples cannot be told apart that is said, and the run is the one without it."""
    params = {"noise_rate": "auto", "steps": 5, "augment": "none"}
    with pytest.warns(RobustDAWarning, match=message) as caught:
        model = small_rda(corrupted="tell_apart", **params).fit(source, target, **RUNTIME)
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    plain = small_rda(**params).fit(source, target, **RUNTIME)
    np.testing.assert_array_equal(model.trust_, plain.trust_)
    assert model.noise_rate_ == plain.noise_rate_


def test_too_few_sound_examples_are_not_learned_from_alone():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(20, 10)).astype(np.float32)
    x[::5] *= 30
    x[1::5] *= 30  # the rows left over, with both classes, are 12
    labels = np.arange(20) % 2
    target = Domain.from_arrays(rng.normal(size=(20, 10)))
    small_rda(corrupted="tell_apart", noise_rate="auto", steps=5).fit(Domain.from_arrays(x, labels), target, **RUNTIME)
    x[2] *= 30
    tell_apart_or_not(Domain.from_arrays(x, labels), target, r"9 of 20 source examples look corrupted.* too few")


def test_one_sound_class_is_not_learned_from_alone():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 0, 1], 40)
    x = (rng.normal(size=(120, 10)) * np.where(labels, 30, 1)[:, None]).astype(np.float32)
    target = Domain.from_arrays(rng.normal(size=(60, 10)))
    tell_apart_or_not(Domain.from_arrays(x, labels), target, r"40 of 120 source examples look corrupted.* one class")


@pytest.mark.parametrize("side", [8, 32])
def test_small_images_are_not_told_apart(side):
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    images = rng.integers(0, 80, (2, 40, side, side, 3), dtype=np.uint8) + (100 * labels)[:, None, None, None]
    source, target = (
        Domain.from_arrays(images[0].astype(np.uint8), labels),
        Domain.from_arrays(images[1].astype(np.uint8)),
    )
    tell_apart_or_not(source, target, f"images of {side} × {side} pixels show too little .*200 a side are needed")


def test_a_list_of_noise_rates_must_fit_the_classes(pair):
    with pytest.raises(ConfigError, match="noise_rate has 3 numbers for 4 classes") as error:
        small_rda(noise_rate=[0.1, 0.2, 0.3]).fit(*pair[:2], **RUNTIME)
    one_line(error)


def test_both_variants_run_and_differ(pair, tmp_path):
    found = {}
    for variant in ("authors", "paper"):
        model = small_rda(variant=variant).fit(*pair[:2], out=tmp_path / variant, **RUNTIME)
        assert json.loads((tmp_path / variant / "summary.json").read_text())["variant"] == variant
        again = load(tmp_path / variant, device="cpu")
        assert again.params() == model.params()
        np.testing.assert_array_equal(again.predict_proba(pair.target), model.predict_proba(pair.target))
        found[variant] = weights(model)
    assert not same(found["authors"], found["paper"])


def test_too_few_examples_to_estimate_a_rate_is_an_error_that_says_what_to_do():
    pair = make_pair(size=8, rate=0.0)
    with pytest.raises(DataError, match="give noise_rate a number"):
        small_rda(noise_rate="auto").fit(*pair[:2], **RUNTIME)


# What it achieves.


def test_rda_beats_source_only_and_trusts_cleaner_examples_than_it_was_given():
    params = {"width": 64, "steps": 300, "learning_rate": 0.02}
    gains = []
    for seed in range(3):
        pair = make_pair(seed)
        plain = SourceOnly(**params, seed=seed).fit(*pair[:2], **RUNTIME)
        rda = RDA(**params, seed=seed, epochs=15, curriculum_rate=0.005).fit(*pair[:2], **RUNTIME)
        wrong, trusted = pair.record.wrong_labels, rda.trust_ > 0
        assert wrong.mean() > 0.35
        assert wrong[trusted].mean() < 0.1
        gains.append(rda.summary_["target_accuracy"] - plain.summary_["target_accuracy"])
    assert np.mean(gains) > 0.05


# Divergence.


def test_divergence_is_an_error_that_names_cause_and_remedy(pair, tmp_path, method):
    method.learning_rate = 1e12
    with pytest.raises(RunError, match=r"diverged.*not finite.*smaller learning rate \(.*1e\+12\)") as error:
        method.fit(*pair[:2], out=tmp_path / "run", **RUNTIME)
    one_line(error)
    assert not (tmp_path / "run" / "done").exists()
    assert not hasattr(method, "network_")


def test_divergence_of_the_curriculum_names_its_own_rate(pair):
    with pytest.raises(RunError, match=r"phase filter; try a smaller learning rate \(this phase starts at 1e\+20\)"):
        small_rda(curriculum_rate=1e20).fit(*pair[:2], **RUNTIME)


def test_divergence_in_the_very_last_step_is_noticed(pair):
    # The loss of the only step is that of the untouched weights: only the predictions tell.
    with pytest.raises(RunError, match="diverged: the predictions are not finite; try a smaller learning rate"):
        SourceOnly(**{**SMALL, "steps": 1}, learning_rate=1e30).fit(*pair[:2], **RUNTIME)


# Collapse.


def lost_game(**params) -> Method:
    return create_method("mdd", width=32, steps=600, beta=30.0, beta_rise=0.0, learning_rate=0.05, **params)


def test_a_lost_game_is_stopped_and_the_last_good_checkpoint_stays(pair, tmp_path):
    method = lost_game()
    often = {"eval_every": 25, "log_every": 5, "checkpoint_seconds": 0}
    message = (
        r"collapsed: by step \d+ of phase adapt 100% of the target is predicted to be .*try a smaller beta \(now 30\)"
    )
    with pytest.raises(RunError, match=message) as error:
        method.fit(*pair[:2], out=tmp_path / "run", **often, **RUNTIME)
    kept = sorted((tmp_path / "run" / "checkpoints").iterdir())
    assert one_line(error).endswith(f"the last good checkpoint is {kept[-1]}")
    assert not (tmp_path / "run" / "done").exists()
    state = load_tensors(kept[-1] / "state.safetensors", json.loads((kept[-1] / "state.json").read_text())["digest"])
    network = method.network((pair.source.shape[0],), len(pair.source.classes))
    network.load_state_dict({name.removeprefix("network/"): t for name, t in state.items() if "network/" in name})
    predicted = network.eval()(torch.as_tensor(pair.target.x)).argmax(dim=1)
    assert len(predicted.unique()) > 1


def test_a_model_that_never_told_the_target_apart_warns(pair):
    with pytest.warns(RobustDAWarning, match=r"of the target is predicted to be .*give it more steps \(now 100\)"):
        create_method("tcl", width=32, steps=100, entropy_weight=100.0).fit(*pair[:2], **RUNTIME)


def test_a_class_that_most_of_the_source_has_may_be_all_of_the_target(pair):
    lopsided = Domain.from_arrays(pair.source.x, np.where(np.arange(len(pair.source)) < 5, "rare", "common"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RobustDAWarning)
        SourceOnly(**SMALL).fit(lopsided, pair.target.unlabelled(), **RUNTIME)


# Images.


def test_a_folder_with_a_corrupt_image_end_to_end(folders, tmp_path):
    (folders.source / "ant" / "9.jpg").write_bytes(b"not an image")
    cut = (folders.source / "bee" / "0.png").read_bytes()
    (folders.source / "bee" / "8.png").write_bytes(cut[: len(cut) // 2])
    source, target = Domain.from_folder(folders.source), Domain.from_folder(folders.target)
    with pytest.warns(RobustDAWarning, match=r"2 of 26 images in .*web cannot be read .*: they are left out") as seen:
        model = small_rda(width=32, steps=150, learning_rate=0.02).fit(source, target, out=tmp_path / "run", **RUNTIME)
    assert len(seen) == 1
    trust = pd.read_csv(tmp_path / "run" / "trust.csv")
    assert len(trust) == len(model.trust_) == 24
    assert not trust["id"].isin(["ant/9.jpg", "bee/8.png"]).any()
    assert trust["id"].iloc[0] == "ant/0.png"
    predictions = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert predictions["id"].tolist() == target.ids.tolist()
    assert set(predictions["prediction"]) <= {"ant", "bee", "cat"}
    assert model.summary_["target_accuracy"] > 0.6

    with pytest.raises(DataError, match=r"2 of 26 images in .*web cannot be read .*: replace or remove them") as error:
        small_rda().fit(source, target, out=tmp_path / "strict", strict=True, **RUNTIME)
    one_line(error)
    assert not (tmp_path / "strict").exists()


def test_a_class_that_loses_all_its_images_is_an_error(folders):
    for path in (folders.source / "cat").iterdir():
        path.write_bytes(b"not an image")
    with (
        pytest.warns(RobustDAWarning, match=r"8 of 24 images .* that leaves no example of 'cat'"),
        pytest.raises(DataError, match="has no example of 'cat'"),
    ):
        small_rda().fit(Domain.from_folder(folders.source), Domain.from_folder(folders.target), **RUNTIME)


def test_images_in_memory_need_not_be_square(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    x = rng.integers(0, 60, (30, 12, 20, 3), dtype=np.uint8)
    x[np.arange(30), :, :, y] += 120
    source, target = Domain.from_arrays(x, y), Domain.from_arrays(x[:, :, ::-1] // 2, y)
    model = small_rda().fit(source, target, out=tmp_path / "run", **RUNTIME)
    assert model.image_size_ == 12
    assert model.example_shape_ == (12, 12, 3)
    for images in (x, x[:, :9], np.repeat(x, 2, axis=2), x[..., :1], x / 255):
        assert model.predict_proba(images).shape == (30, 3)
    np.testing.assert_array_equal(load(tmp_path / "run", device="cpu").predict_proba(x), model.predict_proba(x))


def test_the_image_size_may_be_chosen(folders):
    model = small_rda(image_size=10, augment="none").fit(
        Domain.from_folder(folders.source), Domain.from_folder(folders.target), **RUNTIME
    )
    assert model.image_size_ == 10


def test_large_images_are_cropped_with_a_backbone_of_ones_choice(tmp_path):
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 255, (8, 80, 80, 3), dtype=np.uint8), np.arange(8) % 2
    model = small_rda(backbone="small_cnn", image_size=80, steps=2, epochs=1, batch_size=4)
    model.fit(Domain.from_arrays(x, y), Domain.from_arrays(x), out=tmp_path / "run", **RUNTIME)
    assert model.example_shape_ == (70, 70, 3)
    np.testing.assert_array_equal(load(tmp_path / "run", device="cpu").predict_proba(x), model.predict_proba(x))


# Predicting what cannot be predicted.


@pytest.fixture
def on_vectors(pair) -> Method:
    return SourceOnly(**SMALL).fit(*pair[:2], **RUNTIME)


def test_predicting_before_fitting_is_an_error_that_says_what_to_do(pair):
    for call in (small_rda().predict, MDD().predict_proba):
        with pytest.raises(RunError, match=r"has not been fitted yet: call fit\(source, target\) first"):
            call(pair.target)


def test_predicting_the_wrong_width_or_kind_is_one_line(on_vectors, folders):
    with pytest.raises(DataError, match="trained on vectors of 10 features, but these have 7") as error:
        on_vectors.predict(np.zeros((3, 7)))
    one_line(error)
    for images in (np.zeros((3, 8, 8), dtype=np.uint8), folders.source):
        with pytest.raises(DataError, match="trained on vectors, not images") as error:
            on_vectors.predict(images)
        one_line(error)
    on_images = SourceOnly(**SMALL)
    on_images.fit(Domain.from_folder(folders.source), Domain.from_folder(folders.target), **RUNTIME)
    with pytest.raises(DataError, match="trained on images, not vectors"):
        on_images.predict(np.zeros((3, 10)))


def test_predicting_an_unreadable_image_is_an_error_but_a_table_may_leave_it_out(folders):
    model = SourceOnly(**SMALL)
    model.fit(Domain.from_folder(folders.source), Domain.from_folder(folders.target), **RUNTIME)
    (folders.target / "ant" / "0.png").write_bytes(b"not an image")
    with pytest.raises(DataError, match="1 of 24 images"):
        model.predict(folders.target)
    with pytest.warns(RobustDAWarning, match="1 of 24 images"):
        table = predict_table(model, Domain.from_folder(folders.target), probabilities=True)
    assert len(table) == 23
    assert list(table.columns) == ["id", "prediction", "probability", "label", "p(ant)", "p(bee)", "p(cat)"]
    assert "ant/0.png" not in set(table["id"])
    np.testing.assert_allclose(table[["p(ant)", "p(bee)", "p(cat)"]].max(axis=1), table["probability"])


def test_predicting_takes_arrays_lists_tables_and_paths(on_vectors, pair, tmp_path):
    expected = on_vectors.predict_proba(pair.target)
    pair.target.save_npz(tmp_path / "target.npz")
    frame = pd.DataFrame(np.asarray(pair.target.x))
    frame.to_csv(tmp_path / "target.csv", index=False)
    for x in (pair.target.x, pair.target.x.tolist(), frame, tmp_path / "target.npz", str(tmp_path / "target.csv")):
        np.testing.assert_allclose(on_vectors.predict_proba(x), expected, atol=1e-6)


def test_columns_of_a_table_are_matched_by_name(pair):
    columns = [f"f{number}" for number in range(10)]
    source = pd.DataFrame(pair.source.x, columns=columns).assign(label=pair.source.labels)
    target = pd.DataFrame(pair.target.x, columns=columns)
    model = SourceOnly(**SMALL).fit(Domain.from_table(source), Domain.from_table(target), **RUNTIME)
    turned = Domain.from_table(target[columns[::-1]])
    np.testing.assert_array_equal(model.predict_proba(turned), model.predict_proba(Domain.from_table(target)))


# Loading what cannot be loaded.


def test_what_is_no_finished_run_cannot_be_loaded(pair, tmp_path):
    for place in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(RunError, match="holds no finished run: give the --out folder of a fit that has ended"):
            load(place)


@pytest.mark.parametrize("name", ["model.safetensors", "model.json", "summary.json", "trust.csv", "metrics.csv"])
def test_a_damaged_model_is_one_line(pair, tmp_path, name):
    small_rda().fit(*pair[:2], out=tmp_path / "run", **RUNTIME)
    damaged = [b"", b"\xff" * 100] + [b"{}"] * name.endswith("json")
    for content in damaged:
        (tmp_path / "run" / name).write_bytes(content)
        with pytest.raises(RunError, match=r"model in .* cannot be read .*: delete the folder and fit again") as error:
            load(tmp_path / "run")
        one_line(error)


def test_a_model_that_is_not_what_its_note_says_is_one_line(pair, tmp_path):
    small_rda().fit(*pair[:2], out=tmp_path / "run", **RUNTIME)
    note = json.loads((tmp_path / "run" / "model.json").read_text())
    note["params"]["width"] += 1
    (tmp_path / "run" / "model.json").write_text(json.dumps(note))
    with pytest.raises(RunError, match="do not agree about bottleneck") as error:
        load(tmp_path / "run")
    one_line(error)


def test_a_device_that_is_not_there_is_one_line(pair, tmp_path):
    with pytest.raises(ConfigError, match=r"device 'cuda:99' cannot be used here: give cpu, or auto") as error:
        small_rda().fit(*pair[:2], device="cuda:99")
    one_line(error)


@pytest.mark.parametrize("option", [{"log_every": 0}, {"threads": -1}, {"eval_every": -1}, {"checkpoint_seconds": -1}])
def test_runtime_options_out_of_range_are_named(pair, option):
    (name,) = option
    with pytest.raises(ConfigError, match=f"{name} is {option[name]}: give a number of at least"):
        small_rda().fit(*pair[:2], **option)


def test_no_warning_of_any_kind_comes_from_a_plain_run(pair, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        small_rda().fit(*pair[:2], out=tmp_path / "run", **RUNTIME)


@pytest.mark.parametrize("backbone", ["identity", "mlp"])
def test_fitting_and_loading_leave_the_random_numbers_of_the_caller_alone(pair, tmp_path, backbone):
    before = torch.get_rng_state()
    for _ in range(2):  # the second time it is there already
        SourceOnly(**SMALL, backbone=backbone).fit(pair.source, pair.target, out=tmp_path / "run", **RUNTIME)
        assert torch.equal(torch.get_rng_state(), before)
    load(tmp_path / "run", device="cpu")
    assert torch.equal(torch.get_rng_state(), before)


def test_loss_curves_are_kept_on_request_and_average_to_the_mean_loss(pair, tmp_path):
    small_rda(keep_curves=True).fit(pair.source, pair.target, out=tmp_path / "run", **RUNTIME)
    curves = load_tensors(tmp_path / "run" / "curves.safetensors")["losses"]
    assert curves.shape == (2, len(pair.source))
    table = pd.read_csv(tmp_path / "run" / "trust.csv")
    np.testing.assert_allclose(curves.double().mean(dim=0), table["mean_loss"], rtol=1e-5)
    small_rda().fit(pair.source, pair.target, out=tmp_path / "plain", **RUNTIME)
    assert not (tmp_path / "plain" / "curves.safetensors").exists()


def test_threads_are_those_of_numpy_too_and_are_given_back() -> None:
    from threadpoolctl import threadpool_info

    from robustda.engine import Runtime

    def counts() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    np.linalg.norm(np.ones((4, 4)))
    before, torch_before = counts(), torch.get_num_threads()
    with Runtime(device="cpu", threads=1).limits():
        assert counts() == {1}
        assert torch.get_num_threads() == 1
    assert counts() == before
    assert torch.get_num_threads() == torch_before

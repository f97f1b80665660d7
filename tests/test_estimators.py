"""The scikit-learn face: scikit-learn's own checks, its tools around our estimators, and skada's."""

from __future__ import annotations

import doctest
import functools
import inspect
import pickle
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest
import sklearn
import torch
from joblib import Parallel, delayed
from sklearn.base import clone, is_classifier
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, cross_val_predict, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import check_estimator

import robustda
from robustda import RDA, DANNClassifier, Domain, RDAClassifier
from robustda.errors import ConfigError, DataError, RobustDAWarning
from robustda.estimators import DomainAdaptationClassifier, estimator_class
from robustda.methods import SourceOnly, method_names, registry

# Settings that make a method small, for those that have them.
SMALL = {
    "width": 16,
    "discriminator_width": 16,
    "steps": 30,
    "mentor_steps": 15,
    "head_steps": 30,
    "epochs": 2,
    "dropout": 0.0,
    "learning_rate": 0.05,
    "curriculum_rate": 0.05,
    "device": "cpu",
}

every_estimator = pytest.mark.parametrize("name", method_names())


def small(name: str, **settings: Any) -> DomainAdaptationClassifier:
    kind = estimator_class(name)
    known = inspect.signature(kind).parameters
    return kind(**{key: value for key, value in {**SMALL, **settings}.items() if key in known})


@dataclass
class Data:
    """Two clouds with a few wrong labels, and the same moved aside; labels are words."""

    X: np.ndarray
    y: np.ndarray
    Xt: np.ndarray
    yt: np.ndarray

    def together(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """X, y and sample_domain by skada's convention, in mixed order."""
        order = np.random.default_rng(1).permutation(len(self.X) + len(self.Xt))
        domains = np.concatenate([np.ones(len(self.X)), np.full(len(self.Xt), -2)])
        y = np.concatenate([self.y, np.full(len(self.Xt), "masked")])
        return np.concatenate([self.X, self.Xt])[order], y[order], domains[order]


@pytest.fixture
def data() -> Data:
    rng = np.random.default_rng(0)
    names = np.array(["yes", "no"])
    codes = np.arange(120) % 2
    centres = np.array([[-2.0, 0, 1], [2, 0, -1]])
    given = np.where(np.arange(120) % 7 == 3, 1 - codes, codes)
    X, Xt = (centres[codes] + rng.normal(size=(120, 3)) for _ in range(2))
    return Data(X, names[given], Xt[:80] + np.array([0.5, 0.5, 0]), names[codes[:80]])


@functools.cache
def skipped_for_a_peer() -> set[str]:
    outcome = check_estimator(LinearDiscriminantAnalysis(), on_fail=None, on_skip=None)
    return {c["check_name"] for c in outcome if c["status"] == "skipped"}


@every_estimator
@pytest.mark.filterwarnings("ignore")  # scikit-learn's checks are data to be warned of: ten rows, one feature
def test_passes_scikit_learns_checks(name: str) -> None:
    """All of them: what is skipped is skipped for scikit-learn's own classifier and transformer, too."""
    outcome = check_estimator(small(name), on_fail=None, on_skip=None)
    failed = {c["check_name"]: c["exception"] for c in outcome if c["status"] not in ("passed", "skipped")}
    assert failed == {}
    assert {c["check_name"] for c in outcome if c["status"] == "skipped"} <= skipped_for_a_peer()
    assert len(outcome) >= 50


@every_estimator
def test_predicts_what_the_method_predicts(name: str, data: Data) -> None:
    """The estimator puts the network together itself, to compute in float64: it must be the method's network."""
    model = small(name).fit(data.X, data.y, data.Xt)
    params = {key: value for key, value in model.get_params().items() if key in model.method_params}
    method = registry.create_method(name, **{key: value for key, value in params.items() if value is not None})
    source = Domain.from_arrays(data.X.astype(np.float32), data.y)
    method.fit(source, Domain.from_arrays(data.Xt.astype(np.float32)), device="cpu", progress=False)
    x = data.Xt.astype(np.float32)
    np.testing.assert_allclose(model.predict_proba(data.Xt), method.predict_proba(x), atol=1e-5)
    assert model.classes_.tolist() == method.classes_.tolist() == ["no", "yes"]
    assert model.score(data.Xt, data.yt) > 0.8


@every_estimator
def test_pickles_and_clones(name: str, data: Data) -> None:
    model = small(name).fit(data.X, data.y, data.Xt)
    again = pickle.loads(pickle.dumps(model))
    assert type(again) is type(model)
    np.testing.assert_array_equal(again.predict_proba(data.Xt), model.predict_proba(data.Xt))
    fresh = clone(model)
    assert fresh.get_params() == model.get_params()
    assert not hasattr(fresh, "classes_")


@every_estimator
def test_is_documented(name: str) -> None:
    kind = estimator_class(name)
    assert kind.__doc__ is not None
    for parameter in inspect.signature(kind).parameters:
        assert f"\n{parameter} : " in kind.__doc__
    example = doctest.DocTestParser().get_doctest(kind.__doc__, {}, kind.__name__, None, 0)
    assert doctest.DocTestRunner().run(example).failed == 0


def test_every_estimator_is_public() -> None:
    names = {estimator_class(name).__name__ for name in method_names()}
    assert names == {name for name in robustda.__all__ if name.endswith("Classifier")}
    assert robustda.RDAClassifier is estimator_class("rda")
    assert set(dir(robustda.estimators)) >= names
    with pytest.raises(AttributeError, match="NoSuchClassifier"):
        robustda.NoSuchClassifier  # noqa: B018


def test_a_new_method_has_an_estimator(monkeypatch: pytest.MonkeyPatch, data: Data) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    registry.register("brand_new")(type("BrandNew", (SourceOnly,), {}))
    assert robustda.BrandNewClassifier(steps=30, width=8).fit(data.X, data.y).predict(data.X).shape == (120,)


def test_parameters_are_explicit_and_kept() -> None:
    parameters = inspect.signature(RDAClassifier).parameters.values()
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters)
    assert {"steps", "noise_rate", "random_state", "device"} <= {p.name for p in parameters}
    assert not {"seed", "image_size"} & {p.name for p in parameters}
    with pytest.raises(TypeError, match="stepps"):
        RDAClassifier(stepps=3)
    assert repr(RDAClassifier(alpha=2.0, steps=7)) == "RDAClassifier(alpha=2.0, steps=7)"
    assert is_classifier(RDAClassifier())
    assert "RDAClassifier" in RDAClassifier()._repr_html_()


def test_a_variant_presets_what_is_not_given() -> None:
    def chosen(**params: Any) -> RDA:
        method = RDAClassifier(**params)._method(100)
        assert isinstance(method, RDA)
        return method

    assert chosen().params() == RDA().params()
    assert chosen(variant="paper").params() == RDA(variant="paper").params()
    assert chosen(variant="paper", alpha=4.0).alpha == 4.0


def test_bad_parameters_are_refused_when_fitted(data: Data) -> None:
    with pytest.raises(ConfigError, match="steps is 0"):
        RDAClassifier(steps=0).fit(data.X, data.y)
    with pytest.raises(ConfigError, match="steps is None"):
        RDAClassifier(steps=None).fit(data.X, data.y)


def test_what_rda_learned(data: Data) -> None:
    model = small("rda", epochs=10).fit(data.X, data.y, X_target=data.Xt)
    wrong = np.arange(120) % 7 == 3
    assert model.trust_.shape == (120,)
    assert model.trust_[wrong].mean() < 0.2 < 0.7 < model.trust_[~wrong].mean()
    assert abs(model.noise_rate_ - wrong.mean()) < 0.1
    assert model.transition_matrix_.shape == (2, 2)
    np.testing.assert_allclose(model.transition_matrix_.sum(axis=1), 1)
    assert np.diag(model.transition_matrix_).min() > 0.7
    assert {"phase", "step", "metric", "value"} <= set(model.history_.columns)
    model.set_params(del_ocl=True).fit(data.X, data.y, X_target=data.Xt)
    assert not any(hasattr(model, name) for name in ("trust_", "noise_rate_", "transition_matrix_"))


@every_estimator
@pytest.mark.parametrize("rows", [10, 12])
def test_tiny_data(name: str, rows: int) -> None:
    X, y = np.linspace(0, 1, rows)[:, None], np.arange(rows) % 2
    model = small(name, width=1024, learning_rate=None if name == "rda" else 0.004)
    if name == "rda" and rows == 10:
        with pytest.warns(RobustDAWarning, match="10 source rows are too few"):
            model.fit(X, y)
        assert model.noise_rate_ == 0
        assert model.transition_matrix_.tolist() == [[1, 0], [0, 1]]
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RobustDAWarning)  # that so few labels cannot be judged
            model.fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()


def test_labels_of_any_kind(data: Data) -> None:
    for classes in (["a", "zebra"], [-1, 7], [0.0, 3.0], [False, True], ["", "x"]):
        y = np.array(classes)[(data.y == "yes").astype(int)]
        model = small("mdd").fit(data.X, y)
        assert model.classes_.tolist() == classes
        assert model.predict(data.X).dtype == y.dtype
        assert model.score(data.X, y) > 0.7


def test_the_two_ways_to_give_a_target_agree(data: Data) -> None:
    X, y, domains = data.together()
    rows, others = domains > 0, domains < 0
    apart = small("rda").fit(X[rows], y[rows], X_target=X[others])
    together = small("rda").fit(X, y, sample_domain=domains)
    np.testing.assert_array_equal(apart.predict_proba(data.Xt), together.predict_proba(data.Xt))
    assert together.classes_.tolist() == ["no", "yes"]  # what stands at target rows is no class
    assert len(together.trust_) == len(data.X)


def test_masks_of_any_kind(data: Data) -> None:
    X, y, domains = data.together()
    numbers = np.where(domains > 0, y == "yes", np.nan)
    words = pd.Series(np.where(domains > 0, y, None))
    expected = small("prototypes").fit(X, y, sample_domain=domains).predict(data.Xt)
    for labels in (words, words.astype("category"), words.tolist()):
        assert small("prototypes").fit(X, labels, sample_domain=domains).predict(data.Xt).tolist() == expected.tolist()
    as_numbers = small("prototypes").fit(X, numbers, sample_domain=domains).predict(data.Xt)
    assert as_numbers.tolist() == (expected == "yes").tolist()
    with pytest.raises(ValueError, match="NaN"):
        small("prototypes").fit(X, numbers)


def test_without_a_target_the_source_is_one(data: Data) -> None:
    alone, itself = small("dann").fit(data.X, data.y), small("dann").fit(data.X, data.y, X_target=data.X)
    np.testing.assert_array_equal(alone.predict_proba(data.Xt), itself.predict_proba(data.Xt))


def test_what_cannot_be_fitted_is_explained(data: Data) -> None:
    X, y, domains = data.together()
    model = small("rda")
    with pytest.raises(DataError, match="both say what the target is"):
        model.fit(X, y, X_target=X, sample_domain=domains)
    with pytest.raises(DataError, match="names no row of the source"):
        model.fit(X, y, sample_domain=-np.abs(domains))
    with pytest.raises(DataError, match="positive for rows of the source"):
        model.fit(X, y, sample_domain=0 * domains)
    with pytest.raises(DataError, match="one class only"):
        model.fit(X, np.zeros(len(X)))
    with pytest.raises(ValueError, match="X has 2 features, but RDAClassifier is expecting 3 features"):
        model.fit(X, y, X_target=X[:, :2])
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        model.fit(X, y, sample_domain=domains[1:])
    with pytest.raises(ValueError, match="too large for dtype"):
        model.fit(X, y, sample_domain=domains).predict(1e300 * X)


def test_randomness_is_the_random_states(data: Data) -> None:
    def weights(random_state: Any) -> np.ndarray:
        return small("dann", random_state=random_state).fit(data.X, data.y).network_.f[0].weight.numpy()

    np.testing.assert_array_equal(weights(3), weights(3))
    np.testing.assert_array_equal(weights(np.random.RandomState(3)), weights(np.random.RandomState(3)))
    assert not np.array_equal(weights(3), weights(4))
    before = torch.get_rng_state()
    pickle.loads(pickle.dumps(small("dann").fit(data.X, data.y)))
    assert torch.equal(before, torch.get_rng_state())


def test_a_random_state_that_cannot_be_is_called_by_its_name(data: Data) -> None:
    with pytest.raises(ValueError, match="Seed must be between 0 and"):
        small("dann", random_state=-1).fit(data.X, data.y, data.Xt)


def test_threads_do_not_share_their_randomness(data: Data) -> None:
    """As in scikit-learn's ensembles and searches where joblib was told to use threads."""
    models = [small("dann", random_state=seed, dropout=0.5, steps=100) for seed in range(4)]
    one_by_one = [clone(model).fit(data.X, data.y, data.Xt) for model in models]
    at_once = Parallel(4, backend="threading")(delayed(model.fit)(data.X, data.y, data.Xt) for model in models)
    for alone, beside in zip(one_by_one, at_once, strict=True):
        np.testing.assert_array_equal(beside.predict_proba(data.Xt), alone.predict_proba(data.Xt))


def test_features(data: Data) -> None:
    model = small("rda").fit(data.X, data.y, X_target=data.Xt).set_output(transform="pandas")
    found = model.transform(data.Xt)
    assert found.shape == (80, 16)
    assert list(found.columns[:2]) == ["rdaclassifier0", "rdaclassifier1"]
    assert small("rda").fit(data.X, data.y).transform(data.X.astype(np.float32)).dtype == np.float32


def test_survives_settings_changed_after_the_fit(data: Data) -> None:
    model = small("mdd").fit(data.X, data.y)
    again = pickle.loads(pickle.dumps(model.set_params(width=5)))
    np.testing.assert_array_equal(again.predict_proba(data.X), model.predict_proba(data.X))


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_keep_their_column_names(library: str, data: Data) -> None:
    frames = pytest.importorskip(library)
    X, Xt = (frames.DataFrame({name: x[:, k] for k, name in enumerate("abc")}) for x in (data.X, data.Xt))
    model = small("rda").fit(X, frames.Series(data.y.tolist()), X_target=Xt)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    np.testing.assert_array_equal(
        model.predict_proba(Xt), small("rda").fit(data.X, data.y, data.Xt).predict_proba(data.Xt)
    )
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(Xt[["b", "a", "c"]])
    with pytest.raises(ValueError, match="feature names should match"):
        small("rda").fit(X, frames.Series(data.y.tolist()), X_target=Xt[["b", "a", "c"]])
    assert model.set_output(transform=library).transform(Xt).shape == (80, 16)


def test_pipeline_without_routing(data: Data) -> None:
    X, y, domains = data.together()
    pipeline = make_pipeline(StandardScaler(), small("rda"))
    pipeline.fit(X, y, rdaclassifier__sample_domain=domains)
    assert pipeline.score(data.Xt, data.yt) > 0.8


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_metadata_routing(data: Data) -> None:
    X, y, domains = data.together()
    pipeline = make_pipeline(StandardScaler(), small("rda")).fit(X, y, sample_domain=domains)
    assert pipeline.score(data.Xt, data.yt) > 0.8
    # A target that is not brought to scale along with the source must not slip through unasked.
    with pytest.raises(UnsetMetadataPassedError):
        pipeline.fit(data.X, data.y, X_target=data.Xt)
    steps = [("scale", StandardScaler()), ("rda", small("rda").set_fit_request(X_target=True))]
    scaled = Pipeline(steps, transform_input=["X_target"]).fit(data.X, data.y, X_target=data.Xt)
    scaler = StandardScaler().fit(data.X)
    by_hand = small("rda").fit(scaler.transform(data.X), data.y, X_target=scaler.transform(data.Xt))
    np.testing.assert_array_equal(scaled.predict_proba(data.Xt), by_hand.predict_proba(scaler.transform(data.Xt)))


@pytest.mark.usefixtures("routing")
def test_searches_and_cross_validation(data: Data) -> None:
    X, y, domains = data.together()
    search = GridSearchCV(small("rda"), {"alpha": [2.0, None], "steps": [20, 40]}, cv=2, error_score="raise")
    search.fit(X, y, sample_domain=domains)
    assert search.best_params_["steps"] in (20, 40)
    assert search.predict(data.Xt).shape == (80,)
    assert cross_val_predict(small("mdd"), X, y, cv=2, params={"sample_domain": domains}).shape == y.shape
    probabilities = cross_val_predict(DANNClassifier(steps=20, width=8), data.X, data.y, cv=2, method="predict_proba")
    assert probabilities.shape == (120, 2)


@pytest.fixture
def skada() -> Iterator[Any]:
    before = sklearn.get_config()  # importing skada turns metadata routing on for the whole process
    yield pytest.importorskip("skada")
    sklearn.set_config(**before)


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_skada_drives_the_estimator(skada: Any) -> None:
    from skada import metrics
    from skada.datasets import make_shifted_datasets
    from skada.model_selection import SourceTargetShuffleSplit

    X, y, domains = make_shifted_datasets(20, 20, shift="covariate_shift", noise=0.2, random_state=0)
    masked = np.where(domains > 0, y, -1)
    model = small("rda", steps=80, epochs=10).set_score_request(sample_weight=True)
    pipeline = skada.make_da_pipeline(StandardScaler(), model)
    pipeline.fit(X, masked.copy(), sample_domain=domains)
    target = domains < 0
    assert pipeline.score(X[target], y[target], sample_domain=domains[target]) > 0.7
    assert set(pipeline.predict(X[target])) <= {0, 1}

    scorers = {
        "accuracy": metrics.SupervisedScorer(),
        "entropy": metrics.PredictionEntropyScorer(),
        "weighted": metrics.ImportanceWeightedScorer(),
        "density": metrics.SoftNeighborhoodDensity(),
        "circular": metrics.CircularValidation(),
    }
    split = SourceTargetShuffleSplit(n_splits=1, test_size=0.4, random_state=0)
    for estimator in (model, pipeline):
        for name, scorer in scorers.items():
            params = {"sample_domain": domains} | ({"target_labels": y} if name == "accuracy" else {})
            found = cross_validate(
                estimator, X, masked.copy(), cv=split, params=params, scoring=scorer, error_score="raise"
            )
            assert np.isfinite(found["test_score"]).all(), name
            assert name != "accuracy" or found["test_score"][0] > 0.7

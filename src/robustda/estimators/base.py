"""What the scikit-learn estimators of all methods have in common: everything but their parameters."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, validate_data
from torch import Tensor

from robustda.columns import Described, rows_of
from robustda.data.domain import Domain
from robustda.errors import DataError, RobustDAWarning
from robustda.methods import Method, create_method
from robustda.nets import Classifier

__all__ = ["DomainAdaptationClassifier"]

_FEWEST = 12  # source rows below which there are no neighbours to judge labels by
_ROWS_AT_ONCE = 2048
_ROUTED: dict[str, bool] = {"sample_domain": True, "allow_source": True}


class DomainAdaptationClassifier(ClassNamePrefixFeaturesOutMixin, ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """What the estimators have in common. It is no estimator itself: use `RDAClassifier` and the like."""

    # As skada's own estimators have it, so that its pipelines and scorers need no set_fit_request.
    __metadata_request__fit: ClassVar = {"sample_domain": True}
    __metadata_request__predict: ClassVar = _ROUTED
    __metadata_request__predict_proba: ClassVar = _ROUTED
    __metadata_request__predict_log_proba: ClassVar = _ROUTED
    __metadata_request__decision_function: ClassVar = _ROUTED
    __metadata_request__score: ClassVar = _ROUTED

    method_name: ClassVar[str] = ""
    method_params: ClassVar[tuple[str, ...]] = ()
    preset_params: ClassVar[tuple[str, ...]] = ()

    device: str
    verbose: bool
    random_state: int | np.random.RandomState | None

    classes_: np.ndarray
    n_features_in_: int
    network_: Classifier

    def fit(self, X: Any, y: Any, X_target: Any = None, *, sample_domain: Any = None) -> Self:
        """Learn from a labelled source and an unlabelled target.

        Parameters
        ----------
        X : vectors of the source, shape (n_samples, n_features); with `sample_domain` those of the target, too.
        y : labels of any type. Those of target rows are ignored, whatever stands there.
        X_target : vectors of the target. A pipeline's earlier steps are applied to them only if it is told so,
            ``Pipeline(steps, transform_input=["X_target"])``; with `sample_domain` there is nothing to tell.
        sample_domain : for each row of X a number, positive for the source and negative for the target (the convention
            of skada). In cross-validation this is the way to go: it is split along with X.

        Without a target the source itself serves as one: the method then learns as if there were no shift.
        """
        if y is None:
            raise ValueError(f"{type(self).__name__} requires y to be passed, but the target y is None")
        X = validate_data(self, X, dtype=np.float32, order="C", ensure_min_samples=2)
        labels = column_or_1d(y, warn=True)
        check_consistent_length(X, labels)
        of_source, target = self._split(X, X_target, sample_domain)
        labels = check_array(labels[of_source], ensure_2d=False, dtype=None, input_name="y")
        check_classification_targets(labels)
        classes, codes = np.unique(labels, return_inverse=True)
        if len(classes) < 2:
            raise DataError(f"the source has one class only ({classes[0]!r}): {type(self).__name__} needs two at least")
        source = X[of_source]
        method = self._method(len(source))
        method.fit(
            Domain(source, codes.astype(np.int64), classes, _row_numbers(len(source)), "the source"),
            Domain(target, None, classes, _row_numbers(len(target)), "the target"),
            device=self.device,
            progress=bool(self.verbose),
            tensorboard=False,
        )
        self._keep(method, classes)
        if hasattr(method, "trust_"):
            self.trust_, self.learned_as_, self.noise_rate_ = method.trust_, method.learned_as_, method.noise_rate_
            backbone = method.network_.backbone
            described = rows_of(backbone, source) if backbone.fixed else source
            self.transition_matrix_ = _transition_matrix(described, codes, len(classes), method.seed)
        return self

    def predict(self, X: Any, *, sample_domain: Any = None, allow_source: Any = None) -> np.ndarray:
        """The most likely class of each row.

        Here and below `sample_domain` and `allow_source` are taken because skada's scorers pass them. They change
        nothing: there is one network, for rows of any domain.
        """
        best = self._logits(X).argmax(dim=1).numpy()
        return cast(np.ndarray, self.classes_[best])

    def predict_proba(self, X: Any, *, sample_domain: Any = None, allow_source: Any = None) -> np.ndarray:
        """Probabilities, one row an example, one column a class of `classes_`."""
        return torch.softmax(self._logits(X), dim=1).numpy()

    def predict_log_proba(self, X: Any, *, sample_domain: Any = None, allow_source: Any = None) -> np.ndarray:
        """The logarithms of the probabilities, exact where those are too small to be told from 0."""
        return torch.log_softmax(self._logits(X), dim=1).numpy()

    def decision_function(self, X: Any, *, sample_domain: Any = None, allow_source: Any = None) -> np.ndarray:
        """The logits; of two classes the second's less the first's, so that it is positive where that one wins."""
        logits = self._logits(X).numpy()
        return cast(np.ndarray, logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits)

    def transform(self, X: Any) -> np.ndarray:
        """The features that the classifier sees: the bottleneck's, of `width` columns."""
        single = getattr(X, "dtype", None) == np.float32
        return self._features(X).numpy().astype(np.float32 if single else np.float64, copy=False)

    def score(
        self, X: Any, y: Any, sample_weight: Any = None, *, sample_domain: Any = None, allow_source: Any = None
    ) -> float:
        """The share of rows, of all that are given, whose class is predicted right."""
        return float(accuracy_score(y, self.predict(X), sample_weight=sample_weight))

    def _split(self, X: np.ndarray, X_target: Any, sample_domain: Any) -> tuple[npt.NDArray[np.bool_], np.ndarray]:
        """Which rows of X are the source's, and the target's vectors."""
        if X_target is not None and sample_domain is not None:
            raise DataError("X_target and sample_domain both say what the target is: give one of them")
        if sample_domain is None:
            everything = np.ones(len(X), dtype=bool)
            if X_target is None:
                return everything, X
            return everything, validate_data(self, X_target, reset=False, dtype=np.float32, order="C")
        domains = column_or_1d(sample_domain, dtype=np.float64)
        check_consistent_length(X, domains)
        of_source, of_target = domains > 0, domains < 0
        if not (of_source | of_target).all():
            raise DataError("sample_domain must be positive for rows of the source and negative for the target's")
        if not of_source.any():
            raise DataError("sample_domain names no row of the source: give rows with a positive number, and labels")
        return of_source, X[of_target] if of_target.any() else X

    def _method(self, source_rows: int) -> Method:
        """The method with these parameters; those that a variant presets only where they are given."""
        params = {name: getattr(self, name) for name in self.method_params}
        params = {name: value for name, value in params.items() if not (value is None and name in self.preset_params)}
        seed, generator = self.random_state, check_random_state(self.random_state)
        if not isinstance(seed, int | np.integer):
            seed = generator.randint(2**31 - 1)
        if isinstance(params.get("noise_rate"), str) and source_rows < _FEWEST:
            params["noise_rate"] = 0.0
            message = (
                f"{source_rows} source rows are too few to estimate the share of wrong labels: it is taken to be 0; "
                f"give noise_rate a number, or at least {_FEWEST} rows"
            )
            warnings.warn(message, RobustDAWarning, stacklevel=3)
        return create_method(self.method_name, **params, seed=int(seed))

    def _keep(self, method: Method, classes: np.ndarray) -> None:
        for name in ("trust_", "learned_as_", "noise_rate_", "transition_matrix_"):
            self.__dict__.pop(name, None)  # an earlier fit with other settings may have left it
        self.classes_, self.history_ = classes, method.history_
        self._fitted_method = (method.name, method.params())
        self._keep_network(method.network_)

    def _keep_network(self, network: Classifier) -> None:
        """Predictions are made in float64, so that a row's do not depend on the rows beside it, and on the CPU.

        In float32 they differ in the seventh digit from one batch size to the next.
        """
        self.network_ = network.cpu().double().eval().requires_grad_(False)

    def _described(self, X: Any) -> Iterator[Tensor]:
        """What the backbone makes of the rows, some at a time."""
        check_is_fitted(self)
        # As the network was trained on them: float32. Its own `described` would round to it once more.
        x = validate_data(self, X, reset=False, dtype=np.float32, order="C")
        for start in range(0, len(x), _ROWS_AT_ONCE):
            yield self.network_.backbone(torch.from_numpy(x[start : start + _ROWS_AT_ONCE].astype(np.float64)))

    @torch.no_grad()
    def _features(self, X: Any) -> Tensor:
        return torch.cat([self.network_.bottleneck(part) for part in self._described(X)])

    @torch.no_grad()
    def _logits(self, X: Any) -> Tensor:
        return torch.cat([self.network_.say(part) for part in self._described(X)])

    @property
    def _n_features_out(self) -> int:
        first = self.network_.f[0]
        return int(cast(torch.nn.Linear, first).in_features)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def __getstate__(self) -> dict[str, Any]:
        """Tensors in place of the network: they outlive changes to its classes, and are what was learned."""
        state = dict(super().__getstate__())
        if "network_" in state:
            weights = state.pop("network_").state_dict()
            state["_weights"] = {k: v.float() if v.is_floating_point() else v for k, v in weights.items()}
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        weights = state.pop("_weights", None)
        super().__setstate__(state)
        if weights is not None:
            name, params = self._fitted_method
            with torch.random.fork_rng(devices=[]):
                network = create_method(name, **params).network(
                    (self.n_features_in_,), len(self.classes_), pretrained=False
                )
            network.load_state_dict(weights)
            self._keep_network(network)


def _transition_matrix(source: Described, codes: np.ndarray, n_classes: int, seed: int) -> npt.NDArray[np.float64]:
    if len(source) < _FEWEST:
        return np.eye(n_classes)
    from robustda.noise.evidence import label_evidence
    from robustda.noise.transition import noise_of

    evidence = label_evidence(np.asarray(source), codes, n_classes, together=False, seed=seed)
    return noise_of(evidence, resamples=2, seed=seed).combined.transition


def _row_numbers(count: int) -> np.ndarray:
    return np.arange(count).astype(str)

"""From a method's dataclass to its estimator: the parameters, their defaults, and the docstring."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import textwrap
from typing import Any

import numpy as np

from robustda.estimators.base import DomainAdaptationClassifier
from robustda.methods import Method, method_class
from robustda.methods.options import Option, options

__all__ = ["estimator_class", "estimator_name"]

_LEFT_OUT = ("augment", "image_size", "keep_curves", "seed")  # for images, for run folders; random_state is the seed


@functools.cache
def estimator_class(method: str) -> type[DomainAdaptationClassifier]:
    """The estimator of a method by its registered name.

    >>> estimator_class("rda").__name__
    'RDAClassifier'
    """
    kind = method_class(method)
    preset = _preset_values(kind)
    chosen = [o for o in options(kind) if o.name not in _LEFT_OUT]
    chosen = [dataclasses.replace(o, default=None, type=o.type | None) if o.name in preset else o for o in chosen]
    own = [
        Option("random_state", int | np.random.RandomState | None, 0, "all randomness is a function of it.", ""),
        Option("device", str, "auto", "where to train: cpu, cuda, cuda:1, ...; auto takes a GPU if there is one.", ""),
        Option("verbose", bool, False, "show progress bars (on a terminal).", ""),
    ]
    name = estimator_name(kind)
    # A dataclass's __init__ names every parameter and does nothing but store it, which is what scikit-learn asks for.
    made = dataclasses.make_dataclass(
        name,
        [(o.name, o.type, dataclasses.field(default=o.default)) for o in [*chosen, *own]],
        bases=(DomainAdaptationClassifier,),
        namespace={
            "method_name": kind.name,
            "method_params": tuple(o.name for o in chosen),
            "preset_params": tuple(preset),
            "__doc__": _document(kind, [*chosen, *own], preset),
        },
        kw_only=True,
        repr=False,
        eq=False,
    )
    made.__module__ = __package__  # where pickle looks for it
    return made


def estimator_name(kind: type[Method]) -> str:
    """What the estimator of a method is called."""
    return f"{kind.__name__}Classifier"


def _preset_values(kind: type[Method]) -> dict[str, dict[str, Any]]:
    """For each option that the variants preset differently, its value in each of them."""
    if kind.presets is None:
        return {}
    _, variants = kind.presets
    values = {variant: {o.name: o.default for o in options(kind, variant)} for variant in variants}
    changed = {name for settings in variants.values() for name in settings}
    return {name: {variant: values[variant][name] for variant in variants} for name in sorted(changed)}


def _document(kind: type[Method], chosen: list[Option], preset: dict[str, dict[str, Any]]) -> str:
    name = estimator_name(kind)
    lines = [f"{kind.name}: {kind.summary}.", "", f"The method is that of {kind.paper}.", "", "Parameters", "-" * 10]
    for option in chosen:
        about = option.help
        if option.name in preset:
            in_each = ", ".join(f"{variant} {value!r}" for variant, value in preset[option.name].items())
            about += f" None leaves it to the variant: {in_each}."
        lines.append(f"{option.name} : {inspect.formatannotation(option.type)}, default={option.default!r}")
        lines += textwrap.wrap(about, 110, initial_indent="    ", subsequent_indent="    ")
    lines += ["", "Attributes", "-" * 10, *_ATTRIBUTES.splitlines(), "", "Examples", "-" * 8]
    lines += [
        ">>> from sklearn.datasets import make_blobs",
        f">>> from robustda import {name}",
        ">>> X, y = make_blobs(60, centers=[[-3, 0], [3, 0]], random_state=0)",
        f">>> model = {name}(steps=40, width=32).fit(X, y, X_target=X + 0.5)",
        ">>> model.predict([[-3, 0], [3, 0]])",
        "array([0, 1])",
    ]
    return "\n".join(lines) + "\n"


_ATTRIBUTES = """\
classes_ : the class labels, in the order of the columns of `predict_proba`.
n_features_in_ : the number of features.
feature_names_in_ : their names, where X was a frame whose columns have names.
network_ : the PyTorch network that predicts, in float64 on the CPU.
history_ : what was logged, as a DataFrame: phase, step, metric, value.
trust_ : for each row of the source, 1 if the curriculum trusted its label and 0 if not (methods with a curriculum).
learned_as_ : for each row of the source, the place in `classes_` of the class that it was learned as, -1 if it was left
    out: some that are not trusted are taken for another class (methods with a curriculum).
noise_rate_ : the share of wrong labels, as given or estimated (methods with a curriculum). Below 12 rows nothing can be
    estimated: "auto" then takes it to be 0, with a warning.
transition_matrix_ : T[k, j], the estimated share of class k that was given label j (methods with a curriculum); by
    `robustda.noise.transition`, whatever noise_rate says. Below 12 rows the identity."""

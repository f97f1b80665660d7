"""Tuning without target labels: many runs, each judged by how its network looks on the unlabelled target.

    found = tune("rda", source, target, {"beta": (0.05, 0.5, "log"), "epochs": [15, 30]}, out="studies/a")
    found.best_params, found.best_score
    found.table                            # every trial

Each trial is a run folder. The study is an SQLite file that Optuna reads; who was interrupted calls the same again, and
the trial in hand is taken up where it stopped. A study that was interrupted tries what it would have tried otherwise:
the draws of a trial are a function of the seed, its number, and the trials before it.

The criteria are those of `robustda.select`: larger is better, and none of them sees a label of the target. Labels that
it carries only show in the table, as what an oracle would have seen.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from robustda.data.batches import derive_seed
from robustda.data.domain import Domain
from robustda.errors import ConfigError, RobustDAWarning, RunError
from robustda.files import write_whole
from robustda.methods.base import Method
from robustda.methods.registry import create_method
from robustda.run import RunFolder
from robustda.search_space import Space, combinations, read_space
from robustda.select import Criterion

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Study", "score_of", "tune"]

_SAMPLE = 1024  # target examples by which a network is judged, as in training


@dataclass(frozen=True, eq=False)
class Study:
    """What came of a study."""

    folder: Path
    criterion: str
    space: Space
    table: pd.DataFrame
    """A line for each trial: trial, state, score, the options searched, target_accuracy (not used), seconds, folder."""
    best: int | None
    """The number of the best trial; None where none has ended well."""
    best_params: dict[str, Any]
    best_score: float

    @property
    def best_run(self) -> Path | None:
        """The run folder of the best trial."""
        return None if self.best is None else self.folder / str(self.table.set_index("trial").loc[self.best, "folder"])


def tune(
    method: str,
    source: Domain,
    target: Domain,
    search: Iterable[str] | Mapping[str, Any],
    *,
    out: str | os.PathLike[str],
    trials: int = 20,
    criterion: Criterion = "im",
    params: Mapping[str, Any] | None = None,
    seed: int = 0,
    show: bool = False,
    config: Mapping[str, Any] | None = None,
    **runtime: Any,
) -> Study:
    """Search options of a method for what a criterion without target labels likes best.

    `search` is described in `robustda.search_space`; `params` are options that all trials share, `runtime` what
    `Method.fit` takes beside the data, `seed` that of the search. `trials` counts all trials of the study, those of
    earlier calls too; where there are but so many combinations, each is tried once. `config` goes into best.yaml.
    """
    if trials < 1:
        raise ConfigError(f"trials is {trials}: give a number of at least 1")
    space, fixed = read_space(method, search), dict(params or {})
    if both := [name for name in space if name in fixed]:
        raise ConfigError(f"{both[0]} is given and searched: do one of both")
    create_method(method, **fixed)
    optuna = _optuna()
    if criterion == "dev":  # the only one that is not computed unless it is asked for
        runtime["select"] = "dev"
    settings = {
        "method": method,
        "params": fixed,
        "search": {name: str(part) for name, part in space.items()},
        "criterion": criterion,
        "seed": seed,
        "select": runtime.get("select", "last"),
        "data": {"source": source.name, "target": target.name, "examples": [len(source), len(target)]},
    }
    folder = _StudyFolder(out, settings)
    try:
        work = _Work(folder.path, optuna, method, fixed, space, criterion, seed, trials, runtime, show)
        try:
            work.go(source, target)
        finally:
            found = work.outcome()
            if found.best is not None:
                _write_best(found, method, fixed, runtime, dict(config or {}))
            if len(found.table):
                from robustda.tune_figure import draw_study

                draw_study(found)
        return found
    finally:
        folder.close()


def score_of(method: Method, target: Domain, criterion: str) -> float:
    """How good a fitted method looks on the target: by its probabilities alone, whatever labels lie there."""
    if criterion == "dev":
        found = method.history_.query("metric == 'select_dev'")["value"]
        if found.empty:
            raise ConfigError(f"{method.name} is not judged while it learns, so there is no dev: choose im, snd or bnm")
        return float(found.max())
    import torch

    from robustda.select import scores

    rows = np.unique(np.linspace(0, len(target) - 1, min(_SAMPLE, len(target))).round().astype(int))
    probabilities = torch.as_tensor(method.predict_proba(target.take(rows).unlabelled()))
    return scores(probabilities.clamp(min=1e-30).log())[criterion]


class _StudyFolder(RunFolder):
    """A run folder's lock and its check of the settings, for a study."""

    others: ClassVar = {"model.json": "a run", "checkpoints": "a run", "candidates": "a run of --method auto"}

    @property
    def done(self) -> bool:
        return (self.path / "study.db").exists()


@dataclass
class _Work:
    """A study in progress."""

    path: Path
    optuna: Any
    method: str
    fixed: dict[str, Any]
    space: Space
    criterion: str
    seed: int
    trials: int
    runtime: dict[str, Any]
    show: bool

    def __post_init__(self) -> None:
        try:
            self.study = self.optuna.create_study(
                storage=f"sqlite:///{(self.path / 'study.db').resolve()}",
                study_name="robustda",
                direction="maximize",
                load_if_exists=True,
            )
        except Exception as error:  # Optuna's, SQLAlchemy's and SQLite's share no class
            why = str(error).partition("\n")[0]
            raise RunError(
                f"the study in {self.path} cannot be opened ({why}): choose another --out, or delete its study.db"
            ) from error
        every = combinations(self.space)
        self.grid = every if every is not None and len(every) <= self.trials else None

    def go(self, source: Domain, target: Domain) -> None:
        for trial in self._begun():
            self._run(trial.number, trial.params, source, target)
        while (number := len(self.study.get_trials(deepcopy=False))) < self.trials:
            if self.grid is not None:
                tried = [trial.params for trial in self.study.get_trials(deepcopy=False)]
                left = [one for one in self.grid if one not in tried]
                if not left:
                    return
                self.study.enqueue_trial(left[0])
            sampler_seed = derive_seed(self.seed, "trial", number) % 2**32
            self.study.sampler = self.optuna.samplers.TPESampler(seed=sampler_seed)
            distributions = {name: part.distribution() for name, part in self.space.items()}
            trial = self.study.ask(distributions)
            self._run(trial.number, trial.params, source, target)

    def _begun(self) -> list[Any]:
        """Trials that were interrupted."""
        states = self.optuna.trial.TrialState
        return [t for t in self.study.get_trials(deepcopy=False) if t.state == states.RUNNING]

    def _run(self, number: int, params: dict[str, Any], source: Domain, target: Domain) -> None:
        states = self.optuna.trial.TrialState
        twin = self._twin(number, params)
        if twin is not None:  # runs are a function of their settings: once is enough
            self._note(number, folder=twin.user_attrs["folder"], **_kept(twin.user_attrs))
            self.study.tell(number, twin.value)
            self._say(number, params, twin.value)
            return
        folder = f"trials/{number:03d}"
        method = create_method(self.method, **self.fixed, **params)
        try:
            method.fit(source, target, out=self.path / folder, **self.runtime)
            score = score_of(method, target, self.criterion)
        except RunError as error:  # it has diverged or collapsed, which says something about its settings
            warnings.warn(f"trial {number} failed: {error}", RobustDAWarning, stacklevel=3)
            self._note(number, folder=folder, reason=str(error))
            self.study.tell(number, state=states.FAIL)
            return
        summary = method.summary_
        self._note(number, folder=folder, accuracy=summary["target_accuracy"], seconds=summary["seconds"])
        self.study.tell(number, score)
        self._say(number, params, score)

    def _twin(self, number: int, params: dict[str, Any]) -> Any:
        done = self.optuna.trial.TrialState.COMPLETE
        before = self.study.get_trials(deepcopy=False, states=(done,))
        return next((trial for trial in before if trial.params == params and trial.number != number), None)

    def _note(self, number: int, **notes: Any) -> None:
        identity = self.study.get_trials(deepcopy=False)[number]._trial_id
        for name, value in notes.items():
            self.study._storage.set_trial_user_attr(identity, name, value)

    def _say(self, number: int, params: dict[str, Any], score: float) -> None:
        if self.show:
            settings = " ".join(f"{name}={_shown(value)}" for name, value in params.items())
            best = self.study.best_trial
            leads = "the best so far" if best.number == number else f"best {best.value:.4f}, trial {best.number}"
            print(f"trial {number}: {self.criterion} {score:.4f} ({leads})  {settings}", flush=True)

    def outcome(self) -> Study:
        """What there is so far; also written as trials.csv."""
        import pandas as pd

        lines = [
            {
                "trial": trial.number,
                "state": {"COMPLETE": "ended", "FAIL": "failed"}.get(trial.state.name, "not ended"),
                "score": trial.value,
                **{name: trial.params.get(name) for name in self.space},
                "target_accuracy": trial.user_attrs.get("accuracy"),
                "seconds": trial.user_attrs.get("seconds"),
                "folder": trial.user_attrs.get("folder", f"trials/{trial.number:03d}"),
            }
            for trial in self.study.get_trials(deepcopy=False)
        ]
        columns = ["trial", "state", "score", *self.space, "target_accuracy", "seconds", "folder"]
        table = pd.DataFrame(lines, columns=columns)
        write_whole(self.path / "trials.csv", table.to_csv(index=False, lineterminator="\n").encode())
        ended = table[table["state"] == "ended"]
        if ended.empty:
            return Study(self.path, self.criterion, self.space, table, None, {}, float("nan"))
        best = int(ended["trial"].iloc[int(ended["score"].astype(float).to_numpy().argmax())])
        trial = self.study.get_trials(deepcopy=False)[best]
        return Study(self.path, self.criterion, self.space, table, best, dict(trial.params), float(trial.value))


def _write_best(
    found: Study, method: str, fixed: dict[str, Any], runtime: dict[str, Any], config: dict[str, Any]
) -> None:
    """best.yaml: what `fit --config` reads."""
    import yaml

    chosen = create_method(method, **fixed, **found.best_params).params()
    select = {"select": runtime["select"]} if runtime.get("select", "last") != "last" else {}
    head = (
        f"# The best of {len(found.table)} trials by {found.criterion}: trial {found.best}, {found.best_score:.6g}.\n"
    )
    content = yaml.safe_dump({"method": method, **config, **chosen, **select}, sort_keys=False, allow_unicode=True)
    write_whole(found.folder / "best.yaml", (head + content).encode())


def _kept(attributes: Mapping[str, Any]) -> dict[str, Any]:
    return {name: attributes.get(name) for name in ("accuracy", "seconds")}


def _shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise ConfigError("tuning needs a package that is not here: pip install 'robustda[tune]'") from error
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna

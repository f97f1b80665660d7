"""Where the time went: sections that add up, a trace of few steps, and nothing at all unless asked for."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from robustda import evaluation, loop, outcome
from robustda.errors import RunStopped
from test_every_method import QUIET, blobs, small


@pytest.mark.parametrize("steps", [20, 35, 60])
def test_a_profiled_run_of_any_length(steps: int, tmp_path: Path) -> None:
    """Ten steps are traced from the thirtieth on: a phase may end before them, among them or after them."""
    source, target = blobs(n=230, target=60)
    method = small("rda", steps=steps, epochs=5).fit(source, target, out=tmp_path, profile=True, **QUIET)
    table = pd.read_csv(tmp_path / "profile.csv")
    assert table.share.sum() == pytest.approx(1, abs=1e-6)
    assert table.seconds.min() > -0.01
    assert {"step: forward", "evaluate", "between epochs", "conclude", "other"} <= set(table.section)
    assert set(table.section) == {name for name, *_ in method.profile_}
    assert (tmp_path / "trace-filter.json").exists()
    assert (tmp_path / "trace-adapt.json").exists() == (steps > 30)
    if steps > 30:
        assert json.loads((tmp_path / "trace-adapt.json").read_text())["traceEvents"]
    timeline = pd.read_csv(tmp_path / "timeline.csv")
    assert timeline.seconds.is_monotonic_increasing
    assert timeline.step.iloc[-1] == steps


def test_a_run_that_is_not_profiled_writes_nothing_of_it(tmp_path: Path) -> None:
    source, target = blobs(n=100, target=60)
    method = small("mdd").fit(source, target, out=tmp_path, **QUIET)
    assert method.profile_ == []
    assert not [*tmp_path.glob("*profile*"), *tmp_path.glob("*trace*"), *tmp_path.glob("timeline*")]


def test_a_request_to_stop_that_comes_at_the_very_end_is_passed_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run is done all the same, but whoever called must not go on with the next one."""
    plain = loop.conclude

    def conclude(*given: Any) -> None:
        signal.raise_signal(signal.SIGTERM)
        plain(*given)

    monkeypatch.setattr(loop, "conclude", conclude)
    source, target = blobs(n=100, target=60)
    with pytest.raises(RunStopped) as stopped:
        small("mdd").fit(source, target, out=tmp_path, **QUIET)
    assert stopped.value.code == 128 + signal.SIGTERM
    assert (tmp_path / "done").exists()


def test_an_evaluation_is_one_pass_over_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    """Accuracy, collapse and the label-free criteria all come from the same logits."""
    seen: list[int] = []
    plain = evaluation.forward_all

    def counted(network: object, inputs: object, rows: object = None) -> object:
        out = plain(network, inputs, rows)  # type: ignore[arg-type]
        seen.append(len(out))
        return out

    for module in (evaluation, outcome):
        monkeypatch.setattr(module, "forward_all", counted)
    source, target = blobs(n=100, target=1500)
    small("mdd", steps=30).fit(source, target, eval_every=10, **QUIET)
    assert seen == [1500] * 4, "three evaluations, and the predictions at the end"
    seen.clear()
    small("mdd", steps=30).fit(source, target.unlabelled(), eval_every=10, **QUIET)
    assert seen == [1024, 1024, 1024, 1500]

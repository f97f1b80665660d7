"""Numbers at the end of their range: every loss stays finite, and so does its gradient, in every precision."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from conftest import environment
from robustda.alignment import domain_accuracy, domain_loss, fused_mmd, multi_kernel_mmd, transferable
from robustda.data.domain import Domain
from robustda.errors import ConfigError, RobustDAWarning, RunError
from robustda.losses import (
    entropy,
    log_one_minus_softmax,
    margin_discrepancy,
    masked_mean,
    proxy_margin_discrepancy,
    proxy_mask,
    weighted_risk,
)
from robustda.methods import DAN, create_method

PRECISIONS = [torch.float16, torch.bfloat16, torch.float32]
QUIET = {"device": "cpu", "progress": False, "tensorboard": False, "precision": "float32"}
LABELS = torch.tensor([0, 1, 2, 0])


def extremes(dtype: torch.dtype) -> dict[str, Tensor]:
    """Logits of four examples and three classes, as large as can be asked of a precision."""
    top = 6e4 if dtype == torch.float16 else 1e30
    one_hot = F.one_hot(LABELS, 3).double()
    rng = torch.Generator().manual_seed(0)
    return {
        "all equal": torch.zeros(4, 3),
        "sure and right": top * one_hot,
        "sure and wrong": top * one_hot.roll(1, dims=1),
        "far below": -top * one_hot,
        "from end to end": top * (2 * one_hot - 1),
        "all at the top": torch.full((4, 3), top),
        "all at the bottom": torch.full((4, 3), -top),
        "hardly anything": torch.full((4, 3), 1e-7),
        "of every size": 10 ** (12 * torch.rand(4, 3, generator=rng, dtype=torch.float64) - 8),
    }


def mean_of(values: dict[str, Tensor]) -> Tensor:
    return torch.stack([value.float() for value in values.values()]).sum()


LOSSES: dict[str, Callable[[Tensor], Tensor]] = {
    "weighted_risk": lambda z: weighted_risk(z, LABELS),
    "weighted_risk, one trusted": lambda z: weighted_risk(z, LABELS, torch.tensor([1.0, 0, 0, 0])),
    "weighted_risk, none trusted": lambda z: weighted_risk(z, LABELS, torch.zeros(4)),
    "log_one_minus_softmax": lambda z: -log_one_minus_softmax(z, LABELS).mean(),
    "entropy": lambda z: entropy(z).mean(),
    "margin_discrepancy": lambda z: mean_of(margin_discrepancy(z, LABELS, z.flip(0), LABELS, alpha=4)),
    "proxy_margin_discrepancy": lambda z: mean_of(
        proxy_margin_discrepancy(z, LABELS, proxy_mask(z[:, 0], torch.tensor(0.5)), z.flip(0), LABELS, alpha=3)
    ),
    "domain_loss": lambda z: domain_loss(z[:, 0], z[:, 1]),
    "domain_loss, weighted": lambda z: domain_loss(z[:, 0], z[:, 1], torch.tensor([1.0, 0, 0, 0])),
    "multi_kernel_mmd": lambda z: multi_kernel_mmd(z[:2], z[2:]),
    "multi_kernel_mmd, biased": lambda z: multi_kernel_mmd(z[:2], z[2:], estimator="biased"),
    "fused_mmd": lambda z: fused_mmd(
        [z[:2], torch.softmax(z[:2].float(), 1)], [z[2:], torch.softmax(z[2:].float(), 1)]
    ),
}


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
@pytest.mark.parametrize("name", LOSSES)
def test_losses_and_gradients_are_finite_at_extreme_logits(name, dtype):
    for case, values in extremes(dtype).items():
        logits = values.to(dtype).requires_grad_()
        loss = LOSSES[name](logits)
        assert bool(loss.isfinite()), case
        (gradient,) = torch.autograd.grad(loss, logits)
        assert bool(gradient.isfinite().all()), case


@pytest.mark.parametrize("dtype", PRECISIONS, ids=str)
def test_choices_are_choices_at_extreme_logits(dtype):
    for values in extremes(dtype).values():
        logits = values.to(dtype)
        chosen = transferable(logits[:, 0], logits[:, 1], class_threshold=0.3, domain_threshold=0.5, domain_weight=0.1)
        assert set(chosen.tolist()) <= {0.0, 1.0}
        assert set(proxy_mask(logits[:, 0], torch.tensor(0.5)).tolist()) == {0.0, 1.0}
        assert 0 <= float(domain_accuracy(logits[:, 0], logits[:, 1])) <= 1


@pytest.mark.parametrize("scale", [1.0, 1e5, 1e9, 1e25])
def test_the_kernel_discrepancy_does_not_depend_on_the_scale(scale):
    rng = torch.Generator().manual_seed(1)
    source, target = torch.randn(8, 5, generator=rng), 1 + torch.randn(8, 5, generator=rng)
    expected = multi_kernel_mmd(source, target)
    torch.testing.assert_close(multi_kernel_mmd(scale * source, scale * target), expected, rtol=1e-4, atol=1e-5)


def test_half_precision_agrees_with_double_where_both_can():
    rng = torch.Generator().manual_seed(2)
    logits = torch.randn(4, 3, generator=rng, dtype=torch.float64) * 5
    for name, loss in LOSSES.items():
        torch.testing.assert_close(loss(logits.half()).double(), loss(logits).double(), rtol=0.02, atol=0.02, msg=name)


def test_the_mean_of_nothing_is_nothing():
    assert float(masked_mean(torch.tensor([1.0, 2.0]), torch.zeros(2))) == 0


# Divergence.


def task() -> tuple[Domain, Domain]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 80, 6)).astype(np.float32)
    x[0] += 3 * np.eye(6, dtype=np.float32)[np.arange(80) % 4]
    names = np.array(["a", "b", "c", "d"])[np.arange(80) % 4]
    return Domain.from_arrays(x[0], names, name="source"), Domain.from_arrays(x[1], name="target")


SMALL = {"steps": 60, "width": 16, "batch_size": 16}

# A learning rate that is far too large from the middle of the run on.
CLIFF = """
import torch
from robustda.methods import DAN
DAN.rate = lambda self, steps: lambda progress: torch.where(progress < 0.5, 0.01, 1e12)
"""


@pytest.fixture
def cliff(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DAN, "rate", DAN.rate)  # to be put back
    exec(CLIFF)


@pytest.mark.usefixtures("cliff")
def test_a_run_that_diverges_stops_with_a_diagnosis(tmp_path):
    found = r"training diverged: .* is not finite at step 3\d of phase adapt; try a smaller learning rate"
    with pytest.raises(RunError, match=found):
        create_method("dan", **SMALL).fit(*task(), out=tmp_path / "run", log_every=1, **QUIET)
    assert not (tmp_path / "run" / "done").exists()


@pytest.mark.usefixtures("cliff")
@pytest.mark.parametrize("folder", [True, False])
def test_or_goes_back_once_and_on_more_slowly_if_asked_to(tmp_path, folder):
    method = create_method("dan", **SMALL)
    with pytest.warns(RobustDAWarning, match=r"training diverged: .*: going back, and on with 1e-15 of the learning"):
        method.fit(*task(), out=tmp_path / "run" if folder else None, log_every=1, rollback=1e-15, **QUIET)
    assert method.summary_["rolled_back_to_rate"] == 1e-15
    assert np.isfinite(method.history_.value).all()
    entries = list(zip(method.history_.step, method.history_.metric, strict=True))
    assert len(set(entries)) == len(entries)
    assert method.history_.step.max() == 60


@pytest.mark.usefixtures("cliff")
def test_it_does_not_go_back_twice(tmp_path):
    with pytest.warns(RobustDAWarning, match="going back"), pytest.raises(RunError, match="training diverged"):
        create_method("dan", **SMALL).fit(*task(), log_every=1, rollback=0.9, **QUIET)


def test_after_a_rollback_a_stopped_run_goes_on_at_the_lower_rate(tmp_path):
    source, target = task()
    source.save_npz(tmp_path / "source.npz")
    target.save_npz(tmp_path / "target.npz")
    options = SMALL | {"method": "dan", "log_every": 1, "checkpoint_seconds": 1000, "rollback": 1e-15, "device": "cpu"}
    options |= {"source": tmp_path / "source.npz", "target": tmp_path / "target.npz", "tensorboard": "false"}
    words = [text for name, value in options.items() for text in (f"--{name}", str(value))]

    def run(out: str, before: str = "") -> subprocess.CompletedProcess[str]:
        program = f"{CLIFF}\n{before}\nimport sys\nfrom robustda.cli import main\nsys.exit(main(sys.argv[1:]))"
        arguments = [sys.executable, "-c", program, "fit", *words, "--out", str(tmp_path / out)]
        return subprocess.run(arguments, env=environment(), capture_output=True, text=True, check=False)

    whole = run("whole")
    assert whole.returncode == 0, whole.stderr
    assert "going back" in whole.stderr
    stop = """
import os, signal
from robustda import engine
plain = engine.Stepper.__call__
def called(self, now):
    plain(self, now)
    if now == 40:
        os.kill(os.getpid(), signal.SIGTERM)
engine.Stepper.__call__ = called
"""
    assert run("run", stop).returncode == 143
    (note,) = [json.loads(path.read_text()) for path in (tmp_path / "run").glob("checkpoints/*41/state.json")]
    assert note["rate_share"] == 1e-15
    again = run("run")
    assert (again.returncode, again.stderr) == (0, "")
    for name in ("model.safetensors", "metrics.csv"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


@pytest.mark.parametrize("rollback", [-0.1, 1.0, float("nan")])
def test_a_rollback_must_be_slower(rollback):
    with pytest.raises(
        ConfigError, match=r"rollback is .*: give a share of the learning rate from 0 to 1, less than 1"
    ):
        create_method("dan").fit(*task(), rollback=rollback)

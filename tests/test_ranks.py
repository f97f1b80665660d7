"""Several processes learn what one would: real ones, started by torchrun, that talk to each other over gloo."""

from __future__ import annotations

import contextlib
import csv
import dataclasses
import json
import random
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from conftest import environment, make_folders, make_pair
from robustda.cli import main
from robustda.engine import Runtime
from robustda.errors import ConfigError
from robustda.files import load_tensors
from robustda.methods import method_class, method_names
from robustda.nets import Backbone, Classifier, SmallCNN
from robustda.pieces import in_one, in_pieces
from robustda.ranks import Ranks

pytestmark = pytest.mark.skipif(not torch.distributed.is_gloo_available(), reason="PyTorch was built without gloo")

# Commands one after the other in each rank, with something to be done in one rank before a step of the last of them.
JOB = """
import json, os, signal, sys
from robustda import engine
from robustda.cli import main

commands, rank, step, what = json.loads(sys.argv[1])
if what == "double":
    import torch
    from robustda.data.batches import Inputs

    gather = Inputs.gather
    Inputs.gather = lambda self, rows, **how: gather(self, rows, **how).double()
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    what = ""
if what and int(os.environ["RANK"]) == rank:
    plain = engine.Stepper.__call__
    def called(self, now):
        if self.phase.name == "adapt" and now == step:
            os.kill(os.getpid(), getattr(signal, what))
        plain(self, now)
    engine.Stepper.__call__ = called
codes = [main(command) for command in commands]
sys.exit(max(codes))
"""
METHODS = ("rda", "mdd", "dann", "dan")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("data")
    pair = make_pair(seed=3, size=96, target_size=64, shift=1.0, rate=0.2)
    pair.source.save_npz(place / "source.npz")
    pair.target.save_npz(place / "target.npz")
    make_folders(place)
    (place / "job.py").write_text(JOB)
    return place


def fit(data: Path, out: Path, method: str = "rda", kind: str = "images", **changed: object) -> list[str]:
    """A small task; images go through a network with batch norm, vectors straight to the heads."""
    sides = ("web", "camera") if kind == "images" else ("source.npz", "target.npz")
    options: dict[str, object] = {
        "source": data / sides[0],
        "target": data / sides[1],
        "out": out,
        "method": method,
        "steps": 24,
        "batch_size": 16,
        "width": 32,
        "learning_rate": 0.02,
        "log_every": 3,
        "eval_every": 12,
        "checkpoint_seconds": 0,
        "tensorboard": "false",
        "device": "cpu",
        "precision": "float32",
    }
    options |= {"backbone": "small_cnn"} if kind == "images" else {}
    own = {"noise_rate": 0.3, "epochs": 6, "discriminator_width": 32, "mentor_steps": 20, "head_steps": 20}
    known = {field.name for field in dataclasses.fields(method_class(method))}
    options |= {name: value for name, value in own.items() if name in known}
    return ["fit", *(text for name, value in (options | changed).items() for text in (f"--{name}", str(value)))]


def free_port() -> int:
    """One that no other process is given before rank 0 listens, seconds later: the system hands out higher ones."""
    while True:
        port = random.SystemRandom().randrange(20000, 32000)
        with contextlib.suppress(OSError), socket.socket() as free:
            free.bind(("localhost", port))
            return port


def on_ranks(
    count: int, data: Path, commands: list[list[str]], rank: int = 0, step: int = 0, what: str = ""
) -> tuple[int, list[str]]:
    """Run commands on so many ranks; returns the exit code and the lines that robustda printed to stderr."""
    port = free_port()
    ranks = []
    for number in range(count):
        own = {
            "RANK": number,
            "LOCAL_RANK": number,
            "WORLD_SIZE": count,
            "MASTER_ADDR": "localhost",
            "MASTER_PORT": port,
        }
        ranks.append(
            subprocess.Popen(
                [sys.executable, str(data / "job.py"), json.dumps([commands, rank, step, what])],
                env=environment() | {name: str(value) for name, value in own.items()},
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        printed = [process.communicate(timeout=600)[1] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    for number, (process, text) in enumerate(zip(ranks, printed, strict=True)):  # shown if the test fails
        print(f"rank {number} ended with {process.returncode}:\n{text}")
    lines = [line for text in printed for line in text.splitlines() if line.startswith("robustda: ") or "Error" in line]
    codes = {process.returncode for process in ranks}
    return (codes.pop() if len(codes) == 1 else -1), lines


def weights(run: Path) -> dict[str, np.ndarray]:
    assert (run / "done").exists()
    return {name: tensor.numpy() for name, tensor in load_tensors(run / "model.safetensors").items()}


def assert_close(first: Path, second: Path, within: float = 1e-5) -> None:
    ours, theirs = weights(first), weights(second)
    assert ours.keys() == theirs.keys()
    for name in ours:
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=within, err_msg=name)


def trust(run: Path) -> list[tuple[str, str, str]]:
    """The trust table: each example with its weight and the class it was learned as."""
    with (run / "trust.csv").open() as file:
        return [(row["id"], row["weight"], row["learned_as"]) for row in csv.DictReader(file)]


@pytest.fixture(scope="module")
def by_one(data: Path) -> Path:
    """The outcome of one process, for every method."""
    for method in METHODS:
        assert main(fit(data, data / "one" / method, method)) == 0
    return data / "one"


@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_two_ranks_learn_the_weights_of_one(data, tmp_path, kind):
    """In float32, for some steps: rounding alone makes a unit switch on that was off at some later step."""
    how = {"kind": kind, "learning_rate": 0.01, "eval_every": 0, "checkpoint_seconds": 1000}
    how |= {"steps": 10, "backbone": "mlp"} if kind == "vectors" else {"steps": 3}
    for method in METHODS:
        assert main(fit(data, tmp_path / "one" / method, method, **how)) == 0
    assert on_ranks(2, data, [fit(data, tmp_path / "two" / method, method, **how) for method in METHODS]) == (0, [])
    for method in METHODS:
        assert_close(tmp_path / "one" / method, tmp_path / "two" / method)
        seen = [
            np.abs(tensor).max() for name, tensor in weights(tmp_path / "two" / method).items() if "running" in name
        ]
        assert min(seen) > 0  # batch norm in the backbone has seen something


def test_in_double_precision_they_stay_the_same_to_ten_digits(data, tmp_path):
    """What is left of the difference is rounding: with more digits a longer run keeps them."""
    methods = method_names()
    how = {"kind": "vectors", "backbone": "mlp", "steps": 40, "log_every": 20, "checkpoint_seconds": 1000}
    for count in (1, 2, 3):
        commands = [fit(data, tmp_path / str(count) / method, method, **how) for method in methods]
        assert on_ranks(count, data, commands, what="double") == (0, [])
    for method in methods:
        for count in (2, 3):
            assert_close(tmp_path / "1" / method, tmp_path / str(count) / method, within=1e-9)
    assert {tensor.dtype for tensor in weights(tmp_path / "1" / "rda").values()} == {np.dtype("f8"), np.dtype("i8")}


def test_the_trust_table_is_that_of_one_rank(data, by_one, tmp_path):
    expected = trust(by_one / "rda")
    assert {weight for _, weight, _ in expected} == {"0.0", "1.0"}
    for count in (2, 3):
        assert on_ranks(count, data, [fit(data, tmp_path / str(count))]) == (0, [])
        assert trust(tmp_path / str(count)) == expected


def test_on_vectors_every_bit_is_the_same(data, tmp_path):
    assert main(fit(data, tmp_path / "one", kind="vectors")) == 0
    assert on_ranks(2, data, [fit(data, tmp_path / "two", kind="vectors")]) == (0, [])
    for name in ("model.safetensors", "metrics.csv", "trust.csv", "predictions.csv"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_a_signal_to_one_rank_stops_all_and_any_number_takes_it_up(data, by_one, tmp_path):
    out = tmp_path / "run"
    code, lines = on_ranks(2, data, [fit(data, out, checkpoint_seconds=1000)], rank=1, step=7, what="SIGUSR1")
    assert code == 128 + 10
    assert set(lines) == {"robustda: stopped by SIGUSR1; the same command takes it up again"}
    assert [path.name for path in sorted((out / "checkpoints").iterdir())] == ["01-00000000", "01-00000008"]
    three = shutil.copytree(out, tmp_path / "three")
    assert on_ranks(3, data, [fit(data, three)]) == (0, [])
    assert main(fit(data, out)) == 0
    for run in (out, three):
        assert_close(run, by_one / "rda", within=1e-4)
        assert trust(run) == trust(by_one / "rda")


def test_when_a_rank_is_killed_the_others_say_so_and_the_run_can_go_on(data, by_one, tmp_path):
    out = tmp_path / "run"
    code, lines = on_ranks(2, data, [fit(data, out)], rank=1, step=7, what="SIGKILL")
    assert code == -1  # each has its own
    (line,) = lines
    assert line.startswith("robustda: error: rank 0 of 2 has lost another one")
    assert on_ranks(2, data, [fit(data, out)]) == (0, [])
    assert_close(out, by_one / "rda", within=1e-4)


def test_what_all_ranks_find_wrong_is_said_once(data, by_one, tmp_path):
    taken = shutil.copytree(by_one / "rda", tmp_path / "taken")
    code, lines = on_ranks(2, data, [fit(data, taken, seed=4)])
    assert code == 2
    (line,) = lines
    assert "holds a run with other settings (seed 0 → 4)" in line


def test_that_auto_runs_in_one_process_is_said_once(data, tmp_path):
    sides = ["--source", str(data / "source.npz"), "--target", str(data / "target.npz")]
    code, lines = on_ranks(2, data, [["fit", "--method", "auto", *sides, "--out", str(tmp_path / "run")]])
    assert code == 2
    assert lines == ["robustda: error: auto runs in one process: start it without torchrun, or choose a method"]
    assert not list(tmp_path.iterdir())


def test_a_done_run_is_read_by_all(data, by_one):
    assert on_ranks(2, data, [fit(data, by_one / "mdd", "mdd")]) == (0, [])


def test_a_batch_must_have_an_example_for_each_rank():
    with pytest.raises(ConfigError, match="a batch_size of 2 cannot be divided among 3 ranks"):
        Ranks(0, 3).check(2)


@pytest.mark.parametrize(("name", "value"), [("RANK", "two"), ("RANK", "5")])
def test_a_broken_environment_is_one_line(monkeypatch, name, value):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="RANK"):
        Ranks.of_environment()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "accelerate"])
def test_the_launchers_start_the_same_command(data, by_one, tmp_path, launcher):
    if launcher == "torchrun":
        start = ["torch.distributed.run", "--standalone", "--nproc_per_node", "2"]
    else:
        pytest.importorskip("accelerate")
        start = ["accelerate.commands.launch", "--cpu", "--num_processes", "2", "--num_machines", "1"]
        start += ["--mixed_precision", "no", "--dynamo_backend", "no"]
    command = [sys.executable, "-m", *start, "-m", "robustda.cli", *fit(data, tmp_path / "run", "mdd")]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("target accuracy") == 1  # rank 0's
    assert_close(tmp_path / "run", by_one / "mdd", within=1e-4)


# A batch in pieces.


class Plain(Backbone):
    """Without batch norm: what is learned must not depend on the pieces at all."""

    def __init__(self) -> None:
        super().__init__()
        self.out_features = 12
        self.layers = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 12))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x)


def gradients(network: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    network.zero_grad()
    torch.manual_seed(0)
    (network(x) ** 2).mean().backward()
    return [parameter.grad.clone() for parameter in network.parameters()]


@pytest.mark.parametrize("count", [2, 3, 7, 100])
def test_the_gradient_of_a_batch_in_pieces_is_that_of_the_batch(count):
    torch.manual_seed(1)
    network, x = Classifier(Plain(), 3, 8), torch.randn(14, 5)
    whole = gradients(network, x)
    in_pieces(network, count)
    for one, other in zip(whole, gradients(network, x), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    in_one(network)
    assert "forward" not in network.backbone.__dict__


def test_running_averages_see_a_piece_once():
    network = Classifier(SmallCNN(), 3, 8)
    in_pieces(network, 2)
    gradients(network, torch.rand(8, 3, 12, 12))
    norm = network.backbone.layers[1]
    assert int(norm.num_batches_tracked) == 2
    assert norm.momentum == 0.1


def test_a_run_in_pieces_learns(data, tmp_path):
    assert main(fit(data, tmp_path / "run", "dan", pieces=2)) == 0
    with pytest.raises(ConfigError, match="pieces is 0: give a number of at least 1"):
        Runtime(pieces=0)

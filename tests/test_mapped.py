"""Data that stay on the disk, .npy files that are mapped, and more ids than are handled at a time."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from conftest import environment, make_pair
from robustda import Domain
from robustda.cli import main
from robustda.data.batches import Inputs
from robustda.data.inputs import as_ids
from robustda.errors import DataError
from robustda.methods import create_method


def npy(folder: Path, name: str, domain: Domain, *, join: str = "_") -> Path:
    """A domain as .npy files."""
    path = folder / f"{name}.npy"
    np.save(path, domain.x)
    start = name[:-1] if join == "" else f"{name}_"
    if domain.y is not None:
        np.save(folder / f"{start}y.npy", domain.labels)
    np.save(folder / f"{start}ids.npy", domain.ids)
    return path


def test_an_npy_file_is_mapped_with_what_lies_beside_it(tmp_path: Path) -> None:
    source, _, *_ = make_pair(size=60)
    for path in (npy(tmp_path, "web", source), npy(tmp_path, "camera_x", source, join="")):
        found = Domain.read(path)
        assert isinstance(found.x, np.memmap)
        np.testing.assert_array_equal(found.x, source.x)
        assert found.ids.tolist() == source.ids.tolist()
        assert found.labels.tolist() == source.labels.tolist()
        assert Domain.read(path, labels="ignore").y is None
        assert isinstance(found.take(slice(10, 50)).x, np.memmap), "a stretch stays mapped"
    only = tmp_path / "only.npy"
    np.save(only, source.x.astype(np.float64))
    assert Domain.read(only).ids.tolist() == [str(row) for row in range(60)]
    with pytest.raises(DataError, match=r"only\.npy has no labels: save them as only_y\.npy beside it"):
        Domain.read(only, labels="required")


@pytest.mark.parametrize("placement", ["device", "stream"])
def test_a_run_from_mapped_vectors_ends_as_one_from_memory(tmp_path: Path, placement: str) -> None:
    source, target, *_ = make_pair(size=120, target_size=60, rate=0.2)
    outcomes = []
    for kind in ("npz", "npy"):
        paths = []
        for name, domain in (("web", source), ("camera", target)):
            paths.append(tmp_path / f"{name}.{kind}")
            if kind == "npz":
                domain.save_npz(paths[-1])
            else:
                npy(tmp_path, name, domain)
        out = tmp_path / kind
        options = ["--steps", "20", "--epochs", "2", "--noise_rate", "0.2", "--width", "16", "--tensorboard", "false"]
        options += ["--device", "cpu", "--placement", placement, "--out", str(out)]
        assert main(["fit", "--method", "rda", "--source", str(paths[0]), "--target", str(paths[1]), *options]) == 0
        outcomes.append([(out / name).read_bytes() for name in ("model.safetensors", "trust.csv", "predictions.csv")])
    assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "cannot be read as an .npy file"),
        (b"no array at all", "Python objects, or no array at all"),
        (b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (9, 9), }\n", "cannot be read"),
    ],
)
def test_a_file_that_is_no_array_is_one_line(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said):
        Domain.read(path)


def test_objects_archives_and_short_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="Python objects"):
        Domain.read(path)
    with open(path, "wb") as file:
        np.savez(file, x=np.ones((3, 2)))
    with pytest.raises(DataError, match=r"archive of arrays: give it a name that ends in \.npz"):
        Domain.read(path)
    np.save(path, np.ones((100, 5), dtype=np.float32))
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"cannot be read as an \.npy file"):
        Domain.read(path)
    np.save(path, np.ones((4, 5), dtype=np.float32))
    np.save(tmp_path / "y.npy", np.arange(3))
    with pytest.raises(DataError, match="4 examples but 3 labels"):
        Domain.read(path)


def test_what_cannot_be_read_in_place_must_fit_into_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from robustda.data import mapped

    monkeypatch.setattr(mapped, "memory_size", lambda: 1000)
    np.save(tmp_path / "x.npy", np.ones((100, 5)))
    with pytest.raises(DataError, match=r"too large for the memory as float64 \(100, 5\): save it as float32"):
        Domain.read(tmp_path / "x.npy")
    np.save(tmp_path / "x.npy", np.ones((100, 5), dtype=np.float32))
    assert len(Domain.read(tmp_path / "x.npy")) == 100


SMALL_MEMORY = """
import resource, sys
import torch
from robustda.cli import main
held = int(next(line for line in open("/proc/self/status") if line.startswith("VmData")).split()[1]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (held + (300 << 20),) * 2)  # a mapped file that is only read does not count
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits what a process may have as only Linux can")
def test_vectors_need_not_fit_into_the_memory(tmp_path: Path) -> None:
    """A GiB of vectors, most of them a hole in the file, and 300 MiB of memory."""
    rows = 2**30 // (4 * 512)
    x = np.lib.format.open_memmap(tmp_path / "web.npy", "w+", np.float32, (rows, 512))
    x[:2000] = np.random.default_rng(0).normal(size=(2000, 512)) + (np.arange(2000) % 4)[:, None]
    x.flush()
    del x
    np.save(tmp_path / "web_y.npy", np.arange(rows) % 4)
    np.save(tmp_path / "camera.npy", np.zeros((50, 512), dtype=np.float32))
    options = {
        "method": "mdd",
        "source": tmp_path / "web.npy",
        "target": tmp_path / "camera.npy",
        "out": tmp_path / "out",
    }
    options |= {"steps": 10, "width": 16, "device": "cpu", "placement": "stream", "tensorboard": "false"}
    words = [text for name, value in options.items() for text in (f"--{name}", str(value))]
    command = [sys.executable, "-c", SMALL_MEMORY, "fit", *words]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "done").exists()


def test_many_ids_go_through_a_run_whole_and_in_order(tmp_path: Path) -> None:
    """More rows than are put together at a time, by ids, fingerprint, exam, trust table and predictions."""
    m = 300_000
    y = np.arange(m) % 3
    x = (np.eye(3)[y] + np.random.default_rng(0).normal(scale=0.3, size=(m, 3))).astype(np.float32)
    source, target = Domain.from_arrays(x, y), Domain.from_arrays(x)
    method = create_method("rda", steps=3, epochs=1, noise_rate=0.1, batch_size=20_000, width=4)
    method.fit(source, target, out=tmp_path, device="cpu", tensorboard=False, progress=False)
    for name, given in (("trust.csv", "given_label"), ("predictions.csv", None)):
        table = pd.read_csv(tmp_path / name, dtype={"id": str})
        assert table["id"].tolist() == [str(row) for row in range(m)]
        if given:
            np.testing.assert_array_equal(table[given], y)
            np.testing.assert_array_equal(table["weight"], method.trust_)
    assert 0.8 < method.summary_["kept_share"] < 0.95


def test_ids_that_are_text_already_are_checked_and_not_copied() -> None:
    ids = np.array(["a", "b", "c"])
    assert as_ids(ids, 3, "x") is ids or np.shares_memory(as_ids(ids, 3, "x"), ids)
    with pytest.raises(DataError, match="must be unique"):
        as_ids(np.array(["a", "b", "a"]), 3, "x")
    with pytest.raises(DataError, match="have no id"):
        as_ids(np.array(["a", "", "b"]), 3, "x")


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux what it was told")
def test_the_system_is_told_how_a_mapped_file_will_be_read(tmp_path: Path) -> None:
    """Unasked it reads megabytes around every row that is drawn, which is a hundred times slower beyond the memory."""
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(500, 8)).astype(np.float32))
    domain = Domain.read(tmp_path / "x.npy")

    def random_reads_expected() -> bool:
        entries = Path("/proc/self/smaps").read_text().split("VmFlags:")
        place = next(number for number, entry in enumerate(entries) if str(tmp_path / "x.npy") in entry)
        return "rr" in entries[place + 1].splitlines()[0].split()

    for resident in (True, False):
        inputs = Inputs(domain, torch.device("cpu"), resident=resident)
        rows = torch.tensor([400, 3, 77])
        np.testing.assert_array_equal(inputs.gather(rows), domain.x[rows.numpy()])
        assert random_reads_expected()
        np.testing.assert_array_equal(torch.cat(list(inputs.in_order(64))), domain.x)
        assert not random_reads_expected()
        inputs.read(rows.numpy(), torch.empty(3, 8))
        assert random_reads_expected()
        assert inputs.array is domain.x
        assert not random_reads_expected()

"""Local files stay open while a dataset that read them is there, as many as the process may have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpupipe as gp

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks /proc which files are open")


def opened(folder: Path) -> list[str]:
    """The files of a folder that this process has open."""
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    names = [os.readlink(link) for link in links if os.path.islink(link)]
    return sorted(Path(name).name for name in names if name.startswith(str(folder)))


def records(folder: Path, count: int = 3) -> gp.Dataset:
    for number in range(count):
        with gp.io.TFRecordWriter(str(folder / f"{number}.tfr")) as writer:
            writer.write(b"a")
            writer.write(b"b")
    return gp.Dataset.list_files(str(folder / "*.tfr"), shuffle=False).interleave(gp.TFRecordDataset)


def test_files_stay_open_between_epochs_and_elements_by_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = records(tmp_path)
    before = list(dataset), dataset[5]
    opens: list[str] = []
    really = os.open

    def noted(name: Any, *args: Any, **settings: Any) -> int:
        opens.append(str(name))
        return really(name, *args, **settings)

    monkeypatch.setattr(os, "open", noted)

    assert (list(dataset), dataset[5]) == before
    assert [dataset[place] for place in range(6)]
    assert not [name for name in opens if name.startswith(str(tmp_path))]


CLOSED = """
import gc, sys
from pathlib import Path
from tests.behaviour.test_open_files import opened, records

folder = Path(sys.argv[1])
(folder / "a").mkdir()
(folder / "b").mkdir()
first, second = records(folder / "a"), records(folder / "b").batch(2)
print(len(list(first)), len(list(second)), opened(folder / "a"))
derived = first.map(len)
del first, second
gc.collect()
print(len(opened(folder / "a")))
del derived
gc.collect()
print(opened(folder))
"""


def test_files_are_closed_with_the_last_dataset(tmp_path: Path) -> None:
    """Of a process; what is derived from one that read may read again."""
    done = subprocess.run(
        [sys.executable, "-c", CLOSED, str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=100
    )

    assert done.stdout.splitlines() == ["6 3 ['0.tfr', '1.tfr', '2.tfr']", "3", "[]"], done.stderr


def test_release_memory_closes_files(tmp_path: Path) -> None:
    dataset = records(tmp_path)
    elements = list(dataset)
    assert opened(tmp_path)

    gp.release_memory()

    assert not opened(tmp_path)
    assert list(dataset) == elements


FEW = """
import os, resource, sys
import gpupipe as gp
from pathlib import Path
from typing import Any

folder = Path(sys.argv[1])
for number in range(400):
    (folder / f"{number:03d}.txt").write_text(f"{number}\\n")
soft = int(sys.argv[2])
chains = {
    "lines": lambda files: gp.TextLineDataset(files),
    "interleaved": lambda files: files.interleave(gp.TextLineDataset, cycle_length=8),
    "read_file": lambda files: files.map(gp.io.read_file, num_parallel_calls=4),
    "shuffled": lambda files: files.interleave(gp.TextLineDataset, cycle_length=8).shuffle(500, seed=1),
}
files = gp.Dataset.list_files(str(folder / "*.txt"), shuffle=False)
for name, chain in chains.items():
    list(chain(files.take(1)))  # what is imported when it is needed
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for name, chain in chains.items():
    print(name, sum(1 for _ in chain(files)))
open(folder / "checkpoint", "w").close()
print("open() works")
"""


@pytest.mark.parametrize("limit", [64, 256])
def test_more_files_than_the_process_may_have_open_are_read(limit: int, tmp_path: Path) -> None:
    """The limit is lowered after gpupipe was imported, which took a larger one for its own."""
    done = subprocess.run(
        [sys.executable, "-c", FEW, str(tmp_path), str(limit)], capture_output=True, text=True, timeout=100
    )

    assert done.stdout.splitlines() == [
        *(f"{name} 400" for name in ("lines", "interleaved", "read_file", "shuffled")),
        "open() works",
    ], done.stderr

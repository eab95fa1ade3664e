"""python -m benchmarks flowers: what the contestants deliver, and what is printed and kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import flowers as module
from benchmarks.__main__ import main
from benchmarks.contestants import CONTESTANTS, host_passes, missing
from benchmarks.equal import UnequalWork
from benchmarks.flowers import CLASSES, describe, flowers, write_flowers, write_halves
from benchmarks.job import Job

NAMES = [name for name, one in CONTESTANTS.items() if one.work == "flowers"]


@pytest.fixture(autouse=True)
def few_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PROBES", 4)


def test_the_folder_has_the_classes_of_the_tutorials(tmp_path: Path) -> None:
    write_flowers(tmp_path / "flowers", 40)

    assert sum(CLASSES.values()) == 3670
    found = {path.name: len(list(path.iterdir())) for path in (tmp_path / "flowers").iterdir()}
    assert found == {"daisy": 7, "dandelion": 10, "roses": 7, "sunflowers": 8, "tulips": 9}


@pytest.mark.parametrize("chain", ["plain", "augmented"])
@pytest.mark.parametrize("name", [name for name in NAMES if name.startswith("flowers-gpupipe")])
def test_gpupipe_delivers_each_image_once_an_epoch_mirrored_and_shifted(name: str, chain: str, tmp_path: Path) -> None:
    write_halves(tmp_path / "halves")
    epochs = host_passes(Job(name, (str(tmp_path / "halves"),), "flowers-audit", batch=8, chain=chain))

    found = describe(name, (epochs() for _ in range(3)))

    assert (found.shape, found.dtype, found.counts) == ((8, 180, 180, 3), "float32", {"12": 5})
    assert found.figures["level"] == pytest.approx(150, abs=2)  # JPEG and resizing round
    if chain == "plain":
        assert (found.figures["mirrored"], found.figures["shift"]) == (0, 0)
    else:
        assert 0.2 < found.figures["mirrored"] < 0.8  # of 60 fair coins
        assert (
            6 < found.figures["shift"] < 12.5
        )  # the mean of 120 draws of 0 to 18, 9.2, four standard errors either way


def test_a_shift_and_a_mirrored_image_are_seen() -> None:
    image = np.full((1, 180, 180, 3), 0.4, np.float32)
    image[:, :, :90] = 0.8
    image[:, :12] = 0
    image[:, :, -4:] = 0

    found = describe("one", [[(image, np.array([3]))]])

    assert found.figures["mirrored"] == 1
    assert found.figures["shift"] == (12 + 4) / 2


def test_the_command_measures_and_writes_everything_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--images", "12", "--pairs", "1", "--contestants", "flowers-gpupipe", "--out", str(tmp_path)]

    assert main(["flowers", *arguments]) == 0

    assert "goal: gpupipe ahead in images/s, later epochs, augmented: met" in capsys.readouterr().out
    (path,) = tmp_path.glob("flowers-*.json")
    found: dict[str, Any] = json.loads(path.read_text())
    assert list(found["summary"]) == [
        "first epoch",
        "later epochs",
        "first epoch, augmented",
        "later epochs, augmented",
    ]
    assert all(set(row) == {"flowers-gpupipe", "noise"} for row in found["runs"].values())
    assert found["runs"]["later epochs"]["noise"][0]["items"] == 2 * found["runs"]["first epoch"]["noise"][0]["items"]


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnequalWork, match=r"flowers needs contestants out of flowers-gpupipe, .* got roses"):
        flowers(tmp_path, tmp_path, contestants=["roses"])


@pytest.mark.parametrize("name", [name for name in NAMES if "gpupipe" not in name])
def test_the_other_libraries_deliver_the_same(name: str, tmp_path: Path) -> None:
    if why := missing(CONTESTANTS[name]):
        pytest.skip(why)
    write_halves(tmp_path / "halves")
    from benchmarks.flowers import _audit

    found = _audit(Job(name, (str(tmp_path / "halves"),), "flowers-audit", batch=8, batches=2, chain="augmented"))

    assert (found.shape, found.dtype, found.counts) == ((8, 180, 180, 3), "float32", {"8": 5})
    assert found.figures["level"] == pytest.approx(150, abs=4)  # Keras interpolates where the halves meet the zeros
    assert 0 < found.figures["mirrored"] < 1
    assert 5 < found.figures["shift"] < 13  # the mean of 80 draws of 0 to 18, five standard errors either way

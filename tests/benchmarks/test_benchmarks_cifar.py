"""python -m benchmarks cifar: what the contestants deliver, and what is printed and kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.cifar import cifar
from benchmarks.cifar_data import MEAN, STD, describe, probes
from benchmarks.contestants import CONTESTANTS, host_passes, missing
from benchmarks.equal import UnequalWork
from benchmarks.job import Job

NAMES = [name for name, one in CONTESTANTS.items() if one.work == "cifar" and "workers" not in name]


@pytest.mark.parametrize("name", NAMES)
def test_contestants_deliver_exact_windows_of_each_image(name: str) -> None:
    if why := missing(CONTESTANTS[name]):
        pytest.skip(why)
    epochs = host_passes(Job(name, (), "cifar-audit", batch=16, elements=64))

    found = describe(name, (epochs() for _ in range(2)), 64)

    assert (found.shape, found.dtype, found.counts) == ((16, 32, 32, 3), "float32", {"2": 64})
    assert found.figures["error"] < 1e-6  # float32 rounds values up to 2.1 by 1.2e-7
    assert found.figures["farthest"] == 16
    assert 0.3 < found.figures["mirrored"] < 0.7  # of 128 fair coins, over four standard errors
    assert 3 < found.figures["top"] < 5  # uniform 0 to 8: the standard error is 0.23
    assert 3 < found.figures["left"] < 5


def test_a_window_that_is_no_crop_of_its_image_is_seen() -> None:
    image = (probes(1) - np.array(MEAN)) / np.array(STD)
    image[0, 3, 3, 2] += 0.01

    found = describe("one", [[(image, np.array([0]))]], 1)

    assert found.figures["error"] == pytest.approx(0.01)
    assert (found.figures["top"], found.figures["left"], found.figures["mirrored"]) == (4, 4, 0)


def test_the_command_measures_and_writes_everything_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--images", "256", "--pairs", "1", "--contestants", "cifar-gpupipe", "--out", str(tmp_path)]

    assert main(["cifar", *arguments]) == 0

    assert "gpupipe, NumPy (with itself: the noise)" in capsys.readouterr().out
    (path,) = tmp_path.glob("cifar-*.json")
    found = json.loads(path.read_text())
    assert found["pairs"][0]["run"]["items"] == 2 * 256


def test_unknown_names_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UnequalWork, match=r"cifar needs contestants out of cifar-gpupipe, .* got roses"):
        cifar(tmp_path, contestants=["roses"])

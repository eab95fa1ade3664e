"""`gpupipe preview`: a picture of data, or of a user's dataset."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from PIL import Image

from gpupipe.comparison.photographs import write_shards
from tests.cli.commands import Cli, ended, signalled, started

FILE = """
import time
import numpy as np
import gpupipe as gp
x = np.zeros((5, 20, 30, 3), np.uint8)
def bright(image):
    print("said")
    return image + np.uint8(9)
def in_processes():
    return gp.Dataset.from_tensor_slices(x).map(bright, num_parallel_calls=1, workers="process")
def never():
    open("waiting", "w").close()
    time.sleep(60)
def slow():
    def wait(image):
        open("waiting", "w").close()
        time.sleep(60)
        return image
    return gp.Dataset.from_tensor_slices(x).map(wait)
"""


def test_data_gives_a_picture_and_words_or_json(tmp_path: Path, cli: Cli) -> None:
    write_shards(tmp_path, 3, 1)
    sheet = tmp_path / "sheet.png"

    status, out, err = cli("preview", tmp_path, "--rows", 2, "--draws", 3, "--size", 40, "--out", sheet)

    assert (status, err) == (0, "")  # not a terminal
    assert out.startswith(f"saved {sheet}: 2 rows of 4\neach row: the original, then random_resized_crop")
    with Image.open(sheet) as image:
        assert (image.format, image.size) == ("PNG", (4 * 44 + 4, 2 * 44 + 4))
    status, out, _ = cli("preview", tmp_path, "--draws", 2, "--out", sheet, "--json")
    found = json.loads(out)
    assert (status, found["out"], found["rows"], found["columns"]) == (0, str(sheet), 3, 3)
    assert [len(row["windows"]) for row in found["details"]] == [2, 2, 2]
    assert set(found["details"][0]["windows"][0]) == {"top", "left", "height", "width", "mirrored"}


def test_a_dataset_gives_a_picture(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FILE)

    status, out, err = ended(started("preview", "train.py:in_processes", "--rows", "3", "--draws", "2", cwd=tmp_path))

    assert status == 0
    assert "said" in err  # by worker processes
    assert out.startswith("saved preview.png: 3 rows of 2\n")
    with Image.open(tmp_path / "preview.png") as image:
        assert image.size == (2 * 196 + 4, 3 * 196 + 4)


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT between processes")
def test_ctrl_c_leaves_no_picture(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(FILE)
    process = started("preview", "train.py:slow", cwd=tmp_path)

    found = signalled(process, signal.SIGINT, (tmp_path / "waiting").exists)

    assert found == (130, "", "gpupipe: interrupted\n")
    assert not (tmp_path / "preview.png").exists()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals between processes")
@pytest.mark.parametrize("end", [":never", ":slow"], ids=["called", "imported"])
@pytest.mark.parametrize(("number", "status"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_a_signal_in_the_users_code_ends_the_command_without_a_word(
    tmp_path: Path, end: str, number: str, status: int
) -> None:
    (tmp_path / "train.py").write_text(FILE if end == ":never" else FILE + "never()\n")
    process = started("preview", f"train.py{end}", cwd=tmp_path)

    assert signalled(process, signal.Signals[number], (tmp_path / "waiting").exists) == (status, "", "")

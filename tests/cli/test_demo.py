"""`gpupipe demo`: a table and a picture from nothing, and plain words when something is wrong."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import gpupipe
from gpupipe.transform.machine import has_dali
from tests.cli.commands import Cli, ended, signalled, started
from tests.test_imports import in_a_new_process

NUMPY = ["--executor", "numpy"]


@pytest.mark.usefixtures("temporary")
def test_the_demo_draws_its_own_input_and_every_executor_shows_the_same_crops(tmp_path: Path, cli: Cli) -> None:
    sheet = tmp_path / "sheet.png"

    status, out, err = cli("demo", "--images", 16, "--size", 64, "--out", sheet)

    assert (status, err) == (0, "")  # not a terminal
    assert re.search(r"^NumPy +\d+\.\d\d +[\d,]+ +[\d,]+-[\d,]+ +\d+\.\d\d s +\d+ MiB", out, re.MULTILINE)
    assert "16 images a pass, cropped to 64x64" in out
    with Image.open(sheet) as image:
        assert (image.format, image.size) == ("PNG", (8 * 68 + 4, 2 * 68 + 4))
        assert np.asarray(image).std() > 20
    if has_dali():
        assert re.search(r"^DALI CPU +\d+\.\d\d", out, re.MULTILINE)
        assert "DALI CPU against NumPy: the same crops and flips; delivered: max 1," in out  # a rounding, in levels


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT between processes")
@pytest.mark.parametrize(
    ("images", "begun", "number", "status"),
    [("5000", "photos-*.tfrecord", signal.SIGINT, 130), ("16", "*-numpy.log", signal.SIGTERM, 143)],
    ids=["drawing", "running"],
)
def test_interrupting_leaves_nothing_behind(
    tmp_path: Path, temporary: Path, images: str, begun: str, number: signal.Signals, status: int
) -> None:
    process = started("demo", "--images", images, "--size", "600", *NUMPY, cwd=tmp_path, TMPDIR=str(temporary))

    found, _, said = signalled(process, number, lambda: list(temporary.glob(f"gpupipe-demo-*/{begun}")))

    assert found == status, said
    assert "Traceback" not in said


def test_the_command_starts_at_once_and_knows_its_version(tmp_path: Path) -> None:
    assert ended(started("--version", cwd=tmp_path)) == (0, f"gpupipe {gpupipe.__version__}\n", "")
    imported = in_a_new_process("import sys, gpupipe.cli; print(*sys.modules)").split()
    assert not {"numpy", "PIL", "nvidia", "gpupipe.dataset", "gpupipe.comparison.contest"} & set(imported)


def test_a_full_disk_for_temporary_files_is_named(
    tmp_path: Path, temporary: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("gpupipe.comparison.demo.write_shards", full)

    status, _, err = cli("demo", "--out", tmp_path / "sheet.png", *NUMPY)

    assert status == 1
    assert err.startswith(f"gpupipe demo: the disk is full: '{temporary}/gpupipe-demo-")

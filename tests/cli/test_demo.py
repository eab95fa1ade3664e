"""`gpupipe demo`: a table and a picture from nothing, and plain words when something is wrong."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import gpupipe
from gpupipe.cli import main
from gpupipe.transform.machine import has_dali
from tests.cli.commands import ROOT, ended, signalled, started

NUMPY = ["--executor", "numpy"]


def test_the_demo_draws_its_own_input_and_every_executor_shows_the_same_crops(
    tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sheet.png"

    status = main(["demo", "--images", "16", "--size", "64", "--out", str(out)])

    captured = capsys.readouterr()
    assert status == 0, captured.err
    assert re.search(r"^NumPy +\d+\.\d\d +[\d,]+ +[\d,]+-[\d,]+ +\d+\.\d\d s +\d+ MiB", captured.out, re.MULTILINE)
    assert "16 images a pass, cropped to 64x64" in captured.out
    assert captured.err == ""  # not a terminal
    with Image.open(out) as sheet:
        assert sheet.format == "PNG"
        assert sheet.size == (8 * 68 + 4, 2 * 68 + 4)
        assert np.asarray(sheet).std() > 20
    if has_dali():
        assert re.search(r"^DALI CPU +\d+\.\d\d", captured.out, re.MULTILINE)
        same = "DALI CPU against NumPy: the same crops and flips; delivered: max 1,"  # a rounding, in levels
        assert same in captured.out


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT between processes")
@pytest.mark.parametrize(
    ("during", "number", "status"), [("drawing", signal.SIGINT, 130), ("running", signal.SIGTERM, 143)]
)
def test_interrupting_leaves_nothing_behind(
    tmp_path: Path, temporary: Path, during: str, number: signal.Signals, status: int
) -> None:
    images = "5000" if during == "drawing" else "16"
    process = started("demo", "--images", images, "--size", "600", *NUMPY, cwd=tmp_path, TMPDIR=str(temporary))
    wanted = "photos-*.tfrecord" if during == "drawing" else "*-numpy.log"

    found, _, said = signalled(process, number, lambda: list(temporary.glob(f"gpupipe-demo-*/{wanted}")))

    assert found == status, said
    assert "Traceback" not in said
    assert list(temporary.iterdir()) == []


def test_the_command_starts_at_once_and_knows_its_version(tmp_path: Path) -> None:
    assert ended(started("--version", cwd=tmp_path)) == (0, f"gpupipe {gpupipe.__version__}\n", "")
    code = "import sys, gpupipe.cli; print(*sys.modules)"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert not {"numpy", "PIL", "nvidia", "gpupipe.dataset", "gpupipe.comparison.contest"} & set(answer.stdout.split())


def test_a_full_disk_for_temporary_files_is_named(
    tmp_path: Path, temporary: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("gpupipe.comparison.demo.write_shards", full)

    assert main(["demo", "--out", str(tmp_path / "sheet.png"), *NUMPY]) == 1

    assert capsys.readouterr().err.startswith(f"gpupipe demo: the disk is full: '{temporary}/gpupipe-demo-")

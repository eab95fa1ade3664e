"""A file that is written is there as a whole, or not at all."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from gpupipe.comparison.sheet import save_png
from gpupipe.errors import PlanError
from gpupipe.extract.storage.output import check_output
from gpupipe.extract.storage.replacing import replacing


def test_a_file_has_its_name_once_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as part:
        part.write_text("new")
        assert path.read_text() == "old"

    assert path.read_text() == "new"
    assert os.listdir(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_what_is_raised_leaves_the_older_file(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(error), replacing(path) as part:
        part.write_text("new")
        raise error

    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_link_stays_and_its_file_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder/file").write_text("old")
    (tmp_path / "link").symlink_to("folder/file")
    with replacing(tmp_path / "link") as part:
        part.write_text("new")

    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder/file").read_text() == "new"
    assert os.listdir(tmp_path / "folder") == ["file"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names")
def test_a_pipe_or_device_is_written_to_and_stays(tmp_path: Path) -> None:
    """Replacing /dev/null by a file would break the machine."""
    os.mkfifo(tmp_path / "pipe")
    number = os.open(tmp_path / "pipe", os.O_RDWR | os.O_NONBLOCK)
    try:
        with replacing(tmp_path / "pipe") as part, open(part, "wb") as file:
            file.write(b"new")

        assert os.read(number, 9) == b"new"
    finally:
        os.close(number)
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(not os.path.isdir("/dev/fd"), reason="no names for open files")
def test_a_pipe_without_a_name_is_written_to(tmp_path: Path) -> None:
    """What /dev/stdout leads to in `gpupipe preview ... --out /dev/stdout | less`; its real path does not exist."""
    read, write = os.pipe()
    path = Path(f"/dev/fd/{write}")
    try:
        check_output("--out", path, "PNG")
        save_png(path, np.zeros((2, 3, 3), np.uint8))
        with pytest.raises(PlanError, match=r"--manifest needs the name of a file, which is written beside it and ren"):
            check_output("--manifest", path, "manifest")
    finally:
        os.close(write)
    with os.fdopen(read, "rb") as file:
        assert Image.open(io.BytesIO(file.read())).size == (3, 2)


def test_two_processes_may_write_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with replacing(tmp_path / "a.txt") as mine:
        monkeypatch.setattr(os, "getpid", lambda: 1)
        with replacing(tmp_path / "a.txt") as other:
            other.write_text("theirs")
            mine.write_text("mine")

    assert (tmp_path / "a.txt").read_text() == "mine"
    assert os.listdir(tmp_path) == ["a.txt"]

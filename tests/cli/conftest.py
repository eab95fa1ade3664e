"""What tests of several commands share."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpupipe.cli import main
from tests.cli.commands import Cli


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command in this process."""

    def run(*words: object) -> tuple[int, str, str]:
        capsys.readouterr()
        status, said = main(list(map(str, words))), capsys.readouterr()
        return status, said.out, said.err

    return run


@pytest.fixture
def forbid(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a file one that may not be read; root may read any."""

    def refuse(forbidden: Path) -> None:
        opened = os.open

        def refused(path: Any, *arguments: Any, **named: Any) -> int:
            if str(path) == str(forbidden):
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return opened(path, *arguments, **named)

        monkeypatch.setattr(os, "open", refused)

    return refuse


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where temporary files go; it must be empty again afterwards."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    yield folder
    assert list(folder.iterdir()) == []

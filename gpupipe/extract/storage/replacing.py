"""replacing: files that are complete or not there."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["named_errors", "replacing", "sync_folder"]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, shared: bool = True) -> Iterator[Path]:
    """Give a name to write to; after the block the file is on the disk and has the name `path`, or it is gone.

    An older file is unchanged until then. Links are followed. What is there and is no file, such as ``/dev/stdout``, is
    written to directly.

    Args:
        path: of the file.
        shared: whether other processes may write to `path` at the same time. Else a name is given that every process
            gives, so that what a killed one has left is written over.

    Raises:
        OSError: the file cannot be put in place.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        yield Path(path)  # not its real path: a pipe has none
        return
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name.lstrip('.')}.{f'{os.getpid()}.' if shared else ''}part")
    try:
        yield part
        with open(part, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(part, target)
        sync_folder(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


@contextlib.contextmanager
def named_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Give errors of the system the name of the file or folder that was written to; that of a full disk has none."""
    try:
        yield
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk; Windows does that by itself."""
    if sys.platform != "win32":
        number = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)

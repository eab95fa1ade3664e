"""replacing: files that are complete or not there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from functools import lru_cache
from typing import BinaryIO

from gpupipe.extract.storage.temporary import TEMPORARY, commit, create, remove_stale, temporary

__all__ = ["named_errors", "replacing"]


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str], *, own: bool = False) -> Iterator[BinaryIO]:
    """Give a file to write to; after the block it is on the disk and has the name `path`, or it is gone.

    An older file is unchanged until then. Links are followed. What is there and is no file, such as ``/dev/stdout``, is
    written to directly, and cannot be read or seeked in.

    Args:
        path: of the file.
        own: whether the name is one of gpupipe's making: what lies there is replaced then, whatever it is, a link too.

    Raises:
        OSError: the file cannot be written, or put in place.
    """
    if not own and os.path.exists(path) and not os.path.isfile(path):
        with open(path, "wb") as file:  # not its real path: a pipe has none
            yield file
        return
    target = os.path.abspath(path) if own else os.path.realpath(path)
    folder, name = os.path.split(target)
    _swept(folder, os.getpid())
    part = temporary(os.path.join(folder, f".{name.lstrip('.')}"))
    try:
        with create(part) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        commit(part, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


@lru_cache(maxsize=64)
def _swept(folder: str, pid: int) -> None:
    """Remove what dead processes left in a folder, once in a process: it may hold the indexes of a million files."""
    with contextlib.suppress(OSError):  # a folder that cannot be listed may be written to
        remove_stale(folder, ".")


@contextlib.contextmanager
def named_errors(path: str | os.PathLike[str]) -> Iterator[None]:
    """Give errors of the system the name of what was written to; a full disk names none, others the temporary file."""
    try:
        yield
    except OSError as error:
        if error.errno is None or not (error.filename is None or TEMPORARY.search(os.fsdecode(error.filename))):
            raise
        raise OSError(error.errno, error.strerror, os.fspath(path)) from error

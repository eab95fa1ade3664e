"""manifest: a manifest that is there as a whole, or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import BinaryIO

from gpupipe.errors import GpupipeError, PlanError
from gpupipe.extract.storage.replacing import replacing
from gpupipe.flow.bad.records import RECORDS

__all__ = ["WholeManifest"]


class WholeManifest:
    """Writes a manifest under another name, and renames it at the end of the `with` block if nothing was raised.

    Args:
        path: of the manifest; a file that exists is replaced.

    Raises:
        PlanError: the folder does not exist, or `path` is there and is no regular file.
        GpupipeError: it cannot be written; or there are more records than a chain reads.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise PlanError(f"--manifest needs a folder that exists, got {path!r}; create {folder} first")
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise PlanError(f"--manifest needs the name of a file, got {path!r}, which is none")
        self._open = ExitStack()
        self._file: BinaryIO | None = None
        self._count = 0

    def __enter__(self) -> WholeManifest:
        with self._said(), ExitStack() as opened:
            self._file = opened.enter_context(open(opened.enter_context(replacing(self._path)), "wb"))
            self._open = opened.pop_all()
        return self

    def write(self, lines: Iterable[str]) -> None:
        """Append lines."""
        assert self._file is not None
        with self._said():
            for line in lines:
                self._count += 1
                self._file.write(line.encode())
        if self._count > RECORDS:
            raise GpupipeError(f"{self._count} bad records are more than the {RECORDS} that a manifest may have")

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            with self._said():
                self._open.close()
        else:
            with suppress(OSError):  # what was raised before says more
                self._open.__exit__(kind, value, at)

    @contextmanager
    def _said(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            kept = "an older one is unchanged" if os.path.exists(self._path) else "nothing is left of it"
            raise GpupipeError(f"the manifest {self._path!r} cannot be written, {kept}: {error.strerror}") from error

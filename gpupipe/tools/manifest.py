"""manifest: a manifest that is there as a whole, or not at all."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from types import TracebackType
from typing import BinaryIO

from gpupipe.errors import GpupipeError, PlanError
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
        folder, name = os.path.split(os.path.abspath(path))
        if not os.path.isdir(folder):
            raise PlanError(f"--manifest needs a folder that exists, got {path!r}; create {folder} first")
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            raise PlanError(f"--manifest needs the name of a file, got {path!r}, which is none")
        self._part = os.path.join(folder, f".{name}.{os.getpid()}.part")
        self._file: BinaryIO | None = None
        self._count = 0

    def __enter__(self) -> WholeManifest:
        try:
            self._file = open(self._part, "wb")  # closed in `__exit__`
        except OSError as error:
            raise self._failed(error) from error
        return self

    def write(self, lines: Iterable[str]) -> None:
        """Append lines."""
        assert self._file is not None
        try:
            for line in lines:
                self._count += 1
                self._file.write(line.encode())
        except OSError as error:
            raise self._failed(error) from error
        if self._count > RECORDS:
            raise GpupipeError(f"{self._count} bad records are more than the {RECORDS} that a manifest may have")

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, _: TracebackType | None) -> None:
        assert self._file is not None
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            if kind is None:
                os.replace(self._part, self._path)
        except OSError as error:
            if kind is None:
                raise self._failed(error) from error
        finally:
            with suppress(OSError):
                self._file.close()
            with suppress(FileNotFoundError):
                os.unlink(self._part)

    def _failed(self, error: OSError) -> GpupipeError:
        kept = "an older one is unchanged" if os.path.exists(self._path) else "nothing is left of it"
        return GpupipeError(f"the manifest {self._path!r} cannot be written, {kept}: {error.strerror}")

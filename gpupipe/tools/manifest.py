"""manifest: a manifest that is there as a whole, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType
from typing import BinaryIO

from gpupipe.errors import GpupipeError, io_reason
from gpupipe.extract.storage.output import check_output
from gpupipe.extract.storage.replacing import replacing
from gpupipe.flow.bad.records import RECORDS

__all__ = ["WholeManifest"]


class WholeManifest:
    """Writes a manifest under another name, and renames it at the end of the `with` block if nothing was raised.

    Args:
        path: of the manifest; an older one is replaced.
        inputs: files that are read, which it may not replace.

    Raises:
        PlanError: it has no place, see `check_output`.
        GpupipeError: it cannot be written; or there are more records than a chain reads.
    """

    def __init__(self, path: str, inputs: Iterable[str] = ()) -> None:
        self._path = path
        check_output("--manifest", path, "manifest", inputs)
        self._open = ExitStack()
        self._file: BinaryIO | None = None
        self._count = 0

    def __enter__(self) -> WholeManifest:
        with self._said(), ExitStack() as opened:
            self._file = opened.enter_context(replacing(self._path))
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
            raise GpupipeError(f"the manifest {self._path!r} cannot be written, {kept}: {io_reason(error)}") from error

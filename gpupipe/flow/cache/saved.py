"""saved: elements read from files, for `load` and for a full file cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from ...errors import DataError
from ...serial.elements_file import ElementsReader
from ..combine.inner import Inner
from ..combine.interleave import InterleaveFlow
from ..element import BatchStream, Element, Hole, Raised, Stream, hole_of
from ..rekey import stream_in
from ..run import Context
from ..state.snapshot import State, replayed
from ..step import Running

__all__ = ["SavedFilesFlow", "SavedFlow", "read_elements"]


def read_elements(
    path: str, compression: str, at: Context, spoil: Callable[[], None] | None, who: str
) -> Iterator[Element]:
    """Iterate over the elements of a file, with the keys of a context (see `stream_in`).

    A damaged element is a hole; so is damage after which elements cannot be counted, and then the elements end.

    Args:
        path: the file.
        compression: "" or "GZIP".
        at: the context in which the file is opened.
        spoil: called on damage, so that the next iterator computes the file again; None if it cannot.
        who: the method, for messages.
    """
    file = Stream(at.key, path, "offset", at.alike)
    on_damage = spoil or (lambda: None)
    try:
        reader = ElementsReader(path, compression, head_needed=spoil is not None)
    except DataError as error:
        yield hole_of(error.at(path, 0, who, "offset")), file, 0
        return

    def lost(error: DataError) -> Hole | Raised:
        if spoil is not None:
            error.reason += "; the next iterator computes the file again"
            error.args = (error.reason,)
        return hole_of(error.at(path, None, who, "offset"))

    try:
        for value, where, position in reader.elements(partial(stream_in, at), on_damage):
            if where is None:
                assert isinstance(value, DataError)
                yield lost(value), file, position
                continue
            element = Hole(value) if isinstance(value, DataError) else value
            if isinstance(where, list):
                where = BatchStream([row for row, _ in where], [index for _, index in where])
            yield element, where, position
    except DataError as error:
        on_damage()
        yield lost(error), file, error.offset or 0
    finally:
        reader.close()


@dataclass(frozen=True, slots=True)
class SavedFlow:
    """The elements of the files that `save` wrote; those of several files are interleaved, one of each.

    Attributes:
        paths: the files.
        compression: "" or "GZIP".
        cycle: how many files are open at a time.
    """

    paths: tuple[str, ...]
    compression: str = ""
    cycle: int = 16

    def open(self, at: Context, state: State = None) -> Running:
        if len(self.paths) == 1:
            return self._one(self.paths[0], at, state)

        def inner(_at: Context, outer: Element, state: State = None) -> Running:
            # In the context of the whole dataset, so that no key depends on the file that an element was written to.
            return self._one(outer[0][0], at, state)

        return InterleaveFlow(SavedFilesFlow(self.paths, str), Inner(inner), self.cycle, 1).open(at, state)

    def _one(self, path: str, at: Context, state: State) -> Running:
        return replayed(lambda: read_elements(path, self.compression, at, None, "load"), at, state)


@dataclass(frozen=True, slots=True)
class SavedFilesFlow:
    """One element for each file that `save` wrote.

    Attributes:
        files: the files, or the plans that read them.
        make: makes the column of an element, e.g. the dataset for a `reader_func`.
    """

    files: tuple[Any, ...]
    make: Callable[[Any], Any]

    def open(self, at: Context, state: State = None) -> Running:
        stream = at.stream("load", "load")
        return replayed(lambda: (((self.make(file),), stream, i) for i, file in enumerate(self.files)), at, state)

"""samples: the samples of one tar archive, in file order or by index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...classes import dataclass
from ...errors import DataError, PlanTypeError
from ...extract.records.index import RecordIndex
from ...extract.shards.names import BY_NAME, compression_of
from ...extract.shards.samples import SAMPLES, SampleReader
from ...extract.storage.files import OpenFile
from ...extract.storage.patterns import is_url
from ..access import AsItWas, RandomAccess, blocks_of, from_list
from ..bad.found import as_before, bad_element
from ..element import Element, Stream
from ..run import Context
from ..state.snapshot import Counted, State
from ..step import Running
from .readers import ReaderIterator, element_of, how_to_read, path_of
from .records import index_of

__all__ = ["SamplesFlow"]


@dataclass(frozen=True, slots=True)
class SamplesFlow:
    """The samples of the tar archive that an outer element names.

    Attributes:
        source: has the one outer element.
        column: which of its columns is the path.
        columns: what each column of a sample is, see `SampleReader`.
        compression: "", "GZIP", "ZLIB" or `BY_NAME`.
        references: yield the places of payloads instead of payloads, if the archive is local and uncompressed.
        ahead: whether threads read ahead.
        index: where indexes of archives are kept, see `record_index`.
    """

    source: Any
    column: int
    columns: tuple[tuple[bytes, ...], ...]
    compression: str = BY_NAME
    references: bool = False
    ahead: bool = False
    index: str = "memory"

    def open(self, at: Context, state: State = None) -> Running:
        path = path_of(self, at)
        if path is None:
            return Counted(iter(()))
        how = {**how_to_read(self, path, at, state), "compression": compression_of(path, self.compression)}
        local = not is_url(path)
        lazy = self.references and local and not how["compression"]
        reader = SampleReader(path, columns=self.columns, extents=lazy, keep=self.index if local else None, **how)
        return as_before(at, None, ReaderIterator(reader, at.stream("samples", path, "offset"), at, state))

    def access(self, at: Context) -> RandomAccess:
        found = self.indexed(at, build=True)
        return from_list([]) if found is None else AsItWas(found, at)

    def indexed(self, at: Context, build: bool) -> Samples | None:
        """The samples by their index; None without an index or a file.

        Raises:
            PlanTypeError: an index is to be built of a remote or compressed archive.
            DataError: the archive cannot be read to its end.
        """
        path = path_of(self, at)
        if path is not None and compression_of(path, self.compression):
            if build:
                raise PlanTypeError(f"access by index needs uncompressed archives, got {path}; decompress it")
            return None
        found = index_of(self, at, build, "samples", SAMPLES)
        return None if found is None else Samples(self, *found)


class Samples(RandomAccess):
    """The samples of one archive that has an index."""

    def __init__(self, flow: SamplesFlow, path: str, index: RecordIndex, stream: Stream) -> None:
        self.size = len(index) - (not index.lasting)  # an error that hides the rest of the file is not a sample
        self._flow = flow
        self._path = path
        self._index = index
        self._stream = stream
        self._file = None if index.version is None else OpenFile.of(path, index.version)

    def one(self, index: int) -> Element:
        start, stop = self._index.span(index)
        stream = self._stream
        found = self._index.faults.get(index) or self._reader(range(index, index + 1), stop).only()
        if isinstance(found, DataError):
            return bad_element(found.at(stream.name, start, "read", "offset"), stream, start)
        return found, stream, start

    def strided(self, start: int, step: int) -> Iterator[Element]:
        """Every `step`-th sample, from index `start`."""
        if step == 1 and self._index.lasting:
            return self._to_the_end(start)
        return self.pick(blocks_of(start, self.size, step))

    def _to_the_end(self, index: int) -> Iterator[Element]:
        """The samples from an index on, read in blocks; one by one behind an error that would hide others."""
        for item in self._reader(range(index, self.size), None):
            if isinstance(item[1], DataError) and item[1].lost and index < self.size:
                break
            yield element_of(item, self._stream)
            index += 1
        yield from self.pick(blocks_of(index, self.size))

    def _reader(self, expected: range, stop: int | None) -> SampleReader:
        flow = self._flow
        return SampleReader(
            self._path,
            columns=flow.columns,
            extents=flow.references,
            file=self._file,
            index=self._index,
            expected=expected,
            start=self._index.span(expected.start)[0] if expected.start else 0,  # no sample lies before the first
            stop=stop,
        )

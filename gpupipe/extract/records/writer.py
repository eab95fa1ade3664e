"""writer: TFRecord files, byte for byte as TensorFlow writes them."""

from __future__ import annotations

import contextlib
import gzip
import os
import struct
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Protocol

from gpupipe.errors import PlanError, PlanTypeError, shown_name
from gpupipe.extract.records.compression import checked_compression
from gpupipe.extract.storage.patterns import file_name, is_url
from gpupipe.extract.storage.replacing import named_errors, replacing
from gpupipe.log import logger

__all__ = ["TFRecordWriter", "framed"]

_header = struct.Struct("<QI").pack


_word = struct.Struct("<I").pack


def framed(payload: bytes) -> bytes:
    """A record as it lies in a file: the length, its checksum, the payload, and its checksum."""
    from .crc import masked_crc32c

    length = struct.pack("<Q", len(payload))
    return _header(len(payload), masked_crc32c(length)) + payload + _word(masked_crc32c(payload))


class _File(Protocol):
    def write(self, data: bytes, /) -> int: ...
    def flush(self) -> None: ...
    def close(self) -> None: ...


class _Records(Protocol):
    """The part of a Dataset that the writer needs."""

    @property
    def element_spec(self) -> Any: ...
    def __iter__(self) -> Iterator[Any]: ...


class TFRecordWriter:
    """Writes records, or a dataset of them, to a new file. Also a context manager that closes the file.

    The file is written beside its name, which it gets with `close`, as a whole and on the disk. Until then what has the
    name stays, and it stays where a `with` block or a dataset ends with an exception, or where nobody calls `close`.

    Args:
        path: the file; one that exists is replaced, and so is a link.
        compression_type: None or "", "GZIP", "ZLIB".

    Raises:
        PlanError: an unknown compression; what has the name is no file; a write after `close`.
        OSError: the file cannot be written.

    Example:
        >>> with TFRecordWriter("one.tfrecord") as out:
        ...     out.write(b"hello")
        >>> TFRecordWriter("two.tfrecord").write(gp.Dataset.from_tensor_slices([b"a", b"b"]))
    """

    _file: _File | None = None

    def __init__(self, path: str | os.PathLike[str], compression_type: str | None = None) -> None:
        compression = checked_compression(compression_type)
        self._name = name = file_name("TFRecordWriter", os.fsdecode(path))
        if is_url(name):
            raise PlanError(f"TFRecordWriter needs a local path, got {shown_name(name)!r}; copy the file there")
        if os.path.exists(name):
            if not os.path.isfile(name):
                raise PlanError(
                    f"TFRecordWriter needs the name of a file, which is written beside it and renamed, got "
                    f"{shown_name(name)!r}, which is none; name another file"
                )
            os.close(os.open(name, os.O_WRONLY))  # one that is protected from writing stays
        with named_errors(name), ExitStack() as opened:
            file: _File = opened.enter_context(replacing(name, own=True))
            if compression == "GZIP":
                # No time and no name in the header: equal records make equal files.
                file = opened.enter_context(gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0))
            elif compression == "ZLIB":
                file = opened.enter_context(contextlib.closing(_Zlib(file)))
            self._file, self._opened = file, opened.pop_all()

    def write(self, record: bytes | bytearray | memoryview | _Records) -> None:
        """Append one record, or all of a dataset and close the file, as `tf.data.experimental.TFRecordWriter` does.

        Args:
            record: the bytes of a record, or a Dataset whose elements are.

        Raises:
            PlanTypeError: `record` is neither.
        """
        if self._file is None:
            raise PlanError("a TFRecordWriter needs an open file to write to, this one is closed; make a new one")
        spec = getattr(record, "element_spec", None)
        if spec is not None and not isinstance(record, bytes | bytearray | memoryview):
            dtype = getattr(spec, "dtype", 0)
            if not (dtype is None or dtype is bytes) or spec.shape:
                raise PlanTypeError(
                    f"TFRecordWriter.write needs a dataset of bytes, one record each, got one of {spec}; "
                    "map gp.io.encode_example over it first"
                )
            with self:
                for one in record:
                    self.write(one)
            return
        if not isinstance(record, bytes | bytearray | memoryview):
            raise PlanTypeError(f"TFRecordWriter.write needs bytes, got {type(record).__name__}; encode it first")
        self._file.write(framed(bytes(record)))

    def flush(self) -> None:
        """Pass what was written to the operating system: a full disk is an error now. `close` gives the name."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Finish the file and give it its name. Closing twice is allowed."""
        self.__exit__(None, None, None)

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file = None
            with named_errors(self._name):
                self._opened.__exit__(kind, value, at)

    def __del__(self) -> None:
        if self._file is not None:
            shown = shown_name(self._name)
            logger.warning(
                "TFRecordWriter: %r was not closed: its records are gone; use `with`, or call close()", shown
            )
            with contextlib.suppress(GeneratorExit), self:
                raise GeneratorExit


class _Zlib:
    """A file that compresses with zlib."""

    def __init__(self, file: _File) -> None:
        self._file = file
        self._stream = zlib.compressobj()

    def write(self, data: bytes, /) -> int:
        self._file.write(self._stream.compress(data))
        return len(data)

    def flush(self) -> None:
        self._file.write(self._stream.flush(zlib.Z_SYNC_FLUSH))
        self._file.flush()

    def close(self) -> None:
        self._file.write(self._stream.flush())

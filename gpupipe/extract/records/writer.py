"""writer: TFRecord files, byte for byte as TensorFlow writes them."""

from __future__ import annotations

import gzip
import io
import os
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Protocol

from gpupipe.errors import PlanError, PlanTypeError, shown_name
from gpupipe.extract.records.compression import checked_compression
from gpupipe.extract.storage.patterns import file_name, is_url

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

    Args:
        path: the file; one that exists is replaced.
        compression_type: None or "", "GZIP", "ZLIB".

    Raises:
        PlanError: an unknown compression; a write after `close`.
        OSError: the file cannot be written.

    Example:
        >>> with TFRecordWriter("one.tfrecord") as out:
        ...     out.write(b"hello")
        >>> TFRecordWriter("two.tfrecord").write(gp.Dataset.from_tensor_slices([b"a", b"b"]))
    """

    def __init__(self, path: str | os.PathLike[str], compression_type: str | None = None) -> None:
        compression = checked_compression(compression_type)
        if is_url(name := file_name("TFRecordWriter", os.fsdecode(path))):
            raise PlanError(f"TFRecordWriter needs a local path, got {shown_name(name)!r}; copy the file there")
        self._file: _File | None
        self._raw = io.BufferedWriter(io.FileIO(path, "wb"), 1 << 20)
        if compression == "GZIP":
            # No time and no name in the header: equal records make equal files.
            self._file = gzip.GzipFile(filename="", mode="wb", fileobj=self._raw, mtime=0)
        elif compression == "ZLIB":
            self._file = _Zlib(self._raw)
        else:
            self._file = self._raw

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
        """Pass everything written so far to the operating system."""
        if self._file is not None:
            self._file.flush()
            self._raw.flush()

    def close(self) -> None:
        """Finish the file. Closing twice is allowed."""
        file, self._file = self._file, None
        if file is not None:
            file.close()
            self._raw.close()

    def __enter__(self) -> TFRecordWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


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

    def close(self) -> None:
        self._file.write(self._stream.flush())

"""The readers of files without columns, for tests that all must pass; those of tables are in tests/extract/tables."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops

Make = Callable[..., gp.Dataset]


@dataclass(frozen=True)
class ReaderCase:
    """One reader. Its elements are numbers, each in one element of one file.

    Attributes:
        name: for the names of tests.
        write: writes a file, or the folder of a class, with the numbers from `first` on: (path, first, how many).
        make: a dataset of the numbers in files: (paths, readers) -> dataset.
        many: writes a file of at least so many elements, quickly; element i is the number `i % 1000`.
        data: the path whose bytes tests change, of what `write` wrote; the file itself unless it is a folder.
        notices: the kinds of damage that are noticed: the format has something by which to.
        indexed: whether elements can be had by index.
        cost: how many elements are few enough for a usual test run.
    """

    name: str
    write: Callable[[Path, int, int], None]
    make: Make
    many: Callable[[Path, int], None] | None
    notices: frozenset[str]
    data: Callable[[Path], Path] = lambda path: path
    indexed: bool = True
    cost: int = 1_000_000

    def files(self, folder: Path) -> list[str]:
        """Three files of 5, 4 and 6 numbers."""
        folder.mkdir(parents=True)
        names = [folder / f"{number}.{self.name}" for number in range(3)]
        for number, (path, size) in enumerate(zip(names, (5, 4, 6), strict=True)):
            self.write(path, 10 * number, size)
        return list(map(str, names))


def _number(record: Any) -> Any:
    return np.int64(int(bytes(record)))


def _numbers(ds: gp.Dataset) -> gp.Dataset:
    return ds.map(_number, spec=gp.TensorSpec((), "int64"))


def _write_records(path: Path, first: int, size: int) -> None:
    with gp.io.TFRecordWriter(str(path)) as out:
        for i in range(first, first + size):
            out.write(b"%04d" % i)


def _repeat(write: Callable[[Path, int, int], None]) -> Callable[[Path, int], None]:
    """Write the numbers 0 to 999 again and again."""

    def many(path: Path, count: int) -> None:
        write(path, 0, 1000)
        path.write_bytes(path.read_bytes() * (count // 1000))

    return many


def _write_lines(path: Path, first: int, size: int) -> None:
    path.write_bytes(b"".join(b"%04d\n" % i for i in range(first, first + size)))


def _write_fixed(path: Path, first: int, size: int) -> None:
    path.write_bytes(b"".join(b"%04d" % i for i in range(first, first + size)))


def _write_npy(path: Path, first: int, size: int) -> None:
    with path.open("wb") as out:
        np.save(out, np.arange(first, first + size))


def _many_npy(path: Path, count: int) -> None:
    with path.open("wb") as out:
        np.save(out, np.arange(count) % 1000)


def _write_lmdb(path: Path, first: int, size: int, modulo: int = 1_000_000) -> None:
    lmdb = pytest.importorskip("lmdb")
    written = ((b"%08d" % i, b"%d" % (i % modulo)) for i in range(first, first + size))
    with (
        lmdb.open(str(path), map_size=1 << 30, subdir=False, sync=False) as database,
        database.begin(write=True) as out,
    ):
        out.cursor().putmulti(written, append=True)


def _write_tar(path: Path, first: int, size: int) -> None:
    with path.open("wb") as out:
        for i in range(first, first + size):
            info = tarfile.TarInfo(f"{i:04}.cls")
            info.size = 4
            out.write(info.tobuf(tarfile.USTAR_FORMAT) + (b"%04d" % i).ljust(512, b"\0"))


def _write_images(path: Path, first: int, size: int) -> None:
    """The folder of a class; the gray value of an image is its number."""
    path.mkdir()
    for i in range(first, first + size):
        out = io.BytesIO()
        Image.fromarray(np.full((3, 3, 3), i % 256, np.uint8)).save(out, "PNG")
        (path / f"{i:07}.png").write_bytes(out.getvalue())


def _of_images(paths: list[str], readers: int | None) -> gp.Dataset:
    def gray(data: Any, label: Any) -> Any:
        return ops.cast(ops.decode_image(data, channels=3), "int64")

    images = gp.image_folder(Path(paths[0]).parent, class_names=[Path(path).name for path in paths])
    decoded = images.map(gray, num_parallel_calls=readers).with_options(gp.Options(device="cpu", backend="numpy"))
    return decoded.map(lambda image: image[0, 0, 0], traced=False)


READERS = [
    ReaderCase(
        "tfrecord",
        _write_records,
        lambda paths, readers: _numbers(gp.TFRecordDataset(paths, num_parallel_reads=readers)),
        _repeat(_write_records),
        frozenset({"cut", "changed", "zeros", "another kind"}),
        cost=50_000,
    ),
    ReaderCase(
        "fixed",
        _write_fixed,
        lambda paths, readers: _numbers(gp.FixedLengthRecordDataset(paths, 4, num_parallel_reads=readers)),
        None,
        frozenset({"cut", "changed", "zeros", "another kind"}),
        indexed=False,
    ),
    ReaderCase(
        "lines",
        _write_lines,
        lambda paths, readers: _numbers(gp.TextLineDataset(paths, num_parallel_reads=readers)),
        None,
        frozenset({"changed", "zeros", "another kind"}),
        indexed=False,
    ),
    ReaderCase(
        "npy",
        _write_npy,
        lambda paths, readers: gp.NumpyDataset(paths, num_parallel_reads=readers, spec=gp.TensorSpec((), "int64")),
        _many_npy,
        frozenset({"cut", "changed", "empty", "zeros", "another kind"}),
    ),
    ReaderCase(
        "lmdb",
        _write_lmdb,
        lambda paths, readers: _numbers(
            gp.LMDBDataset(paths, num_parallel_reads=readers).map(lambda key, value: value)
        ),
        lambda path, count: _write_lmdb(path, 0, count, 1000),
        frozenset({"cut", "empty", "zeros", "another kind"}),
        cost=30_000,
    ),
    ReaderCase(
        "tar",
        _write_tar,
        lambda paths, readers: _numbers(gp.WebDataset(paths, "cls", num_parallel_reads=readers)),
        _repeat(_write_tar),
        frozenset({"cut", "changed", "another kind"}),
        cost=10_000,
    ),
    ReaderCase(
        "images",
        _write_images,
        _of_images,
        lambda path, count: _write_images(path, 0, count),
        frozenset({"cut", "changed", "empty", "zeros", "another kind"}),
        data=lambda path: sorted(path.iterdir())[1],
        cost=150,
    ),
]

every_reader = pytest.mark.parametrize("case", READERS, ids=lambda case: case.name)

"""What every reader promises: identities, states, an index, and that damage of one file is an error of that file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.ops._shared.samples import encoded
from tests.chains import damage
from tests.extract.archives import archive
from tests.reliability.resume import taken

Make = Callable[..., gp.Dataset]


@dataclass(frozen=True)
class ReaderCase:
    """One reader. Its elements are numbers, each in one element of one file.

    Attributes:
        name: for the names of tests.
        write: writes a file, or the folder of a class, with the numbers from `first` on: (path, first, how many).
        make: a dataset of the numbers in files: (paths, readers) -> dataset.
        data: the path whose bytes tests change, of what `write` wrote; the file itself unless it is a folder.
        notices: the kinds of damage that are noticed: the format has something by which to.
        indexed: whether elements can be had by index.
    """

    name: str
    write: Callable[[Path, int, int], None]
    make: Make
    notices: frozenset[str]
    data: Callable[[Path], Path] = lambda path: path
    indexed: bool = True

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
    damage.write(path, [b"%04d" % i for i in range(first, first + size)])


def _write_lines(path: Path, first: int, size: int) -> None:
    path.write_bytes(b"".join(b"%04d\n" % i for i in range(first, first + size)))


def _write_fixed(path: Path, first: int, size: int) -> None:
    path.write_bytes(b"".join(b"%04d" % i for i in range(first, first + size)))


def _write_npy(path: Path, first: int, size: int) -> None:
    with path.open("wb") as out:
        np.save(out, np.arange(first, first + size))


def _write_lmdb(path: Path, first: int, size: int) -> None:
    lmdb = pytest.importorskip("lmdb")
    with lmdb.open(str(path), map_size=1 << 20, subdir=False) as database, database.begin(write=True) as out:
        for i in range(first, first + size):
            out.put(b"%08d" % i, b"%d" % i)


def _write_tar(path: Path, first: int, size: int) -> None:
    archive(path, [(f"{i:04}.cls", b"%04d" % i) for i in range(first, first + size)])
    os.truncate(path, 1024 * size)  # without the zeros behind


def _write_images(path: Path, first: int, size: int) -> None:
    """The folder of a class; the gray value of an image is its number."""
    path.mkdir()
    for i in range(first, first + size):
        (path / f"{i:07}.png").write_bytes(encoded(np.full((3, 3, 3), i, np.uint8), "PNG"))


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
        frozenset({"cut", "changed", "zeros", "another kind"}),
    ),
    ReaderCase(
        "fixed",
        _write_fixed,
        lambda paths, readers: _numbers(gp.FixedLengthRecordDataset(paths, 4, num_parallel_reads=readers)),
        frozenset({"cut", "changed", "zeros", "another kind"}),
        indexed=False,
    ),
    ReaderCase(
        "lines",
        _write_lines,
        lambda paths, readers: _numbers(gp.TextLineDataset(paths, num_parallel_reads=readers)),
        frozenset({"changed", "zeros", "another kind"}),
        indexed=False,
    ),
    ReaderCase(
        "npy",
        _write_npy,
        lambda paths, readers: gp.NumpyDataset(paths, num_parallel_reads=readers, spec=gp.TensorSpec((), "int64")),
        frozenset({"cut", "changed", "empty", "zeros", "another kind"}),
    ),
    ReaderCase(
        "lmdb",
        _write_lmdb,
        lambda paths, readers: _numbers(gp.LMDBDataset(paths, num_parallel_reads=readers).map(lambda key, x: x)),
        frozenset({"cut", "empty", "zeros", "another kind"}),
    ),
    ReaderCase(
        "tar",
        _write_tar,
        lambda paths, readers: _numbers(gp.WebDataset(paths, "cls", num_parallel_reads=readers)),
        frozenset({"cut", "changed", "another kind"}),
    ),
    ReaderCase(
        "images",
        _write_images,
        _of_images,
        frozenset({"cut", "changed", "empty", "zeros", "another kind"}),
        data=lambda path: sorted(path.iterdir())[1],
    ),
]

every_reader = pytest.mark.parametrize("case", READERS, ids=lambda case: case.name)


ALL = [*range(5), *range(10, 14), *range(20, 26)]


def values(ds: Any, **options: Any) -> list[int]:
    return [int(value) for value in ds.with_options(gp.Options(**options)).iterator(epoch=0)]


def drawn(ds: Any) -> dict[int, int]:
    """What each number draws."""
    pairs = ds.map(lambda number, rng: (number, rng.integers(1 << 60)), rng=True).iterator(epoch=0)
    found = {int(number): int(draw) for number, draw in pairs}
    assert len(set(found.values())) == len(found) == len(ALL)
    return found


@every_reader
def test_an_element_draws_the_same_for_any_number_of_readers_and_in_another_folder(
    case: ReaderCase, tmp_path: Path
) -> None:
    paths = case.files(tmp_path / "here")
    shutil.copytree(tmp_path / "here", tmp_path / "or" / "there")
    moved = [str(tmp_path / "or" / "there" / Path(path).name) for path in paths]

    expected = drawn(case.make(paths, None))

    assert sorted(expected) == ALL
    assert drawn(case.make(paths, 2)) == drawn(case.make(paths, 3)) == drawn(case.make(moved, 2)) == expected


@every_reader
def test_elements_have_an_index_or_the_error_says_that_they_cannot(case: ReaderCase, tmp_path: Path) -> None:
    ds = case.make(case.files(tmp_path / "files"), None)
    if not case.indexed:
        with pytest.raises(gp.PlanError, match=r"(FixedLengthRecordDataset|TextLineDataset)\(.*cannot be indexed"):
            ds.shuffle(gp.ALL)
        with pytest.raises(TypeError, match="cannot be indexed"):
            ds[0]
        return

    assert [int(ds[i]) for i in range(len(ds))] == values(ds) == ALL
    assert values(ds.skip(12)) == ALL[12:]
    assert sorted(values(ds.shuffle(gp.ALL, seed=1))) == ALL != values(ds.shuffle(gp.ALL, seed=1))


DAMAGE: dict[str, Any] = {
    "cut": lambda data: data[: len(data) * 4 // 7],
    "changed": lambda data: data[:13] + bytes([data[13] ^ 0xFF]) + data[14:],
    "empty": lambda data: b"",
    "zeros": lambda data: bytes(len(data)),
    "another kind": lambda data: b"what stands here is prose" * 9,
}


@every_reader
@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_of_a_file_is_an_error_of_that_file_and_the_others_are_read(
    case: ReaderCase, kind: str, tmp_path: Path
) -> None:
    paths = case.files(tmp_path / "files")
    target = case.data(Path(paths[1]))
    target.write_bytes(DAMAGE[kind](target.read_bytes()))
    ds = case.make(paths, None)

    with iter(ds.with_options(gp.Options(on_error="skip", lost_files="skip"))) as items:
        found = [int(value) for value in items]
        errors = items.errors

    assert set(found) >= {n for n in ALL if not 10 <= n < 14}
    assert {error.file for error in errors} == ({str(target)} if kind in case.notices else set())
    if kind in case.notices:
        assert set(found) <= set(ALL)
        assert sum(text.count(str(target)) for what, text in taken(iter(ds)) if what == "error") >= 1

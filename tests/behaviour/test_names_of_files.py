"""What identifies a listed file: its augmentation depends neither on the order of the list nor on the directory."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, TFRecordDataset, ops
from gpupipe.extract.storage.patterns import may_be_paths, stable_names
from gpupipe.ops._shared.samples import noise
from tests.behaviour.model import run
from tests.chains.damage import write


@pytest.fixture
def classes(tmp_path: Path) -> list[Path]:
    """Two class folders that both number their images from 0; all six images have the same pixels."""
    paths = [tmp_path / "photos" / name / f"{i}.png" for name in "ab" for i in range(3)]
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noise(40, 40)).save(path)
    return paths


def _crop(path: Any) -> Any:
    return ops.random_crop(ops.decode_png(gp.io.read_file(path), channels=3), (9, 9))


def _crops(paths: Sequence[Path]) -> dict[str, bytes]:
    """The crop of each image, by class folder and name."""
    images = Dataset.from_tensor_slices([str(path) for path in paths]).map(_crop).iterator(epoch=0)
    return {f"{p.parent.name}/{p.name}": np.asarray(x).tobytes() for p, x in zip(paths, images, strict=True)}


def test_neither_the_order_nor_a_part_of_the_list_nor_another_directory_changes_a_crop(
    classes: list[Path], tmp_path: Path
) -> None:
    expected = _crops(classes)
    part = _crops([classes[4], classes[1], classes[0]])  # in which names repeat
    moved = shutil.copytree(tmp_path / "photos", tmp_path / "some" / "where" / "else")

    assert len(set(expected.values())) == 6
    assert _crops([classes[i] for i in (3, 0, 5, 1, 4, 2)]) == expected
    assert part == {name: expected[name] for name in part}
    assert _crops(sorted(moved.glob("*/*.png"))) == expected
    for paths in (classes, classes[::-1]):
        listed = Dataset.list_files([str(path) for path in paths], shuffle=False).map(_crop)
        assert {np.asarray(x).tobytes() for x in listed.iterator(epoch=0)} == set(expected.values())


def test_records_of_files_of_one_name_in_two_folders_draw_apart(tmp_path: Path) -> None:
    files = [str(tmp_path / name / "part-0") for name in "ab"]
    for name, path in zip("ab", files, strict=True):
        (tmp_path / name).mkdir()
        write(Path(path), [name.encode()])

    def numbers(paths: list[str]) -> dict[bytes, float]:
        drawn = TFRecordDataset(paths).map(lambda record, rng: (record, rng.random()), rng=True)
        return dict(run(drawn.iterator(epoch=0)))

    assert len(set(numbers(files).values())) == 2
    assert numbers(files[::-1]) == numbers(files)


NAMES: list[tuple[list[str], list[str]]] = [
    (["/x/a.png", "/x/b.png"], ["a.png", "b.png"]),
    (["/x/a/0.png", "/x/b/0.png"], ["a/0.png", "b/0.png"]),
    (["/x/a/0.png", "/x/b/0.png", "/x/b/1.png"], ["a/0.png", "b/0.png", "b/1.png"]),
    (["/x/a/0.png", "/y/a/0.png"], ["x/a/0.png", "y/a/0.png"]),
    (["/x/a.png", "/x/a.png"], ["a.png", "a.png"]),
    (["C:\\x\\a\\0.png", "C:\\x\\b\\0.png"], ["a/0.png", "b/0.png"]),
    (["0.png", "a/0.png"], ["0.png", "a/0.png"]),
    ([], []),
]


@pytest.mark.parametrize(("paths", "names"), NAMES, ids=str)
def test_names_are_as_long_as_it_takes(paths: list[str], names: list[str]) -> None:
    assert stable_names(paths) == names
    assert stable_names(paths[::-1]) == names[::-1]


def test_what_may_be_a_path() -> None:
    good = [b"some/folder/a b.jpg", "ü".encode()] * 2000
    assert may_be_paths([])
    assert may_be_paths(good)
    for data in (b"\xff\xd8\xff\xe0\x00\x10", b"\x89PNG\r\n", b"a\tb", b"x" * 4097):
        for place in (0, 1023, 1024, 3999):
            assert not may_be_paths([*good[:place], data, *good[place:]])

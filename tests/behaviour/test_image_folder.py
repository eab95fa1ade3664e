"""A folder of classes as a dataset: which files, which labels, which split."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.ops._shared.samples import encoded


def _png(value: int) -> bytes:
    return encoded(np.full((4, 5, 3), value, np.uint8), "PNG")


def make(folder: Path, classes: str = "bac", images: int = 10) -> Path:
    """A folder of small PNGs: image i of a class is of gray value 20 i; every other one lies deeper."""
    for name in classes:
        (folder / name / "deep").mkdir(parents=True)
        for i in range(images):
            place = folder / name / "deep" if i % 2 else folder / name
            (place / f"{i}.PNG").write_bytes(_png(20 * i))
        (folder / name / "notes.txt").write_text("no image")
        (folder / name / ".hidden.png").write_bytes(b"")
    (folder / ".cache").mkdir()
    (folder / ".cache" / "0.png").write_bytes(b"")
    (folder / "0.png").write_bytes(b"")
    return folder


def values(ds: gp.Dataset) -> list[tuple[int, int]]:
    """(gray value, label) of each element."""
    decoded = ds.map(lambda image, label: (ops.decode_image(image, channels=3), label))
    return [(int(image[0, 0, 0]), int(label)) for image, label in decoded]


def test_images_come_by_class_and_name_with_the_number_of_their_class(tmp_path: Path) -> None:
    ds = gp.image_folder(make(tmp_path))

    assert ds.class_names == ("a", "b", "c")
    assert len(ds) == len(ds.file_paths) == 30
    assert ds.labels.tolist() == [0] * 10 + [1] * 10 + [2] * 10
    order = [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]  # "a/0.PNG" < "a/2.PNG" < ... < "a/deep/1.PNG"
    assert values(ds) == [(20 * i, label) for label in range(3) for i in order]
    image, label = ds[12]
    assert (image, int(label)) == (_png(80), 1)


@pytest.mark.parametrize("seed", [0, -3])
def test_a_split_takes_the_same_part_of_each_class_and_no_file_twice(tmp_path: Path, seed: int) -> None:
    make(tmp_path)

    split: dict[str, Any] = {"validation_split": 0.3, "seed": seed}
    training, validation = (gp.image_folder(tmp_path, subset=one, **split) for one in ("training", "validation"))

    assert [np.bincount(part.labels).tolist() for part in (training, validation)] == [[7, 7, 7], [3, 3, 3]]
    assert sorted(training.file_paths + validation.file_paths) == sorted(gp.image_folder(tmp_path).file_paths)


def test_a_split_depends_on_names_and_seed_alone(tmp_path: Path) -> None:
    def held_out(folder: Path, seed: int = 0) -> set[str]:
        part = gp.image_folder(folder, validation_split=0.3, subset="validation", seed=seed)
        return {os.path.relpath(path, folder) for path in part.file_paths}

    first, second = make(tmp_path / "one"), make(tmp_path / "two")

    assert held_out(first) == held_out(second)
    assert held_out(first) != held_out(first, seed=1)


def test_random_values_stay_when_the_folder_moves_and_grows(tmp_path: Path) -> None:
    def crops(folder: Path) -> dict[str, Any]:
        ds = gp.image_folder(folder)
        offsets = ds.map(lambda image, label: ops.random_brightness(np.zeros((1, 1, 3), np.float32), 1.0))
        return dict(zip((os.path.relpath(p, folder) for p in ds.file_paths), map(np.ravel, offsets), strict=True))

    before = crops(make(tmp_path / "one"))
    grown = make(tmp_path / "two", "abcd", 12)
    after = crops(grown)

    assert all(np.array_equal(value, after[name]) for name, value in before.items())
    assert len({float(value[0]) for value in before.values()}) == 30


def test_links_are_entered_on_request_and_a_circle_ends(tmp_path: Path) -> None:
    other = make(tmp_path / "other", "x")
    data = tmp_path / "data"
    (data / "a").mkdir(parents=True)
    (data / "a" / "0.png").write_bytes(_png(0))
    (data / "a" / "more").symlink_to(other / "x")
    (data / "a" / "circle").symlink_to(data / "a")
    (data / "b").symlink_to(other / "x")

    assert np.bincount(gp.image_folder(data).labels).tolist() == [1, 10]
    assert np.bincount(gp.image_folder(data, follow_links=True).labels).tolist() == [11, 10]


@pytest.mark.parametrize("name", ["run[1]", "run*", "run?", "{run1}"])
def test_the_name_of_a_folder_is_no_pattern(name: str, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    make(tmp_path / name, "ab", 2)
    make(tmp_path / "run1", "xyz", 2)
    memory = fsspec.filesystem("memory")
    for path in tmp_path.rglob("*.*"):
        if path.is_file():
            memory.pipe(f"/names/{path.relative_to(tmp_path).as_posix()}", path.read_bytes())

    for folder in (str(tmp_path / name), f"file://{tmp_path / name}", f"memory://names/{name}"):
        ds = gp.image_folder(folder)
        assert ds.class_names == ("a", "b")
        assert values(ds) == [(0, 0), (20, 0), (0, 1), (20, 1)]


@pytest.mark.parametrize("follow_links", [False, True])
def test_a_url_of_this_machine_is_the_folder_with_its_links(follow_links: bool, tmp_path: Path) -> None:
    make(tmp_path / "photos", "ac", 2)
    make(tmp_path / "elsewhere", "b", 4)
    (tmp_path / "photos" / "b").symlink_to(tmp_path / "elsewhere" / "b")
    (tmp_path / "photos" / "c" / "more").symlink_to(tmp_path / "elsewhere" / "b")

    local, url = (
        gp.image_folder(f"{scheme}{tmp_path}/photos", follow_links=follow_links) for scheme in ("", "file://")
    )

    assert local.class_names == url.class_names == ("a", "b", "c")
    assert values(local) == values(url)
    assert [label for _, label in values(url)] == [0] * 2 + [1] * 4 + [2] * (6 if follow_links else 2)
    assert local.left_out == url.left_out


def test_a_folder_behind_a_url_is_read_like_one_on_disk(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    make(tmp_path)
    for path in tmp_path.rglob("*"):
        if path.is_file():
            memory.pipe(f"/image_folder/{path.relative_to(tmp_path).as_posix()}", path.read_bytes())

    ds = gp.image_folder("memory://image_folder")

    assert (ds.class_names, values(ds)) == (("a", "b", "c"), values(gp.image_folder(tmp_path)))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"path": "none"}, "image_folder needs a folder, got 'none': nothing of that name"),
        ({"path": "data/0.png"}, "image_folder needs a folder, got 'data/0.png': a file"),
        ({"path": "data/a/deep"}, "image_folder needs a folder with a folder for each class"),
        ({"class_names": ["a", "z"]}, "got 'z', which is no folder in it"),
        ({"class_names": ["a", "a"]}, "got one of them twice"),
        ({"class_names": "ab"}, "class_names as a list of strings, got 'ab'"),
        ({"extensions": [".webp"]}, "image_folder needs images in every class, and 'a' in 'data' has none"),
        ({"validation_split": 0.5}, "validation_split and subset together"),
        ({"validation_split": 1.5, "subset": "training"}, "0 < validation_split < 1, got 1.5"),
        ({"validation_split": 0.5, "subset": "test"}, "subset='training' or 'validation', got 'test'"),
        ({"validation_split": 0.01, "subset": "validation"}, "validation_split leaves none"),
        ({"seed": 1.5, "validation_split": 0.5, "subset": "training"}, "seed"),
    ],
)
def test_a_wrong_argument_is_refused(
    arguments: dict[str, Any], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "data")
    monkeypatch.chdir(tmp_path)

    with pytest.raises((gp.PlanError, TypeError), match=words):
        gp.image_folder(**{"path": "data", **arguments})


@pytest.mark.parametrize(
    ("mode", "interpolation"),
    [("int", "bilinear"), ("categorical", "nearest"), ("binary", "bilinear"), (None, "nearest")],
)
def test_the_arguments_of_keras_give_what_keras_gives(tmp_path: Path, mode: Any, interpolation: str) -> None:
    pytest.importorskip("tensorflow")
    keras = pytest.importorskip("keras")
    make(tmp_path, "ab", images=5)
    for hidden in [*tmp_path.rglob(".hidden.png"), *tmp_path.rglob("**/0.png")]:
        hidden.unlink()  # Keras reads them
    (tmp_path / ".cache").rmdir()
    arguments: dict[str, Any] = {
        "label_mode": mode, "image_size": (7, 3), "batch_size": 4, "shuffle": False, "interpolation": interpolation,
    }  # fmt: skip

    theirs = list(keras.utils.image_dataset_from_directory(str(tmp_path), **arguments).as_numpy_iterator())
    ours = list(gp.compat.image_dataset_from_directory(tmp_path, **arguments))

    def rows(batches: list[Any], part: int) -> Any:
        return np.concatenate([batch if mode is None else batch[part] for batch in batches])

    order = np.argsort(rows(theirs, 0)[:, 0, 0, 0], kind="stable")
    mine = np.argsort(rows(ours, 0)[:, 0, 0, 0], kind="stable")
    assert [len(batch if mode is None else batch[0]) for batch in ours] == [4, 4, 2]
    assert np.allclose(rows(ours, 0)[mine], rows(theirs, 0)[order], atol=1e-3)  # of 255: both round in float32
    if mode is not None:
        assert rows(ours, 1).dtype == rows(theirs, 1).dtype
        assert sorted(rows(ours, 1).tolist()) == sorted(rows(theirs, 1).tolist())


def test_both_subsets_of_keras_are_two_datasets(tmp_path: Path) -> None:
    training, validation = gp.compat.image_dataset_from_directory(
        make(tmp_path), image_size=(4, 4), batch_size=None, validation_split=0.2, subset="both"
    )

    assert (len(training), len(validation)) == (24, 6)
    assert len({float(image[0, 0, 0]) for image, _ in training}) > 1


@pytest.mark.skipif(sys.platform != "linux", reason="names are bytes on Linux alone")
def test_names_need_not_be_utf_8(tmp_path: Path) -> None:
    for i, name in enumerate((b"a/\xff.png", b"a/0.png", b"\xfe/1.png")):
        path = os.path.join(os.fsencode(tmp_path), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as out:
            out.write(_png(20 * i))

    ds = gp.image_folder(tmp_path)

    assert ds.class_names == ("a", os.fsdecode(b"\xfe"))
    assert values(ds) == [(20, 0), (0, 0), (40, 1)]
    assert list(map(os.fsencode, ds.file_paths)) == [
        bytes(path) for path in gp.Dataset.list_files(f"{tmp_path}/*/*", False)
    ]
    assert len(gp.image_folder(tmp_path, validation_split=0.5, subset="training", class_names=["a"])) == 1

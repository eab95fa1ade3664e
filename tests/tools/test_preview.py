"""The contact sheet: the crops that the training chain draws, marked where they come from, and a user's own images."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.comparison.chain import training_chain
from gpupipe.comparison.photographs import encode, take, write_shards
from gpupipe.comparison.sheet import to_uint8
from gpupipe.comparison.source import Source, find_source
from gpupipe.errors import DataError, PlanError
from gpupipe.tools.augmented import Draw, Example, augmentations
from gpupipe.tools.first_images import first_images
from gpupipe.tools.preview import COLOURS, save_preview


def quiet(done: int, total: int) -> None:
    """Show no progress."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Source]:
    """Photographs in shards and in folders of classes."""
    shards, classes = (tmp_path_factory.mktemp(name) for name in ("shards", "classes"))
    write_shards(shards, 5, 2)
    for number in range(4):
        (classes / f"class{number % 2}").mkdir(exist_ok=True)
        (classes / f"class{number % 2}/{number}.jpg").write_bytes(encode(take(number)[1], 90))
    return {"shards": find_source(str(shards), 5), "classes": find_source(str(classes), 4)}


def crop(example: Example, draw: Draw) -> Any:
    """The marked window of an original, resized by Pillow."""
    w = draw.window
    part = example.original[w.top : w.top + w.height, w.left : w.left + w.width]
    assert part.shape[:2] == (w.height, w.width)  # inside the original
    part = part[:, ::-1] if w.mirrored else part
    return np.asarray(Image.fromarray(np.ascontiguousarray(part)).resize((64, 64), Image.Resampling.BILINEAR))


def test_the_marked_window_is_what_the_draw_shows(sources: dict[str, Source]) -> None:
    drawn = [(one, draw) for one in augmentations(sources["shards"], 5, 2, 64, quiet) for draw in one.draws]
    for example, draw in drawn:
        difference = np.abs(crop(example, draw).astype(int) - draw.image.astype(int))[1:-1, 1:-1]
        assert difference.max() <= 1  # DALI and Pillow round differently; a window off by one gives 10 and more
    assert {draw.window.mirrored for _, draw in drawn} == {True, False}


@pytest.mark.parametrize("kind", ["shards", "classes"])
def test_a_preview_draws_what_the_training_chain_draws(kind: str, sources: dict[str, Source]) -> None:
    chain = training_chain(sources[kind], 5, 1, 64).unbatch()
    every = [
        [to_uint8(image[None], ops.IMAGENET_MEAN, ops.IMAGENET_STD)[0].astype(int) for image, _ in chain.epoch(epoch)]
        for epoch in range(2)
    ]

    for example in augmentations(sources[kind], 4, 2, 64, quiet):
        for draw in example.draws:
            # Normalised and back; DALI, which may run the chain, repeats pixels at the edge.
            assert min(np.abs(image - draw.image)[1:-1, 1:-1].max() for image in every[draw.epoch]) <= 1


def test_the_sheet_has_a_frame_for_each_window(sources: dict[str, Source], tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"

    preview = save_preview(sources["shards"].name, out, rows=3, draws=2, size=64, progress=quiet)

    assert (preview.rows, preview.columns) == (3, 3)
    with Image.open(out) as image:
        sheet = np.asarray(image)
    assert sheet.shape == (3 * 68 + 4, 3 * 68 + 4, 3)
    for row, details in enumerate(preview.details):
        original = sheet[4 + row * 68 :, 4:][:64, :64]
        height, width = details["original"]
        scale = 64 / max(height, width)
        first = details["windows"][-1]  # drawn last, so nothing covers it
        top = (64 - round(height * scale)) // 2 + round(first["top"] * scale)
        left = (64 - round(width * scale)) // 2 + round(first["left"] * scale)
        assert tuple(original[top, left]) == COLOURS[1]
        assert tuple(sheet[4 + row * 68, 4 + 68]) == COLOURS[0]  # the frame of the first draw


def test_the_images_of_a_dataset_are_shown_leaf_by_leaf(tmp_path: Path) -> None:
    x = np.arange(6 * 10 * 12 * 3, dtype=np.uint8).reshape(6, 10, 12, 3)
    leaves = {"bytes": x, "unit": x[..., :1] / np.float32(255), "chw": np.moveaxis(x, 3, 1), "label": np.arange(6)}
    ds = gp.Dataset.from_tensor_slices(leaves).batch(4)

    found = {leaf.name: leaf for leaf in first_images(ds, 5, 2, quiet)}

    assert list(found) == ["['bytes']", "['unit']", "['chw']"]
    for epoch in range(2):
        np.testing.assert_array_equal(found["['bytes']"].epochs[epoch], x[:5])
        np.testing.assert_array_equal(found["['chw']"].epochs[epoch], x[:5])
        np.testing.assert_array_equal(found["['unit']"].epochs[epoch], np.repeat(x[:5, ..., :1], 3, axis=-1))
    assert found["['bytes']"].shown == "as they are"
    assert "0..1" in found["['unit']"].shown


def test_numbers_of_another_range_are_stretched_alike_in_all_images() -> None:
    x = np.zeros((2, 8, 8, 3), np.float32)
    x[0, 0, 0], x[1, 0, 0], x[1, 0, 1] = -2.0, 2.0, np.nan

    (leaf,) = first_images(gp.Dataset.from_tensor_slices(x), 2, 1, quiet)

    first, second = leaf.epochs[0]
    assert [int(pixel[0]) for pixel in (first[0, 0], second[0, 0], first[5, 5], second[0, 1])] == [0, 255, 128, 0]
    assert "-2.00..2.00 stretched" in leaf.shown
    for value in (-1.0, np.nan):
        (leaf,) = first_images(gp.Dataset.from_tensor_slices(np.full((1, 8, 8, 3), value, np.float32)), 1, 1, quiet)
        assert leaf.epochs[0][0].max() == 0


def test_the_draws_of_a_dataset_are_those_of_its_epochs() -> None:
    x = np.random.default_rng(1).integers(0, 255, (2, 40, 40, 3), np.uint8)
    ds = gp.Dataset.from_tensor_slices(x).map(lambda image: ops.random_resized_crop(image, (16, 16)))

    (leaf,) = first_images(ds, 2, 3, quiet)

    for epoch in range(3):
        np.testing.assert_array_equal(leaf.epochs[epoch], list(ds.iterator(epoch=epoch)))
    assert not np.array_equal(leaf.epochs[0], leaf.epochs[1])


def test_a_dataset_without_images_is_refused() -> None:
    with pytest.raises(PlanError, match=r"needs a dataset with images, .* got elements int64"):
        first_images(gp.Dataset.range(3), 2, 1, quiet)
    with pytest.raises(DataError, match="got an empty one"):
        first_images(gp.Dataset.range(0), 2, 1, quiet)


def test_an_epoch_with_fewer_elements_leaves_its_cells_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leaf = first_images(gp.Dataset.from_tensor_slices(np.zeros((2, 8, 8, 3), np.uint8)), 2, 2, quiet)[0]
    shorter = replace(leaf, epochs=[leaf.epochs[0], leaf.epochs[1][:1]])
    monkeypatch.setattr("gpupipe.tools.preview.find_dataset", lambda what: None)
    monkeypatch.setattr("gpupipe.tools.preview.first_images", lambda *given: [shorter])

    save_preview("x.py:ds", tmp_path / "sheet.png", 2, 2, 32, quiet)

    with Image.open(tmp_path / "sheet.png") as image:
        sheet = np.asarray(image)
    assert sheet[50, 20, 0] == 0  # second row, first epoch: black
    assert sheet[50, 56, 0] == 235  # second row, second epoch: nothing

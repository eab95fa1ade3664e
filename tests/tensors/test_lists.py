"""Ragged leaves as lists of tensors, and dicts of them as lists of dicts, as detectors take them."""

from __future__ import annotations

import copy
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from tests.ops.originals import torchvision

torch = pytest.importorskip("torch")

COUNTS = (2, 0, 3, 1, 1, 2)
"""Boxes of each image."""

COLUMNS = gp.TensorSpec((None, None, 3), "uint8", "HWC"), gp.TensorSpec((None, 4), "float32")


def photographs() -> Any:
    """Images of various sizes, and their boxes."""
    for number, count in enumerate(COUNTS):
        image = np.random.default_rng(number).integers(0, 256, (8 + number, 12 - number, 3), dtype=np.uint8)
        yield image, np.tile(np.array([1, 2, 5, 6], np.float32), (count, 1)) + np.float32(number % 2)


def detection(image: Any, boxes: Any) -> Any:
    return ops.transpose(ops.normalize(image, std=255.0)), {"boxes": boxes, "labels": ops.cast(boxes[:, 0], "int64")}


def source() -> gp.Dataset:
    return gp.Dataset.from_generator(photographs, output_signature=COLUMNS)


def test_images_of_various_sizes_are_a_list_of_tensors_and_their_targets_a_list_of_dicts() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # PyTorch warns of arrays that are read-only
        batches = list(source().map(detection).ragged_batch(4).as_torch(lists=True))

    images = [image for batch, _ in batches for image in batch]
    targets = [target for _, batch in batches for target in batch]
    assert [len(batch) for batch, _ in batches] == [len(batch) for _, batch in batches] == [4, 2]
    for image, target, (pixels, boxes) in zip(images, targets, photographs(), strict=True):
        np.testing.assert_allclose(image, pixels.transpose(2, 0, 1) / 255, 1e-6)  # rounding of float32
        assert torch.equal(target["boxes"], torch.from_numpy(boxes))
        assert torch.equal(target["labels"], torch.from_numpy(boxes[:, 0]).long())
        assert list(target) == ["boxes", "labels"]


def test_torchvisions_detectors_take_what_a_batch_gives() -> None:
    torchvision()
    transform = pytest.importorskip("torchvision.models.detection.transform").GeneralizedRCNNTransform
    images, targets = next(iter(source().map(detection).ragged_batch(4).as_torch(lists=True)))

    made, scaled = transform(32, 64, [0.5] * 3, [0.2] * 3).eval()(images, targets)

    assert made.tensors.shape[:2] == (4, 3)
    for target, count in zip(scaled, COUNTS, strict=False):
        assert target["boxes"].shape == (count, 4)


def test_an_element_that_is_a_dict_keeps_its_keys_as_detectors_of_hugging_face_take_it() -> None:
    def example(image: Any, boxes: Any) -> Any:
        image, target = detection(ops.cast(ops.resize(image, (6, 6)), "uint8"), boxes)
        return {"pixel_values": image, "labels": {**target, "size": np.array([6, 7])}, "names": boxes}

    (first, _) = source().map(example).ragged_batch(4).as_torch(lists=True)

    assert list(first) == ["pixel_values", "labels", "names"]
    assert first["pixel_values"].shape == (4, 3, 6, 6)
    assert [target["size"].tolist() for target in first["labels"]] == [[6, 7]] * 4
    assert [len(one) for one in first["names"]] == [len(target["boxes"]) for target in first["labels"]] == [2, 0, 3, 1]


class Pair(NamedTuple):
    inputs: Any
    targets: Any


def ragged(rows: list[Any], dtype: str = "float32") -> gp.Ragged:
    """Nested lists as one leaf; those of two levels are ragged in two."""
    if not rows or not isinstance(rows[0], list):
        return gp.Ragged(np.array(rows, dtype), [0, len(rows)])
    splits = np.cumsum([0, *map(len, rows)])
    values = [one for row in rows for one in row]
    inner = ragged(values, dtype) if values and isinstance(values[0], list) else np.array(values, dtype)
    return gp.Ragged(inner, splits)


def listed(value: Any) -> Any:
    return [listed(one) for one in value] if isinstance(value, list) else value.tolist()


@pytest.mark.parametrize(
    "rows",
    [
        [[1.0, 2.0], [], [3.0]],
        [[[1.0, 2.0], [3.0]], [], [[], [4.0, 5.0, 6.0]]],
        [[[[1.0], [2.0, 3.0]], [[4.0]]], [[[5.0, 6.0], [7.0, 8.0]]]],
    ],
    ids=["numbers", "rows of rows", "three levels"],
)
def test_rows_of_unequal_length_are_nested_lists(rows: Any) -> None:
    (found,) = gp.Dataset.from_tensors(ragged(rows)).as_torch(lists=True)

    assert listed(found) == rows


def test_dicts_in_dicts_tuples_and_classes_of_tuples_are_divided_once_and_bytes_stay_bytes() -> None:
    names = ragged([[b"a", b"bc"], [b"d"]], "object")
    target = {"boxes": ragged([[1.0, 2.0], [3.0]]), "more": {"names": names, "ids": np.arange(2)}}
    element = Pair({"image": np.zeros((2, 3)), "target": target}, (names, {"plain": np.arange(3)}))

    (found,) = gp.Dataset.from_tensors(element).as_torch(lists=True)

    assert type(found) is Pair
    assert (found.inputs["image"].shape, found.targets[1]["plain"].tolist()) == ((2, 3), [0, 1, 2])
    assert [one.tolist() for one in found.targets[0]] == [[b"a", b"bc"], [b"d"]]
    first, second = found.inputs["target"]
    assert (first["boxes"].tolist(), second["boxes"].tolist()) == ([1.0, 2.0], [3.0])
    assert (first["more"]["names"].tolist(), second["more"]["ids"].item()) == ([b"a", b"bc"], 1)


@pytest.mark.parametrize("other", [np.arange(3), np.int64(3)], ids=["rows", "a number"])
def test_a_dict_whose_parts_have_other_numbers_of_rows_is_refused(other: Any) -> None:
    element = ({"boxes": ragged([[1.0, 2.0], [3.0]]), "other": other},)

    with pytest.raises(
        gp.PlanError, match=r"\(lists=True\) needs as many rows .*'boxes'\] of 2 rows, \['other'\] of (3|no)"
    ):
        list(gp.Dataset.from_tensors(element).as_torch(lists=True))


def test_a_dtype_of_images_of_various_sizes_leaves_boxes_alone() -> None:
    ((images, targets), _) = source().map(detection).ragged_batch(4).as_torch(lists=True, dtype="bfloat16")

    assert {image.dtype for image in images} == {torch.bfloat16}
    assert {target["boxes"].dtype for target in targets} == {torch.float32}


def test_an_element_that_is_given_again_after_an_error_is_divided_once() -> None:
    def noting(element: Any) -> Any:
        made = convert(convert(element))  # as where it was looked at ahead
        seen.append(len(made[0]["targets"]))
        return made

    seen: list[int] = []
    ds = source().map(lambda image, boxes: ({"image": ops.resize(image, (6, 6)), "targets": {"boxes": boxes}},))
    loader = copy.deepcopy(ds.ragged_batch(4).as_torch(lists=True))
    convert, loader._convert = loader._convert, noting

    (first,), _ = loader

    assert (seen, first["image"].shape) == ([4, 2], (4, 6, 6, 3))
    assert [len(one["boxes"]) for one in first["targets"]] == [2, 0, 3, 1]

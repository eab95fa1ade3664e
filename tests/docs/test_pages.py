"""The guides: their code runs, their ports give what the originals give, their tables are complete and true."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from benchmarks import chart
from gpupipe import errors
from gpupipe.comparison.photographs import write_shards
from gpupipe.spec import flatten
from tests.docs.recipes import BLOCK, COUNT, write_photographs

GUIDE = Path(gp.__file__).parent / "guide"
NEEDS = {"import tensorflow": "tensorflow", "import torch": "torch", "as_torch": "torch", "nvidia.dali": "nvidia"}


def blocks(name: str) -> list[str]:
    """The Python of a page."""
    return BLOCK.findall((GUIDE / f"{name}.md").read_text(encoding="utf-8"))


def lacks(code: str) -> str:
    """What a block needs that is not installed, or ""."""
    return "".join(name for words, name in NEEDS.items() if words in code and importlib.util.find_spec(name) is None)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The files that the pages name, in the current folder."""
    monkeypatch.chdir(tmp_path)
    for shard in write_shards(tmp_path, COUNT, 3):
        shard.rename(shard.name.replace("photos-", "train-"))
    write_photographs(tmp_path)


@pytest.mark.parametrize("name", ["performance", "errors", "stability"])
def test_the_code_of_a_page_runs(name: str, data: None) -> None:
    """As one program, from top to bottom; filters of warnings that it sets are the test's own."""
    assert run(blocks(name))


def run(code: list[str]) -> dict[str, Any]:
    """The names that blocks of code make, one after the other."""
    names: dict[str, Any] = {}
    for block in code:
        exec(block, names)
    return names


RECIPES: dict[str, list[tuple[tuple[int | None, ...], str]]] = {
    "train": [((8, 224, 224, 3), "float32"), ((8,), "int64")],
    "validation": [((8, 224, 224, 3), "float32"), ((8,), "int64")],
    "train_v2": [((8, 176, 176, 3), "float32"), ((8, 3), "float32")],
    "a1": [((8, 224, 224, 3), "float32"), ((8, 3), "float32")],
    "a2": [((8, 224, 224, 3), "float32"), ((8, 3), "float32")],
    "a3": [((8, 160, 160, 3), "float32"), ((8, 3), "float32")],
    "deit_train": [((8, 224, 224, 3), "float32"), ((8, 3), "float32")],
    "deit_3_train": [((8, 224, 224, 3), "float32"), ((8, 3), "float32")],
    "pairs": [((4, 224, 224, 3), "float32")] * 2,
    "views": [*[((4, 224, 224, 3), "float32")] * 2, *[((4, 96, 96, 3), "float32")] * 4],
    "masked": [((8, 224, 224, 3), "float32"), ((8, 196), "float32")],
    "cifar10": [((64, 32, 32, 3), "float32"), ((64,), "int64")],
    "segments": [((4, 480, 480, 3), "float32"), ((4, 480, 480), "int32")],
    "coco": [((150, 200, 3), "uint8"), ((1, 4), "float64"), ((1,), "int64")],
    "detection": [((4, 300, 300, 3), "float32"), ((4, None, 4), "float32"), ((4, None), "int64")],
    "queries": [((2, None, None, 3), "float32"), ((2, None, 4), "float32"), ((2, None), "int64")],
    "poses": [((4, 256, 192, 3), "float32"), ((4, 1, 17, 3), "float32")],
    "clips": [((2, 8, 112, 112, 3), "float32"), ((2,), "int64")],
}
"""The chains of the page of recipes: the shape and dtype of each leaf of a batch."""


def test_every_recipe_gives_batches_of_its_shapes_that_depend_on_the_epoch(data: None) -> None:
    names = run(blocks("recipes"))
    chains = {name: value for name, value in names.items() if isinstance(value, gp.Dataset) and name != "photos"}

    assert list(chains) == list(RECIPES)
    for name, chain in chains.items():
        first, again, later = (flatten(next(chain.iterator(epoch=epoch)))[0] for epoch in (0, 0, 1))
        assert len(first) == len(RECIPES[name])
        for leaf, (shape, dtype) in zip(first, RECIPES[name], strict=True):
            found = leaf.shape if isinstance(leaf, np.ndarray) else (len(leaf), None, *leaf.values.shape[1:])
            assert str(leaf.dtype) == dtype, name
            assert len(found) == len(shape) and all(n in (None, m) for n, m in zip(shape, found, strict=True)), name
        assert all(_equal(a, b) for a, b in zip(first, again, strict=True)), name
        assert _equal(first[0], later[0]) == (name in ("validation", "coco")), name
        assert np.isfinite(first[0]).all() and first[0].std() > 0.1, name
    a, b = next(chains["pairs"].iterator(epoch=0))
    assert not np.array_equal(a, b)
    scene, classes = next(names["segments"].iterator(epoch=0))
    assert set(np.unique(classes)) <= {0, 1, 2, 255} and scene.shape[:3] == classes.shape


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, gp.Ragged):
        return np.array_equal(one.values, other.values) and np.array_equal(one.row_splits, other.row_splits)
    return np.array_equal(one, other)


def _run(index: int) -> dict[str, Any]:
    code = blocks("moving")[index]
    if missing := lacks(code):
        pytest.skip(f"{missing} is not installed")
    return run([code])


def _same(theirs: list[tuple[Any, Any]], ours: list[tuple[Any, Any]], levels: float) -> None:
    """Compare batches: labels and shapes exactly, pixels within `levels`, on average half of it, as rounding."""
    assert len(theirs) == len(ours) == 2
    for (a, labels), (b, own) in zip(theirs, ours, strict=True):
        np.testing.assert_array_equal(np.ravel(labels), own)
        assert a.shape == b.shape
        apart = np.abs(np.asarray(a, np.float64) - np.asarray(b, np.float64))
        assert apart.max() <= levels
        assert apart.mean() <= levels / 2


@pytest.mark.tf
def test_the_port_from_tensorflow_gives_what_the_original_gives(data: None) -> None:
    theirs, ours = _run(0)["of_tensorflow"], _run(1)["like_tensorflow"]
    # both decode with libjpeg-turbo and resize without antialias in float32; 127.5 levels are 1
    numpy = gp.Options(device="cpu", backend="numpy")
    _same(list(theirs.as_numpy_iterator()), list(ours.with_options(numpy)), 0.01 / 127.5)


def test_the_port_from_pytorch_gives_what_the_original_gives(data: None) -> None:
    theirs, ours = _run(2)["of_torch"], _run(3)["like_torch"]
    # resized images are rounded to levels, of which 0.224 * 255 are 1; DALI rounds in other places than Pillow
    _same([(x.numpy(), y) for x, y in theirs], [(x.numpy(), y.numpy()) for x, y in ours], 2 / (0.224 * 255))


def test_what_the_page_says_of_buckets_gives_batches_of_one_shape_each(data: None) -> None:
    names = run(blocks("moving")[6:])

    shapes = [images.shape for images, _ in names["of_one_shape"]]
    assert {shape[1:3] for shape in shapes} <= set(names["buckets"])
    assert sum(shape[0] for shape in shapes) == COUNT
    assert len({shape[1:3] for shape in shapes}) > 1
    for images, sizes, _ in names["of_few_patches"]:
        assert images.shape[1] % 16 == images.shape[2] % 16 == 0
        assert sum(-(-int(h) // 16) * -(-int(w) // 16) for h, w, _ in sizes) <= 4000


def test_the_port_from_dali_gives_what_the_original_gives(data: None) -> None:
    pytest.importorskip("nvidia.dali")
    theirs, ours = _run(4)["of_dali"], _run(5)["like_dali"]
    # DALI's reader starts again to fill its last batch
    runs = [(size, *theirs.run()) for size in (16, COUNT - 16)]
    first = [(np.asarray(x.as_array())[:size], np.asarray(y.as_array())[:size]) for size, x, y in runs]
    # DALI's resize rounds to levels, gpupipe's stays float32: half a level
    _same(first, list(ours.with_options(gp.Options(device="cpu", backend="dali"))), 0.51 / 127.5)


def test_every_exception_has_a_row() -> None:
    text = (GUIDE / "errors.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| `(\w+)`(?: \((\w+)\))? \|", text, re.MULTILINE))
    classes = {name: getattr(errors, name) for name in errors.__all__ if name not in ("GpupipeError", "BadRecord")}

    assert rows.keys() == classes.keys()
    for name, said in rows.items():
        builtin = {base.__name__ for base in classes[name].__bases__ if base.__module__ == "builtins"}
        assert builtin == ({said} if said else set()), name


def test_the_measurements_are_those_of_the_files() -> None:
    text = (GUIDE / "performance.md").read_text(encoding="utf-8").partition("## What was measured")[2]
    rows = [line for line in text.splitlines() if line.startswith("| ")][1:]
    expected = [
        f"| {bar.name} | {bar.against} | {bar.median:.2f} ({bar.least:.2f}-{bar.most:.2f}) "
        f"| {bar.noise[0]:.2f}-{bar.noise[1]:.2f} | `{bar.source}` |"
        for bar in chart.bars()
    ]
    assert rows == expected

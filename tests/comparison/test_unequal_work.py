"""`gpupipe.compare` where executors do other work, or fail, and where a chain differs in each pass by itself."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, ops
from gpupipe.comparison.chain import training_chain
from gpupipe.comparison.rounds import Delivered, Runner
from gpupipe.comparison.source import find_source
from gpupipe.ops._shared.flip import Flip
from gpupipe.transform.machine import has_dali
from tests.comparison.test_compare import IMAGES, _image, chain

needs_dali = pytest.mark.skipif(not has_dali(), reason="DALI is not installed")


def on_dali(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    """Let passes on DALI deliver something else."""
    original = Runner.batches

    def batches(self: Runner) -> Any:
        for batch in original(self):
            yield Delivered(change(dict(batch.leaves))) if self.dataset.options().backend == "dali" else batch

    monkeypatch.setattr(Runner, "batches", batches)


@needs_dali
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: {**x, "[1]": [n + 1 for n in x["[1]"]]}, "other labels"),
        (lambda x: {**x, "[0]": x["[0]"][:-1], "[1]": x["[1]"][:-1]}, r"12 images in the first batches, not 16"),
        (lambda x: {**x, "[2]": [n * 2 for n in x["[2]"]]}, r"other values in row 1, in \[2\]"),
        (lambda x: {**x, "[3]": x["[3]"][::-1]}, r"image \d+ differs by [\d.]+ levels of 0..255 on average, in \[3\]"),
    ],
    ids=["labels", "last", "weights", "second view"],
)
def test_what_an_executor_delivers_otherwise_is_unequal_work(
    change: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An executor that delivers other elements, in any leaf, is not compared by its costs."""
    ds = Dataset.from_tensor_slices((IMAGES, np.arange(16)))
    two = ds.map(lambda x, n: (ops.resize(_image(x), (12, 10)), n, n * 0.5, ops.flip_left_right(_image(x)))).batch(4)
    on_dali(monkeypatch, change)

    found = gp.compare(two, ("dali-cpu", "numpy"), images=16, steps=False)

    assert not found.equal
    assert re.search(f"DALI CPU delivers other images than NumPy: {words}", found.verdict)
    assert "costs are not compared" in found.verdict
    assert found.break_even is None


@needs_dali
def test_a_chain_that_differs_in_each_pass_is_not_the_fault_of_an_executor() -> None:
    calls = itertools.count()

    def other(x: Any, n: Any) -> Any:
        return x, n + next(calls)

    ds = Dataset.from_tensor_slices((IMAGES, np.arange(16))).map(other, traced=False)
    found = gp.compare(ds.map(lambda x, n: (ops.resize(_image(x), (12, 10)), n)).batch(4), images=16, steps=False)

    assert found.equal
    assert "what is delivered cannot be compared: two passes of NumPy differ as well (other labels)" in found.verdict
    assert "DALI CPU delivers" not in found.verdict
    assert re.search("cores busy|the GPU saves", found.verdict)  # costs are compared


@needs_dali
def test_ragged_images_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = [(20, 24), (16, 12), (8, 20), (24, 20)]
    ds = Dataset.from_generator(
        lambda: (image[:h, :w] for image, (h, w) in zip(IMAGES, sizes, strict=False)),
        output_signature=gp.TensorSpec((None, None, 3), np.uint8),
    ).map(lambda x: ops.random_flip_left_right(x))
    monkeypatch.setattr(Flip, "dali", lambda self, d, x, mirror: x)

    found = gp.compare(ds.ragged_batch(2), images=4, steps=False)

    assert re.search(r"DALI CPU delivers other images than NumPy: image \d differs by", found.verdict)


@needs_dali
def test_a_missed_flip_of_images_that_were_normalised_by_hand_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values from -2 to 2.6 are no levels of 0..255, in which a flip would be a small difference."""
    ds = Dataset.from_tensor_slices(IMAGES)
    by_hand = ds.map(lambda x: (ops.cast(ops.random_flip_left_right(_image(x)), np.float32) / 255 - 0.45) / 0.22)
    monkeypatch.setattr(Flip, "dali", lambda self, d, x, mirror: x)

    found = gp.compare(by_hand.batch(4), images=16, steps=False)

    said = r"DALI CPU delivers other images .* units of float32, values from -2.\d+ to 2.5 on average"
    assert re.search(said, found.verdict)


@needs_dali
@pytest.mark.parametrize("method", ["round", "bottleneck"])
def test_an_executor_that_fails_half_way_is_left_out_and_the_others_are_measured(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = getattr(Runner, method), itertools.count()

    def failing(self: Runner, *args: Any) -> Any:
        if self.dataset.options().backend == "dali" and (method != "round" or next(calls) == 3):
            raise gp.DataError("lost the device")
        return original(self, *args)

    monkeypatch.setattr(Runner, method, failing)
    found = gp.compare(chain(), ("dali-cpu", "numpy"), images=16, steps=False)

    assert not found.equal and found.cost("dali-cpu").failed
    assert "DALI CPU failed: lost the device" in found.verdict
    rate = found.cost("numpy").rate
    assert rate is not None and rate.count == found.rounds >= 3


def test_a_folder_may_have_names_that_are_no_text(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    for name in (b"\xe9.jpg", b"b.jpg"):
        Image.fromarray(IMAGES[0]).save(folder / os.fsdecode(name), "JPEG")

    ((images, labels),) = training_chain(find_source(str(tmp_path), 2), 2, 2, 8)

    assert (images.shape, labels.tolist()) == ((2, 8, 8, 3), [0, 0])

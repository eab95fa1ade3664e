"""A bad image costs its own decoding: the other rows of its batch, and of those in flight, are not computed again."""

from __future__ import annotations

import io
import logging
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import ops
from gpupipe.extract.images import decode
from gpupipe.transform import machine

BACKENDS: list[Any] = ["numpy", *(["fast"] if machine.has_fast() else [])]
ROWS, BATCHES = 16, 8


@pytest.fixture(autouse=True)
def _strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse a JPEG that ends early: its header is good, so only decoding finds it."""
    monkeypatch.setattr(decode, "_damaged", lambda *args: None)


def cut(data: bytes) -> bytes:
    return data[:300] + b"\xff\xd9"


def jpegs() -> list[bytes]:
    rng = np.random.default_rng(0)
    files = []
    for _ in range(ROWS * BATCHES):
        stream = io.BytesIO()
        Image.fromarray(rng.integers(0, 256, (24, 32, 3), dtype=np.uint8)).save(stream, "JPEG")
        files.append(stream.getvalue())
    return files


def chain(files: list[bytes], backend: Any) -> gp.Dataset:
    def crop(data: Any) -> Any:
        return ops.random_resized_crop(ops.decode_jpeg(data, channels=3), (9, 8))

    dataset = gp.Dataset.from_list(files).map(crop).batch(ROWS).prefetch(2)
    return dataset.with_options(gp.Options(device="cpu", backend=backend, on_error="skip"))


@pytest.mark.parametrize("backend", BACKENDS)
def test_good_rows_are_decoded_once(
    backend: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One bad image in each batch; it is found only by decoding it."""
    caplog.set_level(logging.ERROR)
    files = jpegs()
    spoiled = [cut(data) if row % ROWS == 5 else data for row, data in enumerate(files)]
    calls, decoded = [], decode.decode

    def counted(data: Any, *args: Any, **settings: Any) -> Any:
        calls.append(bytes(data))
        return decoded(data, *args, **settings)

    monkeypatch.setattr("gpupipe.ops._shared.decoding.decode", counted)
    batches = list(chain(spoiled, backend))

    assert sum(map(len, batches)) == ROWS * BATCHES - BATCHES
    assert len(calls) <= ROWS * BATCHES + 2 * BATCHES, "a bad image is decoded again where its batch is formed again"


@pytest.mark.parametrize("backend", BACKENDS)
def test_rows_have_the_crops_that_they_have_without_a_bad_image_beside_them(backend: Any) -> None:
    files = jpegs()
    alone = {bytes(row): n for n, row in enumerate(np.concatenate(list(chain(files, backend))))}

    spoiled = [cut(data) if row % ROWS == 5 else data for row, data in enumerate(files)]
    rows = [bytes(row) for row in np.concatenate(list(chain(spoiled, backend)))]

    assert [alone[row] for row in rows] == [row for row in range(ROWS * BATCHES) if row % ROWS != 5]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_that_its_user_changes_leaves_no_trace_in_the_next_epoch(backend: Any) -> None:
    """The same objects come again in each pass, with nothing random about them."""
    files = jpegs()[: 2 * ROWS]
    files[3] = files[3][:300] + b"\xff\xd9"
    dataset = (
        gp.Dataset.from_list(files).map(lambda b: ops.decode_jpeg(b, channels=3)).repeat(3).batch(ROWS).prefetch(2)
    )
    batches = iter(dataset.with_options(gp.Options(device="cpu", backend=backend, on_error="skip")))
    seen: list[bytes] = []
    for batch in batches:
        seen += [bytes(row) for row in batch]
        batch[...] = 0

    third = len(seen) // 3
    assert third == 2 * ROWS - 1
    assert seen[:third] == seen[third : 2 * third] == seen[2 * third :]

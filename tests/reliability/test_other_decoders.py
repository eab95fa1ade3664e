"""A decoder that makes other pixels of damaged JPEGs than libjpeg, as those of GPUs do: such rows get the pixels of the
host, and nothing else is excused by them."""

from __future__ import annotations

import dataclasses
import functools
import io
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.errors import DataError, DecodeError
from gpupipe.extract.images.decode import is_damaged
from gpupipe.graph.op import Array
from gpupipe.transform.dali import executor as dali
from gpupipe.transform.dali import library
from gpupipe.transform.host_decode import HostDecoder
from tests.extract.test_jpeg_tables import DAMAGES
from tests.reliability.bad_records import flipped
from tests.reliability.test_wrong_pixels import BATCH, FILES, IMAGES, chain
from tests.reliability.wrong_decoders import OtherDecoder
from tests.transform.tiny import chain as tiny_chain

pytest.importorskip("nvidia.dali", reason="DALI is not installed")

FIRST, SECOND = BATCH + 3, BATCH + 5
Install = Callable[..., OtherDecoder]
ON_ERROR = pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    real = library.import_dali()

    def replace(*how: Any) -> OtherDecoder:
        library.release_memory()
        other = OtherDecoder(real.fn, *how)
        monkeypatch.setattr(library, "import_dali", lambda: dataclasses.replace(real, fn=other))
        monkeypatch.setattr(dali, "DaliExecutor", functools.partial(dali.DaliExecutor, proves=True))
        return other

    library.release_memory()
    yield replace
    monkeypatch.undo()
    library.release_memory()


def batches(ds: Dataset) -> list[Array]:
    return [np.asarray(batch) for batch in ds]


def with_damage(*rows: int) -> list[bytes]:
    files = list(FILES)
    for row in rows:
        files[row] = flipped(files[row])
        assert is_damaged(files[row])
    return files


def always(data: bytes, run: int) -> bool:
    return is_damaged(data)


@ON_ERROR
@pytest.mark.parametrize("refused", [False, True], ids=["alone", "beside one that the decoder refuses"])
def test_damaged_images_get_the_pixels_of_the_host(refused: bool, on_error: str, install: Install) -> None:
    files = with_damage(FIRST)
    expected = batches(chain(files, on_error=on_error))
    other = install(always, lambda data: refused and data == FILES[SECOND])

    items = iter(chain(files, on_error=on_error))
    found = [np.asarray(batch) for batch in items]

    assert other.blackened
    assert items.errors == ()
    np.testing.assert_array_equal(np.concatenate(found), np.concatenate(expected))


def test_all_damaged_images_of_a_batch_are_replaced_once_one_is_wrong(install: Install) -> None:
    """The other one would be wrong in the second run of its batch alone."""
    files = with_damage(FIRST, SECOND)
    expected = batches(chain(files))
    seen: set[int] = set()

    def one_then_the_other(data: bytes, run: int) -> bool:
        seen.add(run)
        return is_damaged(data) and (data == files[FIRST] or run > 2)

    install(one_then_the_other)

    np.testing.assert_array_equal(np.concatenate(batches(chain(files))), np.concatenate(expected))
    assert len(seen) > IMAGES // BATCH  # one batch ran twice


@ON_ERROR
def test_a_wrong_image_beside_a_damaged_one_is_reported(on_error: str, install: Install) -> None:
    files = with_damage(FIRST)
    install(lambda data, run: is_damaged(data) or (data == FILES[SECOND] and run == 2))

    with pytest.raises(gp.PixelError, match=f"index {SECOND}: decode_jpeg: "):
        batches(chain(files, on_error=on_error))


def test_a_wrong_image_in_a_row_whose_other_image_is_damaged_is_reported(install: Install) -> None:
    def decode(good: Any, damaged: Any) -> Any:
        a, b = (ops.resize(ops.decode_jpeg(data, channels=3), (8, 8), antialias=False) for data in (good, damaged))
        return a, b

    ds = Dataset.from_tensor_slices((FILES, [flipped(data) for data in FILES])).map(decode).batch(BATCH)
    install(lambda data, run: data == FILES[2])

    with pytest.raises(gp.PixelError, match="index 2: decode_jpeg: "):
        list(ds.with_options(Options(device="cpu", backend="dali")))


def test_a_sampling_that_simplejpeg_has_no_name_for_is_no_damage() -> None:
    sampled = io.BytesIO()
    Image.fromarray(np.full((40, 48, 3), 90, np.uint8)).save(sampled, "JPEG", subsampling=2)
    unnamed = sampled.getvalue()
    at = unnamed.index(b"\xff\xc0") + 11
    unnamed = unnamed[:at] + b"\x42" + unnamed[at + 1 :]

    assert not is_damaged(unnamed)
    assert not is_damaged(FILES[0])
    assert not is_damaged(b"GIF89a")


def test_a_damaged_image_that_is_refused_the_next_time_does_not_tell_that_the_card_is_broken(install: Install) -> None:
    files = with_damage(0)
    expected = batches(chain(files))
    times = 0

    def refuses(data: bytes) -> bool:
        nonlocal times
        times += data == files[0]
        return data == FILES[SECOND] or (data == files[0] and times > 1)

    install(lambda data, run: False, refuses)

    np.testing.assert_array_equal(np.concatenate(batches(chain(files))), np.concatenate(expected))


def test_a_damaged_image_that_the_host_refuses_is_a_bad_one(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    files = with_damage(FIRST)
    install(always)
    real = HostDecoder.second_opinion

    def refuses(self: HostDecoder, n: int, row: Any) -> bytes:
        if bytes(row) == files[FIRST]:
            raise DecodeError("damaged beyond what the host decodes")
        return real(self, n, row)

    monkeypatch.setattr(HostDecoder, "second_opinion", refuses)

    items = iter(chain(files, on_error="skip"))
    rows = sum(len(batch) for batch in items)

    assert rows == IMAGES - 1
    assert [record.offset for record in items.errors] == [FIRST]


def test_a_fault_in_the_second_run_of_a_batch_is_reported(install: Install) -> None:
    files = with_damage(FIRST)
    runs: list[int] = []

    def in_the_second_run(data: bytes, run: int) -> bool:
        runs.extend([run] * (data == FILES[SECOND]))
        return is_damaged(data) or (data == FILES[SECOND] and len(runs) == 2)

    install(in_the_second_run)

    with pytest.raises(gp.PixelError, match=f"index {SECOND}: decode_jpeg: "):
        batches(chain(files))


@pytest.mark.parametrize("damage", DAMAGES)
def test_on_a_gpu_an_image_with_a_damaged_header_never_reaches_dali(damage: str) -> None:
    program = tiny_chain()
    n = next(iter(HostDecoder(program, 1).readings))
    damaged = DAMAGES[damage](FILES[0])
    causes: dict[int, DataError] = {}
    host = HostDecoder(program, 1, on_gpu=True)
    first, second = host.ready(n, [FILES[1], damaged], causes)
    host.close()

    assert first == FILES[1]
    assert 1 in causes or bytes(second[:2]) == b"BM"

"""A decoder that gives wrong pixels without an error is found: in every row by what the file says of itself, and in one
image of so many by decoding it again. Images that are black, or have black borders, are not taken for such."""

from __future__ import annotations

import dataclasses
import functools
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.graph.op import Array
from gpupipe.ops._shared.samples import encoded
from gpupipe.transform.dali import executor as dali
from gpupipe.transform.dali import library
from tests.reliability.wrong_decoders import Spoiler

pytest.importorskip("nvidia.dali", reason="DALI is not installed")

BATCH, IMAGES, ROW = 8, 40, 3
ENDS = "DALI on CPU, .*DALI 2.*nvImageCodec .*: this is not the image that the host decodes"

Spoil = Callable[..., Spoiler]


def photograph(number: int, height: int = 48, width: int = 64) -> bytes:
    """A small photograph, another for every number."""
    coarse = np.random.default_rng(number).integers(20, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return encoded(np.kron(coarse, np.ones((8, 8, 1), np.uint8)), quality=90)


FILES = [photograph(n) for n in range(IMAGES)]
SIZES = [photograph(n, 48 + 8 * (n % 3)) for n in range(IMAGES)]


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spoil]:
    """Lets a decoder spoil rows; without `proves` nothing but `Options.verify` looks at them."""
    real = library.import_dali()

    def install(fault: str, runs: Any = (2,), row: int = ROW, pipeline: int = 1, proves: bool = True) -> Spoiler:
        spoiler = Spoiler(real.fn, fault, row, runs, pipeline)
        monkeypatch.setattr(library, "import_dali", lambda: dataclasses.replace(real, fn=spoiler))
        monkeypatch.setattr(dali, "DaliExecutor", functools.partial(dali.DaliExecutor, proves=proves))
        return spoiler

    library.release_memory()
    yield install
    monkeypatch.undo()
    library.release_memory()


def chain(files: list[bytes] = FILES, crop: bool = False, **options: Any) -> Dataset:
    """Decode, crop perhaps, resize, batch."""

    def decode(data: Any) -> Any:
        image = ops.decode_jpeg(data, channels=3)
        image = ops.random_crop(image, (32, 32)) if crop else image
        return ops.resize(image, (16, 16), antialias=False)

    ds = Dataset.from_tensor_slices(files).map(decode).batch(BATCH).prefetch(2)
    return ds.with_options(Options(device="cpu", backend="dali", **options))


def two_pipelines(**options: Any) -> Dataset:
    """A chain that decodes in two stages, since a Python function needs the images in between."""
    ds = Dataset.from_tensor_slices(FILES).map(lambda x: (x, ops.decode_jpeg(x, channels=3)))
    ds = ds.map(lambda x, image: (x, float(image.mean())), traced=False)
    ds = ds.map(lambda x, mean: (ops.decode_jpeg(x, channels=3), mean)).batch(BATCH)
    return ds.with_options(Options(device="cpu", backend="dali", **options))


def ended_by(ds: Dataset) -> tuple[int, gp.PixelError, Any]:
    """How many batches come before the error, the error, and the iterator."""
    items, count = iter(ds), 0
    with pytest.raises(gp.PixelError) as caught:
        for _ in items:
            count += 1
            assert count <= IMAGES, "this goes on for ever"
    return count, caught.value, items


FAULTS = pytest.mark.parametrize(
    ("fault", "files", "words"),
    [
        ("untouched", FILES, "differ by up to"),
        ("zeros", FILES, r"it is black there"),
        ("exchanged", FILES, "differ by up to"),
        ("exchanged", SIZES, r"it is 48x64 pixels and not 64x64"),
        ("torn", FILES, r"4 of 8 lines of samples differ by .*it is black there"),
    ],
    ids=["left as it was", "zeros", "exchanged", "exchanged, of two sizes", "lower half missing"],
)
ON_ERROR = pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])


@ON_ERROR
@FAULTS
def test_a_wrong_row_ends_the_run_and_is_named(
    fault: str, files: list[bytes], words: str, on_error: str, spoil: Spoil
) -> None:
    spoiler = spoil(fault)

    count, error, items = ended_by(chain(files, on_error=on_error))

    assert spoiler.spoilt
    assert not isinstance(error, gp.DataError)
    assert f"index {BATCH + ROW}: decode_jpeg: " in str(error)
    with pytest.raises(gp.PixelError, match=f"(?:{words}).*{ENDS}"):
        raise error
    assert count == 1
    assert items.left_out == 0
    assert items.errors == ()
    with pytest.raises(gp.ClosedError):
        next(items)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gpupipe")]


@ON_ERROR
@FAULTS
def test_with_a_warning_the_log_says_it_and_every_row_is_delivered(
    fault: str, files: list[bytes], words: str, on_error: str, spoil: Spoil, caplog: pytest.LogCaptureFixture
) -> None:
    spoil(fault)

    with caplog.at_level(logging.WARNING, "gpupipe"):
        items = iter(chain(files, on_error=on_error, wrong_pixels="warn"))
        rows = sum(len(batch) for batch in items)

    assert rows == IMAGES
    assert items.left_out == 0
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == (2 if fault == "exchanged" else 1)
    assert f"index {BATCH + ROW}: decode_jpeg: " in said[0]
    assert "is delivered as it is" in said[0]


@ON_ERROR
def test_a_wrong_row_of_the_second_of_two_pipelines_is_found(on_error: str, spoil: Spoil) -> None:
    spoil("untouched", pipeline=2)

    count, error, items = ended_by(two_pipelines(on_error=on_error))

    assert f"index {BATCH + ROW}: " in str(error)
    assert count == 1
    assert items.errors == ()


@ON_ERROR
@pytest.mark.parametrize("run", range(2, 7))  # there are eight or nine, as the repair falls
def test_a_wrong_row_in_any_run_of_a_repair_is_never_delivered(on_error: str, run: int, spoil: Spoil) -> None:
    files = list(FILES)
    files[BATCH + 5] = files[BATCH + 5][:400] + bytes(200) + b"\xff\xd9"  # the second batch is repaired
    expected = {bytes(row.tobytes()) for batch in chain(files, on_error="skip") for row in np.asarray(batch)}
    spoiler = spoil("untouched", runs=(run,), row=0)

    items = iter(chain(files, on_error=on_error))
    for _ in range(IMAGES):
        try:
            batch = next(items)
        except (StopIteration, gp.PixelError):  # the run may be one whose results nobody gets
            break
        except gp.DataError as error:
            assert on_error == "raise"
            assert f"index {BATCH + 5}" in str(error)
            continue
        assert {row.tobytes() for row in batch} <= expected

    assert spoiler.spoilt
    assert {record.offset for record in items.errors} <= {BATCH + 5}


@pytest.mark.parametrize("fault", ["untouched", "zeros"])
def test_a_row_in_every_run_is_found_however_the_batch_is_cut(fault: str, spoil: Spoil) -> None:
    spoil(fault, runs=range(1, 100), row=0)

    _, error, _ = ended_by(chain(device_memory=40_000))  # batches run in parts

    assert "index 0: " in str(error)


def _black(kind: str) -> Array:
    image = np.full((48, 64, 3), 90, np.uint8)
    image[:24] += np.arange(64, dtype=np.uint8)[:, None]
    if kind == "all":
        image[:] = 0
    elif kind == "below":
        image[20:] = 0
    elif kind == "frame":
        image[:8] = image[-8:] = 0
    else:
        image[:, :12] = 0
    return image


@pytest.mark.parametrize("kind", ["all", "below", "frame", "left"])
@pytest.mark.parametrize("form", ["JPEG", "PNG"])
def test_images_that_are_black_are_no_alarm(kind: str, form: str, spoil: Spoil) -> None:
    spoil("zeros", runs=())
    black = encoded(_black(kind), form)
    files = [black if n % 2 else file for n, file in enumerate(FILES)]

    batches = list(chain(files))

    assert sum(map(len, batches)) == IMAGES


@pytest.mark.parametrize("sampling", [0, 1, 2])
def test_images_of_any_kind_are_no_alarm(sampling: int, spoil: Spoil) -> None:
    spoil("zeros", runs=())
    kinds: list[dict[str, Any]] = [
        {"quality": 30}, {"quality": 99}, {"progressive": True}, {"optimize": True}, {"mode": "L"}, {"mode": "CMYK"},
        {"restart_marker_blocks": 1}, {"orientation": 6},
    ]  # fmt: skip
    noise = np.random.default_rng(1).integers(0, 256, (37, 43, 3), dtype=np.uint8)
    images = [noise, noise[:5, :7], np.full((9, 9, 3), 255, np.uint8), np.kron(noise, np.ones((2, 2, 1), np.uint8))]
    files = [encoded(image, subsampling=sampling, **kind) for kind in kinds for image in images]

    for upright in (False, True):
        ds = Dataset.from_tensor_slices(files)
        ds = ds.map(lambda x, up=upright: ops.resize(ops.decode_jpeg(x, exif_orientation=up, channels=3), (8, 8)))
        found = list(ds.batch(BATCH).with_options(Options(device="cpu", backend="dali")))
        assert sum(map(len, found)) == len(files)


@ON_ERROR
def test_one_image_in_so_many_is_decoded_again_and_compared(on_error: str, spoil: Spoil) -> None:
    spoil("unfinished", proves=False)

    assert sum(map(len, chain(on_error=on_error))) == IMAGES  # nobody looks
    library.release_memory()
    spoil("unfinished", proves=False)
    count, error, items = ended_by(chain(on_error=on_error, verify=1))

    assert f"index {BATCH + ROW}: decode_jpeg: " in str(error)
    with pytest.raises(gp.PixelError, match=f"of its 8x8 tiles differ by more than 8 .* row [234].*{ENDS}"):
        raise error
    assert count == 1
    assert items.errors == ()


def with_regions(monkeypatch: pytest.MonkeyPatch, regions: bool) -> None:
    """Let decoders decode regions alone, or whole images that are cropped then, as on a GPU."""
    lowering: Any = dali.Lowering
    monkeypatch.setattr(dali, "Lowering", lambda *given: lowering(*given[:5], regions, *given[6:]))


@pytest.mark.parametrize("regions", [False, True], ids=["whole images", "regions"])
@pytest.mark.parametrize("fault", ["unfinished", "zeros", "torn"])
def test_behind_a_crop_what_the_decoder_gave_is_looked_at(
    fault: str, regions: bool, spoil: Spoil, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Black rows and bands by themselves, what is unfinished by comparing."""
    compared = fault == "unfinished"
    spoil(fault, proves=not compared)
    with_regions(monkeypatch, regions)
    ds = chain(crop=True, verify=1 if compared else None)
    assert "decode_crop" in str(ds.explain())

    count, error, _ = ended_by(ds)

    assert count == 1
    assert f"index {BATCH + ROW}: decode_jpeg: " in str(error)


@pytest.mark.parametrize("crop", [False, True])
def test_images_that_are_right_are_verified_in_silence(crop: bool) -> None:
    files = [*FILES[:20], *SIZES[:10], *(encoded(_black("all"), "PNG"), encoded(_black("frame"))) * 5]

    plain = list(chain(files, crop))
    verified = list(chain(files, crop, verify=1))

    for one, other in zip(plain, verified, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_repairs_of_bad_images_make_no_alarm(on_error: str, spoil: Spoil) -> None:
    spoil("zeros", runs=())
    files = list(FILES)
    files[3] = files[3][:400] + bytes(200) + b"\xff\xd9"
    files[BATCH] = b"no image"
    files[2 * BATCH :: 3] = [file[:-300] + b"\xff\xd9" for file in files[2 * BATCH :: 3]]  # cut, in every batch

    items = iter(chain(files, on_error=on_error, verify=1))
    rows = sum(len(batch) for batch in items)

    assert items.left_out >= 2
    assert rows == (IMAGES if on_error == "replace" else IMAGES - items.left_out)


def _looked_at(monkeypatch: pytest.MonkeyPatch, items: Any, files: list[bytes] = FILES) -> list[int]:
    """The numbers of the images that are compared while an iterator runs to its end."""
    from gpupipe.transform.dali.proof import Decoder

    seen: list[int] = []
    real = Decoder.on_host

    def on_host(self: Any, program: Any, feed: Any, row: int) -> Any:
        seen.append(files.index(bytes(feed.values[self.image][row])))
        return real(self, program, feed, row)

    with monkeypatch.context() as patch:
        patch.setattr(Decoder, "on_host", on_host)
        for _ in items:
            pass
    return seen


def test_which_images_are_verified_depends_on_seed_epoch_and_element_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [photograph(n) for n in range(200)]

    def seen(batch: int, **options: Any) -> list[int]:
        ds = Dataset.from_tensor_slices(files).map(lambda x: ops.resize(ops.decode_jpeg(x, channels=3), (8, 8)))
        ds = ds.batch(batch).with_options(Options(device="cpu", backend="dali", verify=10, **options))
        return _looked_at(monkeypatch, iter(ds), files)

    first = seen(8)

    assert 5 <= len(first) <= 40
    assert seen(32) == first
    assert seen(8, threads=1) == first
    assert seen(8, seed=5) != first


def test_behind_a_state_the_same_images_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _looked_at(monkeypatch, iter(chain(verify=3)))
    items: Any = iter(chain(verify=3))
    next(items)
    next(items)
    state = items.state_dict()
    items.close()

    again: Any = iter(chain())  # whether images are verified changes no result
    again.load_state_dict(state)
    again.close()
    again = iter(chain(verify=3))
    again.load_state_dict(state)
    behind = _looked_at(monkeypatch, again)

    assert behind == [n for n in whole if n >= 2 * BATCH]
    assert behind


def test_explain_says_what_is_verified() -> None:
    assert "verify=1000: one image in 1000 is decoded again on the host" in str(chain(verify=1000).explain())
    assert "nothing is verified" in str(chain(verify=1000).with_options(Options(backend="numpy")).explain())
    assert "verify" not in str(chain().explain())


def saturated(number: int) -> bytes:
    """Colours so saturated that the mean of the decoded pixels is not what the first code says."""
    coarse = np.random.default_rng(number).integers(0, 2, (12, 16, 3)).astype(np.uint8) * np.uint8(255)
    return encoded(np.kron(coarse, np.ones((4, 4, 1), np.uint8)), quality=5)


FALSE_ALARMS = {
    "means": [saturated(n) for n in range(256)],
    "black": [encoded(_black("frame"), quality=30 + n % 60) for n in range(256)],
    "both": [encoded(_black("frame")) if n % 2 else saturated(n) for n in range(256)],
}


@pytest.mark.parametrize("kind", FALSE_ALARMS)
def test_false_alarms_cost_few_decodings_and_the_log_says_once_that_fewer_are_looked_at(
    kind: str, spoil: Spoil, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    spoil("zeros", runs=())
    files = FALSE_ALARMS[kind] * 8
    reasons = 2 if kind == "both" else 1

    with caplog.at_level(logging.INFO, "gpupipe"):
        looked = len(_looked_at(monkeypatch, iter(chain(files)), files))

    assert 8 * reasons < looked <= reasons * (8 + len(files) / 768)  # fewer, never none
    said = [record.getMessage() for record in caplog.records if "checks one such image" in record.getMessage()]
    assert len(said) == reasons
    assert all(text.startswith("decode_jpeg: 8 images ") for text in said)
    assert ("another mean" in str(said)) == (kind != "black")
    assert ("are black" in str(said)) == (kind != "means")


@pytest.mark.parametrize("fault", ["untouched", "zeros", "torn"])
@pytest.mark.parametrize("kind", FALSE_ALARMS)
def test_a_decoder_that_goes_on_giving_wrong_rows_is_caught_among_false_alarms(
    kind: str, fault: str, spoil: Spoil
) -> None:
    spoiler = spoil(fault, runs=range(60, 10_000))  # long after the host looks at fewer
    ds = Dataset.from_tensor_slices(FALSE_ALARMS[kind]).repeat().map(lambda x: ops.decode_jpeg(x, channels=3))

    with pytest.raises(gp.PixelError, match=ENDS):
        for _ in ds.batch(BATCH).take(3000).with_options(Options(device="cpu", backend="dali")):
            pass

    assert spoiler.spoilt < 1000


def test_rows_that_are_wrong_are_all_looked_at(spoil: Spoil, caplog: pytest.LogCaptureFixture) -> None:
    spoil("untouched", runs=range(2, 1000))
    files = FILES * 8

    with caplog.at_level(logging.INFO, "gpupipe"):
        assert sum(map(len, chain(files, wrong_pixels="warn"))) == len(files)

    assert len([record for record in caplog.records if "is delivered as it is" in record.getMessage()]) >= 36
    assert not [record for record in caplog.records if "checks one such image" in record.getMessage()]

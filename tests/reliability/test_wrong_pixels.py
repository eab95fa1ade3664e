"""A decoder that gives wrong pixels without an error is found: in every row by what the file says of itself, and in one
image of so many by decoding it again. Images that are black, or have black borders, are not taken for such."""

from __future__ import annotations

import functools
import logging
import re
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.errors import DataError, DecodeError
from gpupipe.extract.images.decode import damage_of
from gpupipe.graph.op import Array
from gpupipe.ops._shared.samples import encoded
from gpupipe.transform.dali import executor as dali
from gpupipe.transform.dali import library
from gpupipe.transform.host_decode import HostDecoder
from gpupipe.transform.program import Feed
from tests.extract.test_jpeg_tables import DAMAGES
from tests.reliability.bad_records import flipped
from tests.reliability.resume import behind, state_after
from tests.reliability.test_device_errors import ended_by
from tests.transform.tiny import chain as tiny_chain

Fault = Callable[[list[Array], int, Array], None]
"""Spoils row n of a batch; the third is what its memory held before: rows of earlier runs, one behind the other."""


def untouched(rows: list[Array], n: int, before: Array) -> None:
    """The row is what was there."""
    rows[n] = np.resize(before, rows[n].shape)


def zeros(rows: list[Array], n: int, before: Array) -> None:
    """The row is black."""
    rows[n] = np.zeros_like(rows[n])


def exchanged(rows: list[Array], n: int, before: Array) -> None:
    """The row and the next one have changed places."""
    rows[n], rows[n + 1] = rows[n + 1], rows[n]


def torn(rows: list[Array], n: int, before: Array) -> None:
    """The lower half of the row is black."""
    rows[n] = rows[n].copy()
    rows[n][len(rows[n]) // 2 :] = 0


def unfinished(rows: list[Array], n: int, before: Array) -> None:
    """The lower half of the row is what was there."""
    rows[n] = rows[n].copy()
    half = rows[n][len(rows[n]) // 2 :]
    half[:] = np.resize(before, half.shape)


FAULTS: dict[str, Fault] = {f.__name__: f for f in (untouched, zeros, exchanged, torn, unfinished)}


class _Decoders:
    """Stands in for `nvidia.dali.fn`, with other decoders; `_decoded` is what they are.

    Args:
        fn: DALI's.
    """

    def __init__(self, fn: Any) -> None:
        self._fn = fn
        self.decoders = SimpleNamespace(
            image=functools.partial(self._decoded, fn.decoders.image),
            image_slice=functools.partial(self._decoded, fn.decoders.image_slice),
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fn, name)

    def _decoded(self, decode: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        raise NotImplementedError


class Spoiler(_Decoders):
    """What its decoders give is spoilt.

    Args:
        fn: DALI's.
        fault: what happens to a row.
        row: which one.
        runs: of the pipeline, counted from 1.
        pipeline: number of the pipeline that it happens to, counted from 1 in the order in which they are built.
    """

    def __init__(self, fn: Any, fault: str, row: int, runs: Sequence[int], pipeline: int = 1) -> None:
        super().__init__(fn)
        self._fault, self._row, self._runs, self._chosen = FAULTS[fault], row, runs, pipeline
        self._built = 0
        self.spoilt = 0

    def _decoded(self, decode: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        self._built += 1
        image = decode(*inputs, **options)
        if self._built != self._chosen:
            return image
        run, before = 0, np.full(1 << 16, 101, np.uint8)

        def spoil(rows: list[Any]) -> list[Any]:
            nonlocal run, before
            run += 1
            arrays = [np.asarray(row) for row in rows]
            now = np.concatenate([row.ravel() for row in arrays])
            if run in self._runs and self._row < len(arrays):
                self._fault(arrays, self._row, before)
                self.spoilt += 1
            before = np.roll(now, 1234)
            return arrays

        return self._fn.python_function(image, function=spoil, batch_processing=True, output_layouts="HWC")


class OtherDecoder(_Decoders):
    """A decoder that refuses some JPEGs, and makes the lower half of others black.

    Args:
        fn: DALI's.
        blackens: whether it blackens a JPEG, given its bytes and the number of the run, counted from 1.
        refuses: whether it refuses a JPEG.
    """

    def __init__(
        self, fn: Any, blackens: Callable[[bytes, int], bool], refuses: Callable[[bytes], bool] = lambda data: False
    ) -> None:
        super().__init__(fn)
        self._blackens, self._refuses = blackens, refuses
        self.runs = 0
        self.blackened = 0

    def _decoded(self, decode: Callable[..., Any], *inputs: Any, **options: Any) -> Any:
        def changed(rows: list[Any], files: list[Any]) -> list[Array]:
            self.runs += 1
            out = []
            for row, file in zip(map(np.asarray, rows), (np.asarray(file).tobytes() for file in files), strict=True):
                if file[:2] == b"\xff\xd8" and self._refuses(file):
                    raise RuntimeError("the decoder refuses this image")
                if file[:2] == b"\xff\xd8" and self._blackens(file, self.runs):
                    self.blackened += 1
                    row = row.copy()
                    row[len(row) // 2 :] = 0
                out.append(row)
            return out

        image = decode(*inputs, **options)
        return self._fn.python_function(image, inputs[0], function=changed, batch_processing=True, output_layouts="HWC")


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
def spoil(other_dali: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Spoil:
    """Lets a decoder spoil rows; without `proves` nothing but `Options.verify` looks at them."""
    fn, executor = library.import_dali().fn, dali.DaliExecutor

    def install(fault: str, runs: Any = (2,), row: int = ROW, pipeline: int = 1, proves: bool = True) -> Spoiler:
        spoiler = Spoiler(fn, fault, row, runs, pipeline)
        other_dali(fn=spoiler)
        monkeypatch.setattr(dali, "DaliExecutor", functools.partial(executor, proves=proves))
        return spoiler

    return install


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


ON_ERROR = pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])


@ON_ERROR
@pytest.mark.parametrize(
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
def test_a_wrong_row_ends_the_run_and_is_named_or_is_delivered_with_a_warning(
    fault: str, files: list[bytes], words: str, on_error: str, spoil: Spoil, caplog: pytest.LogCaptureFixture
) -> None:
    named = f"index {BATCH + ROW}: decode_jpeg: "
    spoiler = spoil(fault)

    assert re.search(f"{named}.*(?:{words}).*{ENDS}", ended_by(gp.PixelError, chain(files, on_error=on_error), 1))
    assert spoiler.spoilt
    spoil(fault)
    caplog.clear()
    with caplog.at_level(logging.WARNING, "gpupipe"):
        items = iter(chain(files, on_error=on_error, wrong_pixels="warn"))
        assert sum(len(batch) for batch in items) == IMAGES
    assert items.left_out == 0
    assert len(caplog.messages) == (2 if fault == "exchanged" else 1)
    assert named in caplog.messages[0]
    assert "is delivered as it is" in caplog.messages[0]


@ON_ERROR
def test_a_wrong_row_of_the_second_of_two_pipelines_is_found(on_error: str, spoil: Spoil) -> None:
    spoil("untouched", pipeline=2)

    assert f"index {BATCH + ROW}: " in ended_by(gp.PixelError, two_pipelines(on_error=on_error), 1)


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

    assert "index 0: " in ended_by(gp.PixelError, chain(device_memory=40_000), 0)  # batches run in parts


def _black(kind: str) -> Array:
    image = np.full((48, 64, 3), 90, np.uint8)
    image[:24] += np.arange(64, dtype=np.uint8)[:, None]
    places: dict[str, Any] = {"all": np.s_[:], "below": np.s_[20:], "frame": np.r_[:8, 40:48], "left": np.s_[:, :12]}
    image[places[kind]] = 0
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
    spoil("unfinished", proves=False)
    error = ended_by(gp.PixelError, chain(on_error=on_error, verify=1), 1)

    said = f"index {BATCH + ROW}: decode_jpeg: .*of its 8x8 tiles differ by more than 8 .* row [234].*{ENDS}"
    assert re.search(said, error)


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

    assert f"index {BATCH + ROW}: decode_jpeg: " in ended_by(gp.PixelError, ds, 1)


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
    state = state_after(chain(verify=3), 2)

    behind(chain(), state)  # whether images are verified changes no result
    again = iter(chain(verify=3))
    again.load_state_dict(state)

    assert _looked_at(monkeypatch, again) == [n for n in whole if n >= 2 * BATCH] != []


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
    said = [text for text in caplog.messages if "checks one such image" in text]
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

    assert len([text for text in caplog.messages if "is delivered as it is" in text]) >= 36
    assert not [text for text in caplog.messages if "checks one such image" in text]


pytest.importorskip("nvidia.dali", reason="DALI is not installed")

FIRST, SECOND = BATCH + 3, BATCH + 5
Install = Callable[..., OtherDecoder]


@pytest.fixture
def install(other_dali: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> Install:
    fn = library.import_dali().fn
    monkeypatch.setattr(dali, "DaliExecutor", functools.partial(dali.DaliExecutor, proves=True))

    def replace(*how: Any) -> OtherDecoder:
        other = OtherDecoder(fn, *how)
        other_dali(fn=other)
        return other

    return replace


def rows_of(ds: Any) -> Array:
    """All rows of all batches."""
    return np.concatenate([np.asarray(batch) for batch in ds])


def with_damage(*rows: int) -> list[bytes]:
    files = list(FILES)
    for row in rows:
        files[row] = flipped(files[row])
        assert damage_of(files[row])
    return files


def always(data: bytes, run: int) -> bool:
    return bool(damage_of(data))


@ON_ERROR
@pytest.mark.parametrize("refused", [False, True], ids=["alone", "beside one that the decoder refuses"])
def test_damaged_images_get_the_pixels_of_the_host(refused: bool, on_error: str, install: Install) -> None:
    files = with_damage(FIRST)
    expected = rows_of(chain(files, on_error=on_error))
    other = install(always, lambda data: refused and data == FILES[SECOND])

    items = iter(chain(files, on_error=on_error))

    np.testing.assert_array_equal(rows_of(items), expected)
    assert other.blackened
    assert items.errors == ()


def test_all_damaged_images_of_a_batch_are_replaced_once_one_is_wrong(install: Install) -> None:
    """The other one would be wrong in the second run of its batch alone."""
    files = with_damage(FIRST, SECOND)
    expected = rows_of(chain(files))
    seen: set[int] = set()

    def one_then_the_other(data: bytes, run: int) -> bool:
        seen.add(run)
        return bool(damage_of(data)) and (data == files[FIRST] or run > 2)

    install(one_then_the_other)

    np.testing.assert_array_equal(rows_of(chain(files)), expected)
    assert len(seen) > IMAGES // BATCH  # one batch ran twice


@ON_ERROR
def test_a_wrong_image_beside_a_damaged_one_is_reported(on_error: str, install: Install) -> None:
    files = with_damage(FIRST)
    install(lambda data, run: bool(damage_of(data)) or (data == FILES[SECOND] and run == 2))

    with pytest.raises(gp.PixelError, match=f"index {SECOND}: decode_jpeg: "):
        rows_of(chain(files, on_error=on_error))


def test_a_wrong_image_in_a_row_whose_other_image_is_damaged_is_reported(install: Install) -> None:
    def decode(good: Any, damaged: Any) -> Any:
        a, b = (ops.resize(ops.decode_jpeg(data, channels=3), (8, 8), antialias=False) for data in (good, damaged))
        return a, b

    ds = Dataset.from_tensor_slices((FILES, [flipped(data) for data in FILES])).map(decode).batch(BATCH)
    install(lambda data, run: data == FILES[2])

    with pytest.raises(gp.PixelError, match="index 2: decode_jpeg: "):
        list(ds.with_options(Options(device="cpu", backend="dali")))


def test_a_sampling_that_simplejpeg_has_no_name_for_is_no_damage() -> None:
    unnamed = encoded(np.full((40, 48, 3), 90, np.uint8), subsampling=2)
    at = unnamed.index(b"\xff\xc0") + 11
    unnamed = unnamed[:at] + b"\x42" + unnamed[at + 1 :]

    assert not damage_of(unnamed)
    assert not damage_of(FILES[0])
    assert not damage_of(b"GIF89a")


def test_a_damaged_image_that_is_refused_the_next_time_does_not_tell_that_the_card_is_broken(install: Install) -> None:
    files = with_damage(0)
    expected = rows_of(chain(files))
    times = 0

    def refuses(data: bytes) -> bool:
        nonlocal times
        times += data == files[0]
        return data == FILES[SECOND] or (data == files[0] and times > 1)

    install(lambda data, run: False, refuses)

    np.testing.assert_array_equal(rows_of(chain(files)), expected)


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
        return bool(damage_of(data)) or (data == FILES[SECOND] and len(runs) == 2)

    install(in_the_second_run)

    with pytest.raises(gp.PixelError, match=f"index {SECOND}: decode_jpeg: "):
        rows_of(chain(files))


@pytest.mark.parametrize("damage", DAMAGES)
def test_on_a_gpu_an_image_with_a_damaged_header_never_reaches_dali(damage: str) -> None:
    program = tiny_chain()
    n = next(iter(HostDecoder(program, 1).readings))
    damaged = DAMAGES[damage](FILES[0])
    causes: dict[int, DataError] = {}
    host = HostDecoder(program, 1, on_gpu=True)
    values: list[Any] = [np.full((2, 2), 9) for _ in program.inputs]  # of windows
    values[n] = [FILES[1], damaged]
    first, second = host.ready(n, Feed(2, tuple(values)), causes)
    host.close()

    assert first == FILES[1]
    assert 1 in causes or bytes(second[:2]) == b"BM"

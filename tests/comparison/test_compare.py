"""`gpupipe.compare` in this process: a model's answers, unequal work, wrong arguments, what the figures mean."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image

import gpupipe as gp
from gpupipe import Dataset, ops
from gpupipe.comparison import rounds
from gpupipe.comparison.compare import check_prices
from gpupipe.comparison.ratios import Spread
from gpupipe.comparison.result import Cost
from gpupipe.comparison.rounds import Runner
from gpupipe.comparison.steps.looks import looks_like
from gpupipe.comparison.steps.material import alone
from gpupipe.comparison.steps.tolerance import GPU_DECODING, tolerance_of
from gpupipe.comparison.verdict import break_even, findings_of
from gpupipe.errors import PlanError
from gpupipe.ops._shared.flip import Flip
from gpupipe.ops.decode_jpeg import DecodeJpeg
from gpupipe.ops.normalize import Normalize
from gpupipe.ops.resize import Resize
from gpupipe.progress import Progress
from gpupipe.transform.machine import has_dali

needs_dali = pytest.mark.skipif(not has_dali(), reason="DALI is not installed")

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, (16, 24, 20, 3), np.uint8)
SCENE = [np.cumsum(image, axis=1, dtype=np.float64) % 256 for image in IMAGES[:4]]


def chain(images: np.ndarray[Any, Any] = IMAGES) -> Dataset:
    """Images and labels, as a notebook has them: with a lambda that no other process can have."""
    data = Dataset.from_tensor_slices((images, np.arange(len(images))))
    return data.map(lambda x, n: (ops.resize(ops.random_flip_left_right(_image(x)), (12, 10)), n)).batch(4)


def _image(x: Any) -> Any:
    return ops.crop_to_bounding_box(x, 0, 0, 24, 20)


@needs_dali
def test_a_model_gives_the_same_classes_on_equal_executors() -> None:
    ds = chain().shuffle(4)
    before = [labels.tolist() for _, labels in ds.iterator(epoch=0)]

    found = gp.compare(ds, ("dali-cpu", "numpy"), images=16, steps=False, model=lambda x: x.mean((1, 2)))

    accuracy = found.cost("numpy").accuracy
    assert found.cost("dali-cpu").accuracy == accuracy
    assert accuracy is not None and (accuracy.images, accuracy.agreement) == (16, 1.0)
    assert "the model gives the same class for 100.0% of 16 images on DALI CPU" in found.verdict
    assert found.equal
    assert [labels.tolist() for _, labels in ds] == before  # comparing is no epoch


@pytest.mark.parametrize(
    ("model", "got"),
    [
        (lambda x: x, r"got float32\[4, 12, 10, 3\]"),
        (lambda x: x.mean((1, 2, 3))[:, None], r"got float32\[4, 1\]"),
        (lambda x: {"logits": x.mean((1, 2))}, "got {'logits'"),
        (lambda x: [[1], [1, 2], [1], [1]], r"got \[\[1\], \[1, 2\]"),
        (lambda x: np.array(["cat"] * len(x)), r"got <U3\[4\]"),
        (lambda x: x.mean((1, 2)) * np.nan, "got NaN"),
    ],
    ids=["images", "one score", "dict", "unequal", "words", "nan"],
)
def test_a_model_whose_answers_are_no_classes_is_refused(model: Any, got: str) -> None:
    with pytest.raises(PlanError, match=f"compare needs a model that gives .*{got}"):
        gp.compare(chain(), "numpy", images=16, model=model, steps=False)


@needs_dali
def test_kinds_of_jpegs_are_told_apart_with_the_decoder_of_each(tmp_path: Path) -> None:
    pixels = np.kron(IMAGES[0], np.ones((2, 2, 1), np.uint8))
    half: dict[str, Any] = {"subsampling": "4:2:0"}
    for name, settings in (("a", half), ("b", half), ("c", {"progressive": True, "subsampling": "4:4:4"})):
        Image.fromarray(pixels).save(tmp_path / f"{name}.jpg", "JPEG", **settings)
    Image.fromarray(pixels).convert("CMYK").save(tmp_path / "d.jpg", "JPEG")
    files = Dataset.list_files(str(tmp_path / "*.jpg"), shuffle=False)
    ds = files.map(lambda path: ops.resize(ops.decode_jpeg(gp.io.read_file(path), channels=3), (16, 16)))

    found = gp.compare(ds.batch(2), images=4)

    kinds = {one.kind: (one.images, one.decoder) for one in found.classes}
    assert kinds.pop("JPEG baseline 4:2:0") == (2, "DALI")
    assert kinds.pop("JPEG progressive 4:4:4") == (1, "DALI")
    ((kind, of_cmyk),) = kinds.items()
    assert ("CMYK" in kind or "YCCK" in kind) and of_cmyk == (1, "host")
    assert all(one.gaps["dali-cpu"].psnr is None for one in found.classes)  # one decoder decides: all are equal
    assert f"25% of the images are decoded on the host by every executor: {kind} (1)" in found.verdict


@needs_dali
def test_a_step_that_an_executor_cannot_run_alone_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two decoders one fails on DALI, where it runs alone: all others are compared, and nothing is said of it."""
    Image.fromarray(IMAGES[0]).save(tmp_path / "a.jpg")
    files = Dataset.from_tensor_slices([str(tmp_path / "a.jpg")] * 4).map(gp.io.read_file)
    two = files.map(lambda x: (ops.decode_jpeg(x, channels=3), ops.decode_jpeg(x, channels=1)))

    def failing(call: Any, material: Any, settings: Any) -> Any:
        if call.op == DecodeJpeg(channels=1):
            raise gp.DataError("not alone")
        return alone(call, material, settings)

    monkeypatch.setattr("gpupipe.comparison.steps.compare_steps.alone", failing)
    found = gp.compare(two.batch(2), ("dali-cpu", "numpy"), images=4)

    assert found.equal
    assert "no step differs beyond its stated tolerance, but decode_jpeg could not be compared" in found.verdict
    assert [one.images for one in found.classes] == [8]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"images": 1}, "compare needs images >= 2, got 1"),
        ({"compared": 0}, "compare needs compared >= 1, got 0"),
        ({"executors": ["cuda"]}, "compare needs executors out of dali-gpu, dali-cpu, fast, numpy, got 'cuda'"),
        ({"rate": -1}, "compare needs a rate from 0.1 to 1e9 images/s, got -1"),
        ({"prices": {"gpu": 1}}, "compare needs prices named core_hour and gpu_hour, got 'gpu'"),
        ({"prices": 0.05}, "compare needs prices by name, core_hour and gpu_hour, got 0.05"),
        ({"prices": {"core_hour": float("inf")}}, "compare needs a price from 0 to 1e9 for core_hour, got inf"),
        ({"executors": 5}, "compare needs executors out of dali-gpu, dali-cpu, fast, numpy, got 5"),
        ({"model": "resnet"}, "compare needs a model that can be called, got 'resnet'"),
        ({"out": 5}, "compare needs a path for out, got 5"),
    ],
    ids=str,
)
def test_a_wrong_argument_is_refused_before_anything_runs(arguments: dict[str, Any], words: str) -> None:
    def never(x: Any) -> Any:
        raise AssertionError("an element was computed")

    with pytest.raises(PlanError, match=words):
        gp.compare(Dataset.range(4).map(never, traced=False), **arguments)


def test_a_consumer_that_is_slower_than_the_chain_hardly_waits_and_a_faster_one_does() -> None:
    runner = Runner.on(chain().repeat(3), "cpu", "numpy", 48)
    fast, slow = runner.waiting(1e8), runner.waiting(200)

    assert fast is not None and slow is not None
    assert 0 <= slow < fast <= 1


def test_a_consumer_ends_after_some_seconds_and_takes_two_batches_at_least(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(rounds, "time", SimpleNamespace(perf_counter=time.perf_counter, sleep=slept.append))
    monkeypatch.setattr(rounds, "WAITING_SECONDS", 0.0)

    assert Runner.on(chain(), "cpu", "numpy", 16).waiting(0.5) is not None
    assert len(slept) == 2


def test_one_batch_tells_nothing_of_a_consumer_and_is_measured_from_its_start() -> None:
    runner = Runner.on(chain().unbatch().batch(16), "cpu", "numpy", 16)

    assert runner.waiting(1000) is None
    one = runner.round()
    assert (one.images, one.batch, one.timed) == (16, 16, 16)
    assert one.seconds >= one.first_batch_s > 0
    several = Runner.on(chain(), "cpu", "numpy", 16).round()
    assert (several.images, several.batch, several.timed) == (16, 4, 12)


def cost(key: str, cpu_ms: float, rate: float) -> Cost:
    return Cost(key, key, cpu_ms=Spread.of([cpu_ms]), rate=Spread.of([rate]))


def said(costs: list[Cost], rate: float | None, prices: dict[str, float], even: Any) -> str:
    """What is found of costs, the last of which is the reference."""
    return "\n".join(one.text for one in findings_of(costs, costs[-1], {}, {}, "", (), (), rate, prices, even))


def test_break_even_counts_cores_saved_and_the_gpus_share() -> None:
    costs = [cost("dali-gpu", 0.5, 5000), cost("dali-cpu", 2.5, 800), cost("numpy", 3.0, 700)]

    even = break_even(costs, 1000, check_prices({"core_hour": 0.05, "gpu_hour": 0.4}))

    assert even is not None and even.cpu == "dali-cpu"
    assert even.cores_saved == pytest.approx(2.0)  # (2.5 - 0.5) ms x 1000/s
    assert even.gpu_share == pytest.approx(0.2)
    assert even.saved_per_hour == pytest.approx(2.0 * 0.05 - 0.2 * 0.4)
    assert even.from_core_price == pytest.approx(0.04)  # at which 2 cores cost as much as a fifth of the GPU
    assert even.from_rate == pytest.approx(4000)  # 8 cores at 0.05 cost as much as the whole GPU
    text = said(costs, 1000, {}, even)
    assert "the GPU saves 2.00 CPU-ms an image against dali-cpu: 2.0 cores at 1,000 images/s" in text
    assert "pays from 0.04 a core-hour on" in text
    assert "saves 0.02 an hour" in text


def test_without_a_gpu_there_is_no_break_even_and_cores_are_counted() -> None:
    costs = [Cost("dali-gpu", "DALI GPU", "no GPU"), cost("numpy", 3.0, 700)]

    assert break_even(costs, None, {}) is None
    text = said(costs, None, {"core_hour": 0.1}, None)
    assert "numpy keeps 3.0 cores busy at 1,000 images/s, which costs 0.3 an hour" in text
    assert "none was measured here" in text


def test_a_gpu_that_saves_no_cpu_time_never_pays() -> None:
    costs = [cost("dali-gpu", 3.0, 5000), cost("numpy", 2.0, 700)]
    even = break_even(costs, None, {"core_hour": 1.0, "gpu_hour": 1.0})

    assert even is not None and even.from_core_price is even.from_rate is None
    assert said(costs, None, {}, even) == "the GPU saves no CPU time: -1.00 CPU-ms an image"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x[:, :, ::-1], "red and blue exchanged"),
        (lambda x: x[:, ::-1], "mirrored left-right: a flip that is missing, or one too many"),
        (lambda x: x[::-1], "mirrored upside down: a flip that is missing, or one too many"),
        (lambda x: x[::-1, ::-1], "rotated by 180 degrees"),
        (lambda x: np.roll(x, (1, -2), (0, 1)), "shifted by 1 pixel down and 2 pixels to the left"),
        (lambda x: x + 7, "offset by +7"),
        (lambda x: x * 1.5 - 3, "scaled by +1.5 and offset by -3: other brightness or contrast"),
        (lambda x: (x + np.roll(x, 1, 0) + np.roll(x, -1, 0)) / 3, "less fine detail"),
        (lambda x: 2 * x - (x + np.roll(x, 1, 0) + np.roll(x, -1, 0)) / 3, "more fine detail"),
        (lambda x: x[:-1], "images of another size"),
    ],
)
def test_a_difference_is_put_into_words(change: Any, words: str) -> None:
    assert looks_like([change(image) for image in SCENE], SCENE).startswith(words)
    assert looks_like([image + RNG.normal(0, 2, image.shape) for image in SCENE], SCENE) == ""  # noise


def test_what_is_normalised_by_another_deviation_has_no_offset_and_as_many_digits_as_it_takes() -> None:
    off = [(image - 120) / (50 * 1.0005) for image in SCENE]

    found = looks_like(off, [(image - 120) / 50 for image in SCENE], 50.0)

    assert found == "scaled by +0.9995: another mean or deviation"


def test_a_tolerance_is_that_of_the_ops_most_similar_cases() -> None:
    image = IMAGES[0]

    kept = tolerance_of(Resize(9, 9, antialias=True, keep_dtype=True), [image])
    bicubic = tolerance_of(Resize(9, 9, "bicubic", antialias=True, keep_dtype=True), [image])
    assert (kept.inside, kept.ring) == (1, 18)
    assert (bicubic.inside, bicubic.ring) == (2, 2)
    assert "DALI repeats edge pixels" in kept.source
    assert tolerance_of(Flip(), [image]).source == "flip states no tolerance: executors must be equal"
    exact, gpu = (tolerance_of(DecodeJpeg(channels=3), [b""], decodes_on_gpu=on) for on in (False, True))
    assert gpu.inside == exact.inside + GPU_DECODING


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
@needs_dali
def test_a_resize_with_antialias_of_values_that_are_no_bytes_is_within_its_tolerance(dtype: Any) -> None:
    """Its cases are of bytes: what they promise holds for the same op on values of another dtype and range."""
    images = IMAGES.astype(dtype) * (1 if dtype == np.float32 else 257)
    ds = Dataset.from_tensor_slices(images).map(lambda x: ops.resize(_image(x), (12, 10), antialias=True))

    found = gp.compare(ds.batch(4), images=16, compared=8)

    own = found.steps[-1].gaps[0].own
    assert found.equal, found.verdict
    assert own is not None and own.ring > 0.02  # of float32 sums, which is all that a resize without antialias has


def test_a_tolerance_shrinks_with_the_range_of_values_but_not_for_dark_images() -> None:
    op = Resize(9, 9, antialias=True)
    bright = IMAGES[0].astype(np.float32)

    of_bytes, of_floats, of_dark = (tolerance_of(op, [x]).ring for x in (IMAGES[0], bright, bright / 4))
    assert of_bytes == of_floats == of_dark == 18
    assert tolerance_of(op, [bright / 255]).ring == pytest.approx(18 / 255)
    assert tolerance_of(op, [bright * 0, bright * 2]).ring == pytest.approx(36)


def test_the_json_of_a_comparison_is_strict() -> None:
    found = gp.compare(chain().repeat(), "numpy", images=16, steps=False)

    again = json.loads(found.json(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert again["costs"][0]["images"] == 16 and "pairs" not in again
    assert str(found) == repr(found)
    with pytest.raises(gp.GpupipeError, match="NumPy: compare needs a dataset with elements, got an empty one"):
        gp.compare(chain().take(0), "numpy")


def test_the_progress_of_a_pass_counts_to_what_a_pass_has(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[int, int]] = []

    def update(_: Progress, done: int, total: int = 0, unit: str = "", note: object = "") -> None:
        if unit == "images":
            said.append((done, total))

    monkeypatch.setattr(Progress, "update", update)
    gp.compare(chain(), images=400, steps=False)

    once = [4, 8, 12, 16]
    passes = len(said) // len(once)
    assert said == [(done, 0 if number == 0 else 16) for number in range(passes) for done in once]


def test_a_rate_that_one_gpu_does_not_give_is_none_from_which_it_pays() -> None:
    costs = [cost("dali-gpu", 0.5, 3900), cost("numpy", 2.5, 700)]

    even = break_even(costs, None, {"core_hour": 0.05, "gpu_hour": 0.4})

    assert even is not None and even.from_rate is None
    assert even.from_core_price == pytest.approx(0.4 / 3.9 / 2)  # above the price of a core


def test_a_tolerance_grows_with_values_in_floating_point_and_with_the_unit() -> None:
    op = Normalize((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
    float_image = IMAGES[0].astype(np.float32)

    usual = tolerance_of(op, [float_image])
    assert tolerance_of(op, [float_image * 100]).inside > 50 * usual.inside > 0
    assert tolerance_of(op, [IMAGES[0]], scale=58.0).inside == pytest.approx(58 * tolerance_of(op, [IMAGES[0]]).inside)

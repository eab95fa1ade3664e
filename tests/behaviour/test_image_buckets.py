"""bucket_by_image_size: which images meet, what the size of a batch is, and that nothing is decoded for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpupipe as gp
from gpupipe import ops
from gpupipe.ops._shared.samples import encoded, picture
from tests.behaviour.model import outcomes
from tests.chains.data import on
from tests.reliability.executors import EXECUTORS
from tests.reliability.resume import goes_on

Sizes = list[tuple[int, int]]

BUCKETS = [(16, 32), (24, 24), (32, 16)]
IMAGES: Sizes = [(20, 43), (40, 41), (37, 20), (30, 31), (22, 40), (64, 30), (41, 22), (25, 24), (50, 21), (18, 33)]
sides = st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=25)


def images(sizes: Sizes = IMAGES) -> gp.Dataset:
    """Encoded images of these sizes, and their numbers."""
    return gp.Dataset.from_list([(encoded(picture(h, w)), i) for i, (h, w) in enumerate(sizes)])


def of_sizes(sizes: Sizes) -> gp.Dataset:
    """Numbers in place of images: `by_number` says their sizes."""
    return gp.Dataset.from_tensor_slices((np.arange(len(sizes)), np.array(sizes, np.int64)))


def by_number(number: Any, size: Any) -> tuple[int, int]:
    return int(np.asarray(size)[0]), int(np.asarray(size)[1])


def rows(dataset: gp.Dataset) -> list[tuple[list[int], tuple[int, int]]]:
    """The numbers in each batch, and the one size that all its rows have."""
    out = []
    for _, numbers, (heights, widths) in dataset:
        assert heights.dtype == widths.dtype == np.int32
        ((height, width),) = set(zip(heights.tolist(), widths.tolist(), strict=True))
        out.append((numbers.tolist(), (height, width)))
    return out


def nearest(size: tuple[int, int], buckets: Sizes) -> tuple[int, int]:
    """The definition: nearest in aspect ratio, then in area, as distances of logarithms."""
    logs = [np.log(h / w) - np.log(size[0] / size[1]) for h, w in buckets]
    areas = [np.log(h * w) - np.log(size[0] * size[1]) for h, w in buckets]
    return buckets[min(range(len(buckets)), key=lambda i: (round(abs(logs[i]), 9), round(abs(areas[i]), 9)))]


# ---- buckets of aspect ratios


def test_an_image_meets_others_of_about_its_aspect_ratio() -> None:
    assert rows(images().bucket_by_image_size(BUCKETS, 2)) == [
        ([1, 3], (24, 24)),
        ([0, 4], (16, 32)),
        ([2, 5], (32, 16)),
        ([6, 8], (32, 16)),
        ([9], (16, 32)),
        ([7], (24, 24)),
    ]


@settings(max_examples=50, deadline=None, database=None, derandomize=True)
@given(sizes=sides, buckets=st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, unique=True))
def test_the_nearest_bucket_is_the_one_defined(sizes: Sizes, buckets: Sizes) -> None:
    dataset = of_sizes(sizes).bucket_by_image_size(buckets, 1, size_func=by_number)

    found = {int(number[0]): (int(h[0]), int(w[0])) for number, _, (h, w) in dataset}

    assert found == {i: nearest(size, buckets) for i, size in enumerate(sizes)}


def test_a_limit_of_pixels_gives_each_bucket_its_number_of_rows() -> None:
    sizes = [(30, 30)] * 5 + [(10, 10)] * 5
    dataset = images(sizes).bucket_by_image_size([(32, 32), (16, 16)], 4, max_pixels=2048, drop_remainder=True)

    assert [numbers for numbers, _ in rows(dataset)] == [[0, 1], [2, 3], [5, 6, 7, 8]]
    assert dataset.element_spec[1].shape == (None,)
    assert images().bucket_by_image_size(BUCKETS, 2, drop_remainder=True).element_spec[1].shape == (2,)


def test_what_is_left_at_the_end_leaves_by_bucket_or_is_dropped() -> None:
    dataset = images([(9, 9), (9, 30), (30, 9)])

    assert rows(dataset.bucket_by_image_size(BUCKETS, 9)) == [([1], (16, 32)), ([0], (24, 24)), ([2], (32, 16))]
    assert rows(dataset.bucket_by_image_size(BUCKETS, 9, drop_remainder=True)) == []


# ---- batches up to a number of pixels or patches


def greedy(costs: list[int], budget: int, most: int) -> list[list[int]]:
    """The definition: consecutive images while they fit."""
    out: list[list[int]] = []
    for i, cost in enumerate(costs):
        fits = out and len(out[-1]) < most and sum(costs[j] for j in out[-1]) + cost <= budget
        out = [*out[:-1], [*out[-1], i]] if fits else [*out, [i]]
    return out


@settings(max_examples=60, deadline=None, database=None, derandomize=True)
@given(sizes=sides, patch=st.integers(1, 5), most=st.integers(1, 6), more=st.integers(0, 900))
def test_consecutive_images_fill_a_batch_up_to_the_limit(sizes: Sizes, patch: int, most: int, more: int) -> None:
    costs = [-(-h // patch) * -(-w // patch) for h, w in sizes]
    budget = max(costs) + more
    limit = {"max_pixels": budget} if patch == 1 else {"max_tokens": budget, "patch_size": patch}

    dataset = of_sizes(sizes).bucket_by_image_size(batch_size=most, size_func=by_number, **limit)  # type: ignore[arg-type]

    groups = greedy(costs, budget, most)
    assert [numbers.tolist() for numbers, *_ in dataset] == groups
    for (*_, (height, width)), group in zip(dataset, groups, strict=True):
        largest = [-(-max(sizes[i][axis] for i in group) // patch) * patch for axis in (0, 1)]
        assert [set(height.tolist()), set(width.tolist())] == [{largest[0]}, {largest[1]}]


@pytest.mark.parametrize("drop", [False, True])
def test_a_state_between_two_batches_that_one_image_completes_continues_there(drop: bool) -> None:
    """An image of 16 pixels does not fit into the batch before it and fills one of its own: two leave at once."""
    sizes = [(1, 2), (4, 4), (1, 1), (4, 4), (4, 4), (2, 2), (3, 4)]

    def build() -> gp.Dataset:
        return of_sizes(sizes).bucket_by_image_size(max_pixels=16, size_func=by_number, drop_remainder=drop)

    assert [numbers.tolist() for numbers, *_ in build()] == [[0], [1], [2], [3], [4], [5, 6]]
    goes_on(build)


@pytest.mark.parametrize(("on_error", "expected"), [("skip", [0, 2]), ("replace", [0, 0, 2])])
def test_an_image_above_the_limit_is_a_bad_element(on_error: Any, expected: list[int]) -> None:
    dataset = images([(10, 10), (30, 20), (10, 10)]).bucket_by_image_size(max_pixels=200)
    dataset = dataset.with_options(gp.Options(on_error=on_error))
    with iter(dataset) as items:
        found = [numbers.tolist() for _, numbers, _ in items]
        (bad,) = items.errors

    assert [n for batch in found for n in batch] == expected
    assert "max_pixels=200, got 30x20 = 600 pixels; raise max_pixels, or let size_func" in bad.reason
    assert bad.stage == "bucket_by_image_size"


# ---- elements


def test_the_size_is_the_last_part_of_an_element() -> None:
    data = encoded(picture(9, 9))
    ints = gp.TensorSpec((None,), "int32")

    def spec(element: Any) -> Any:
        return gp.Dataset.from_list([element]).bucket_by_image_size([(8, 8)], 1).element_spec

    assert spec(data) == (gp.TensorSpec((None,), bytes), (ints, ints))
    assert spec((data, 1))[2] == (ints, ints)
    assert spec({"jpg": data, "cls": 1})["size"] == (ints, ints)
    with pytest.raises(gp.PlanError, match="adds the key 'size' to elements, which have it already"):
        spec({"jpg": data, "size": 1})


def test_an_image_that_only_the_first_element_tells_is_found() -> None:
    def file_of(size: Any) -> Any:
        return encoded(picture(int(np.asarray(size)[0]), 20)), np.asarray(size)

    dataset = of_sizes([(40, 1), (10, 1)]).map(lambda n, size: file_of(size), traced=False)

    found = list(dataset.bucket_by_image_size(BUCKETS, 1))
    assert [(h[0], w[0]) for *_, (h, w) in found] == [(32, 16), (16, 32)]


def test_upright_sizes_are_those_that_an_upright_decoder_gives() -> None:
    dataset = gp.Dataset.from_list([(encoded(picture(20, 40), orientation=6), 0)])

    assert rows(dataset.bucket_by_image_size(BUCKETS, 1)) == [([0], (16, 32))]
    assert rows(dataset.bucket_by_image_size(BUCKETS, 1, exif_orientation=True)) == [([0], (32, 16))]


@pytest.mark.parametrize("backend", EXECUTORS)
def test_a_map_brings_the_images_of_a_batch_to_its_size(backend: Any) -> None:
    def augment(data: Any, number: Any, size: Any) -> Any:
        image = ops.resize(ops.decode_jpeg(data, 3), (size[0] + 4, size[1] + 4))
        return ops.random_crop(image, (*size, 3), seed=3), number

    chain = images().bucket_by_image_size(BUCKETS, 2).map(augment)
    sizes = [size for _, size in rows(images().bucket_by_image_size(BUCKETS, 2))]
    for (batch, numbers), size in zip(chain.with_options(on(backend)), sizes, strict=True):
        assert batch.shape == (len(numbers), *size, 3)


# ---- before anything is decoded


def test_headers_alone_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Images whose pixels are gone: only their first and last bytes are there."""
    headers = []
    for i, (height, width) in enumerate(IMAGES):
        data = encoded(picture(height, width))
        start = data.index(b"\xff\xda")  # the scan
        headers.append((data[: start + 2] + b"\0\2" + data[-2:], i))

    for name in ("gpupipe.extract.images.decode.decode", "gpupipe.transform.numpy.NumpyExecutor.submit"):
        monkeypatch.setattr(name, lambda *_, **__: pytest.fail("an image was decoded"))
    dataset = gp.Dataset.from_list(headers).bucket_by_image_size(BUCKETS, 2)

    assert rows(dataset) == rows(images().bucket_by_image_size(BUCKETS, 2))


def test_a_shuffle_below_it_holds_references_to_records(tmp_path: Path) -> None:
    path = str(tmp_path / "images.tfrecord")
    with gp.io.TFRecordWriter(path) as writer:
        for i, (height, width) in enumerate(IMAGES * 3):
            writer.write(gp.io.encode_example({"image": [encoded(picture(height, width))], "label": [i]}))
    features = {"image": gp.io.FixedLenFeature((), "string"), "label": gp.io.FixedLenFeature((), "int64")}

    def parse(record: Any) -> Any:
        return tuple(gp.io.parse_single_example(record, features).values())

    def build() -> gp.Dataset:
        shuffled = gp.TFRecordDataset(path).shuffle(20, seed=1)
        return shuffled.map(parse).bucket_by_image_size(BUCKETS, 4)

    with iter(build()) as items:
        next(items)
        held = {step.step: step for step in items.memory_report().steps}
    assert held["shuffle(20)"].bytes <= 20 * 250
    assert 0 < held["bucket_by_image_size"].elements < 12
    assert held["bucket_by_image_size"].most_elements == 12
    found = rows(build())
    assert sorted(n for numbers, _ in found for n in numbers) == list(range(30))
    assert all(nearest(IMAGES[n % 10], BUCKETS) == size for numbers, size in found for n in numbers)
    goes_on(build, range(0, len(found) + 1, 3))


GOOD = [0, 1, 2, 4, 6, 7, 8, 9]


@pytest.mark.parametrize(
    ("on_error", "expected"), [("raise", GOOD), ("skip", GOOD), ("replace", sorted([*GOOD, 2, 4]))]
)
def test_a_bad_header_is_a_hole_of_this_step(on_error: Any, expected: list[int]) -> None:
    data = [encoded(picture(h, w)) for h, w in IMAGES]
    data[3], data[5] = b"no image", data[5][:-30]
    dataset = gp.Dataset.from_list([(file, i) for i, file in enumerate(data)]).bucket_by_image_size(BUCKETS, 2)

    seen = outcomes(dataset.with_options(gp.Options(on_error=on_error)))

    assert seen.count("error") == (2 if on_error == "raise" else 0)
    assert sorted(n for one in seen if one != "error" for n in one[1]) == expected
    with pytest.raises(gp.DataError, match=r"bucket_by_image_size: .*not an image"):
        list(dataset)


def test_an_image_above_the_largest_that_options_allow_is_bad() -> None:
    dataset = images([(10, 10), (30, 30)]).bucket_by_image_size(BUCKETS, 1)

    with pytest.raises(gp.DataError, match=r"an image may have 500 pixels \(Options.max_pixels\), got 30x30"):
        list(dataset.with_options(gp.Options(max_pixels=500)))


# ---- mistakes


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, gp.PlanError, "needs buckets and a batch_size, or the limit max_pixels or max_tokens"),
    ({"buckets": BUCKETS}, gp.PlanError, "needs buckets and a batch_size, or the limit"),
    ({"buckets": []}, gp.PlanError, r"list of \(height, width\), got an empty list"),
    ({"buckets": [(1, 2), (1, 2)]}, gp.PlanError, "each once, got"),
    ({"buckets": [(0, 2)]}, gp.PlanError, r"two integers from 1 to 2\*\*24, got \(0, 2\)"),
    ({"buckets": [(1.5, 2)]}, gp.PlanError, r"two integers from 1 to 2\*\*24, got \(1.5, 2\)"),
    ({"buckets": "512x512"}, TypeError, r"list of \(height, width\), got str"),
    ({"buckets": BUCKETS, "max_pixels": 500}, gp.PlanError, r"one row of each bucket, got 500 for a bucket of \(16, 3"),
    ({"buckets": BUCKETS, "batch_size": 0}, gp.PlanError, "needs batch_size >= 1, got 0"),
    ({"max_pixels": 5, "max_tokens": 5, "patch_size": 1}, gp.PlanError, "needs max_pixels, or max_tokens with patch"),
    ({"max_pixels": 5, "patch_size": 4}, gp.PlanError, "needs max_pixels, or max_tokens with patch_size"),
    ({"max_pixels": 2.5}, TypeError, "needs an integer for max_pixels, got 2.5"),
    ({"max_pixels": 9, "size_func": lambda a: a}, TypeError, "bucket_by_image_size calls the lambda with 2 arguments"),
]


@pytest.mark.parametrize(("arguments", "kind", "text"), WRONG)
def test_mistakes_raise_where_they_are_written(arguments: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        images([(9, 9)]).bucket_by_image_size(**arguments)


def test_elements_without_exactly_one_image_need_a_function() -> None:
    with pytest.raises(gp.PlanError, match=r"one encoded image \(bytes\).*size_func=lambda"):
        gp.Dataset.range(3).bucket_by_image_size(BUCKETS, 1)
    two = gp.Dataset.from_list([(encoded(picture(9, 9)), encoded(picture(9, 30)))])
    with pytest.raises(gp.PlanError, match=r"one encoded image \(bytes\)"):
        two.bucket_by_image_size(BUCKETS, 1)
    chosen = two.bucket_by_image_size(BUCKETS, 1, size_func=lambda a, b: ops.extract_jpeg_shape(b)[:2])
    assert [(int(h[0]), int(w[0])) for *_, (h, w) in chosen] == [(16, 32)]


@pytest.mark.parametrize("given_size", [3, (1, 2, 3), (0, 5), (1.5, 2), np.zeros(2)])
def test_a_function_that_returns_no_size_is_an_error_of_its_element(given_size: Any) -> None:
    dataset = of_sizes([(1, 1)]).bucket_by_image_size(max_pixels=9, size_func=lambda number, size: given_size)

    with pytest.raises(gp.DataError, match=r"needs a size_func that returns \(height, width\), integers >= 1, got"):
        list(dataset)


def test_buckets_of_aspect_ratios_are_those_of_kohya() -> None:
    """Its `make_bucket_resolutions((512, 512))`, as (height, width)."""
    found = gp.aspect_ratio_buckets(512 * 512, min_size=256, max_size=1024)

    wide = [(256, 832), (256, 896), (256, 960), (256, 1024), (320, 704), (320, 768), (384, 640), (448, 576)]
    assert found == [*wide, (512, 512), *sorted((w, h) for h, w in wide)]


def test_limits_that_no_bucket_has_are_refused() -> None:
    with pytest.raises(gp.PlanError, match="needs step >= 1, got 0"):
        gp.aspect_ratio_buckets(step=0)
    with pytest.raises(TypeError, match=r"needs an integer for max_pixels, got 2\.0"):
        gp.aspect_ratio_buckets(max_pixels=2.0)  # type: ignore[arg-type]
    with pytest.raises(gp.PlanError, match="at most 100 pixels, and there are none"):
        gp.aspect_ratio_buckets(max_pixels=100)

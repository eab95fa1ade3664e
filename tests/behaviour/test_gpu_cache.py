"""cache(device="gpu"): images of later epochs come from GPU memory; all else is as behind a cache on the host."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.flow.cache.on_gpu import GpuCacheStore
from gpupipe.spec import map_structure
from gpupipe.transform import array, machine
from gpupipe.transform.array import on_gpu, to_host
from gpupipe.transform.cached_array import CachedArray
from gpupipe.transform.dali import feed_cached, library
from gpupipe.transform.dali.feeding import Entry, tensors_of
from tests.behaviour.a_gpu import a_gpu, is_same
from tests.transform.tiny import damaged, jpeg

__all__ = ["a_gpu"]

COUNT = 24
SIZES = np.random.default_rng(5).integers(20, 40, (COUNT, 2)).tolist()
FILES = [jpeg(n, height, width) for n, (height, width) in enumerate(SIZES)]
GPU = Options(device="gpu", seed=3)
HOST = Options(device="cpu", backend="dali", seed=3)
Make = Callable[[Dataset], Dataset]


def _on_gpu(ds: Dataset) -> Dataset:
    return ds.cache(device="gpu")


def _decoded(files: Any = FILES) -> Dataset:
    ds = Dataset.zip((Dataset.from_list(list(files)), Dataset.range(len(files))))
    return ds.map(lambda data, label: (ops.decode_jpeg(data), label))


def _cropped(image: Any, label: Any) -> Any:
    return ops.random_flip_left_right(ops.random_resized_crop(image, (8, 8))), label


def _copied(element: Any) -> Any:
    return map_structure(to_host, element)


def _passes(ds: Dataset, count: int = 3) -> list[Any]:
    return [[_copied(element) for element in ds.iterator(epoch)] for epoch in range(count)]


def _compared(got: Any, expected: Any) -> None:
    """Compare elements that may hold bytes and numbers beside arrays."""
    if isinstance(expected, (list, tuple)):
        assert len(got) == len(expected)
        for one, other in zip(got, expected, strict=True):
            _compared(one, other)
    elif isinstance(expected, np.ndarray):
        is_same(got, expected)
    else:
        assert got == expected


STEPS: dict[str, Make] = {
    "crops": lambda ds: ds.map(_cropped).batch(5),
    "shuffle": lambda ds: ds.shuffle(7).map(_cropped).batch(5),
    "shuffle of all": lambda ds: ds.shuffle(gp.ALL).map(_cropped).batch(5),
    "repeat in one iterator": lambda ds: ds.repeat(3).map(_cropped).batch(7),
    "elements": lambda ds: ds,
    "image and crop": lambda ds: ds.map(lambda x, y: (ops.resize(x, (9, 9)), _cropped(x, y)[0], y)).batch(4),
    "the image itself, too": lambda ds: ds.map(lambda x, y: (x, ops.random_crop(x, (8, 8, 3)))),
    "filter of labels": lambda ds: ds.filter(lambda x, y: y % 3 == 1).map(_cropped).batch(3),
    "filter of pixels": lambda ds: ds.filter(lambda x, y: _is_even(x)).map(_cropped).batch(3),
    "filter in Python": lambda ds: ds.filter(lambda x, y: int(x[0, 0, 0]) % 2 == 0).map(_cropped).batch(3),
    "Python map": lambda ds: ds.map(lambda x, y: (x[:8, :8].copy(), y), traced=False).batch(3),
    "py_function": lambda ds: ds.map(_with_mean).batch(3),
    "zip": lambda ds: Dataset.zip((ds, Dataset.range(COUNT))).map(lambda xy, n: (*_cropped(*xy), n)).batch(3),
    "zip with itself": lambda ds: Dataset.zip((ds, ds)).map(lambda a, b: (*_cropped(*a), *_cropped(*b))).batch(4),
    "concatenate": lambda ds: ds.concatenate(_decoded(FILES[:5])).map(_cropped).batch(5),
    "padded_batch": lambda ds: ds.padded_batch(3),
    "take and skip": lambda ds: ds.skip(2).take(9).map(_cropped).batch(4),
    "mixup": lambda ds: ds.map(_cropped).batch(4).map(lambda x, y: ops.mixup(x, y, 1.0, num_classes=COUNT)),
}


def _computed(x: Any, y: Any) -> Any:
    return ops.random_crop(x, (8, 8, 3)), y * 2 + 1


def _is_even(image: Any) -> Any:
    return ops.py_function(lambda x: np.bool_(x[0, 0, 0] % 2 == 0), (image,), spec=gp.TensorSpec((), "bool"))


def _with_mean(x: Any, y: Any) -> Any:
    mean = ops.py_function(lambda image: np.float32(image.mean()), (x,), spec=gp.TensorSpec((), "float32"))
    return *_cropped(x, y), mean


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
@pytest.mark.gpu
@pytest.mark.usefixtures("a_gpu")
def test_every_epoch_is_as_behind_a_cache_on_the_host(step: Make) -> None:
    expected = step(_decoded().cache()).with_options(HOST)

    _compared(_passes(step(_on_gpu(_decoded())).with_options(GPU)), _passes(expected))


@pytest.mark.gpu
@pytest.mark.usefixtures("a_gpu")
class TestOnAGpu:
    @pytest.mark.parametrize("step", [_cropped, _computed, lambda x, y: (ops.random_crop(x, (8, 8, 3)),)])
    def test_later_epochs_copy_no_image_to_the_gpu_nor_back(self, step: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        ds = _on_gpu(_decoded()).shuffle(9).map(step).batch(5).with_options(GPU)
        first = list(ds)
        reads, uploads = list[Any](), list[Any]()
        monkeypatch.setattr(CachedArray, "read", _counting(CachedArray.read, reads))
        monkeypatch.setattr("gpupipe.transform.dali.feed_cached.uploaded", _counting(array.uploaded, uploads))

        second = list(ds)

        assert all(on_gpu(image) for image, *_ in (*first, *second))
        assert len(second) == 5
        assert (reads, uploads) == ([], [])
        assert "full cache in the memory of GPU 0" in str(ds.explain())

    def test_one_may_stand_behind_another_one(self) -> None:
        def resized(ds: Dataset) -> Dataset:
            return ds.map(lambda x, y: (ops.resize(x, (12, 12)), y))

        got = _on_gpu(resized(_on_gpu(_decoded()))).batch(4).with_options(GPU)
        _compared(_passes(got), _passes(resized(_decoded()).batch(4).with_options(HOST)))

    def test_a_user_who_changes_a_batch_does_not_change_the_cache(self) -> None:
        images = np.full((3, 4, 4, 3), 7, np.uint8)
        for step in (lambda x: ops.reshape(x, (4, 12)), lambda x: ops.cast(x, "uint8"), lambda x: x):
            ds = Dataset.from_tensor_slices(images).cache(device="gpu").map(step).batch(1).with_options(GPU)
            for _ in range(3):
                for batch in ds:
                    assert (to_host(batch) == 7).all()
                    batch[...] = 0 if not on_gpu(batch) else batch * 0

    def test_a_pass_that_stops_early_keeps_nothing(self) -> None:
        calls: list[int] = []
        ds = Dataset.range(40).map(lambda n: _noted(calls, n), traced=False, spec=gp.TensorSpec((4, 4, 3), "uint8"))
        ds = _on_gpu(ds).with_options(GPU)

        for _, _ in zip(range(10), ds, strict=False):
            pass
        before = len(calls)
        assert [len(list(ds)), len(list(ds))] == [40, 40]
        assert len(calls) == before + 40

    @pytest.mark.parametrize("order", ["in order", "by index"])
    def test_it_resumes_with_a_full_cache_and_with_an_empty_one(self, order: str) -> None:
        def made() -> Dataset:
            ds = _on_gpu(_decoded()).shuffle(gp.ALL if order == "by index" else 6, seed=2)
            return ds.map(_cropped).batch(3).with_options(GPU)

        ds = made()
        list(ds.iterator(0))
        expected = [_copied(element) for element in ds.iterator(1)]
        for again in (ds, made()):
            items = again.iterator(1)
            for _ in range(4):
                next(items)
            state = items.state_dict()
            for resumed in (again.iterator(1), made().iterator(1)):
                resumed.load_state_dict(state)
                _compared([_copied(element) for element in resumed], expected[4:])

    def test_a_resumed_pass_that_does_not_fill_it_is_followed_by_one_that_does(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def made() -> Dataset:
            spec = gp.TensorSpec((4, 4, 3), "uint8")
            ds = Dataset.range(200).map(lambda n: _noted([], n), traced=False, spec=spec)
            return _on_gpu(ds).repeat(3).map(ops.flip_up_down).batch(10).with_options(GPU)

        with iter(made()) as items:
            for _ in range(16):  # behind the first checkpoint
                next(items)
            state = items.state_dict()
        resumed = iter(made())
        resumed.load_state_dict(state)
        puts: list[Any] = []
        monkeypatch.setattr("gpupipe.transform.device_memory.put", _counting(array.put, puts))

        numbers = [n for batch in resumed for n in to_host(batch)[:, 0, 0, 0].tolist()]

        assert numbers == [n % 200 for n in range(160, 600)]
        assert len(puts) == 200  # in the second pass alone

    @pytest.mark.parametrize("on_error", ["skip", "raise", "replace"])
    def test_a_bad_image_is_bad_in_each_epoch(self, on_error: Any) -> None:
        files = [*FILES[:3], damaged(FILES[3]), *FILES[4:9]]
        options = Options(on_error=on_error)
        ds = _on_gpu(_decoded(files)).map(_cropped).batch(2).with_options(GPU.merge(options))
        expected = _decoded(files).cache().map(_cropped).batch(2).with_options(HOST.merge(options))

        for epoch in range(2):
            _compared(_with_errors(ds.iterator(epoch)), _with_errors(expected.iterator(epoch)))

    def test_beyond_the_budget_is_an_error_that_says_what_to_do(self) -> None:
        ds = _decoded().cache(device="gpu", memory=20_000).map(_cropped).batch(5).with_options(GPU)

        for _ in range(2):
            with pytest.raises(gp.DeviceError, match=r"20,000 bytes of GPU memory, and needs more: .*spill=True"):
                list(ds)

    def test_what_spills_is_kept_on_the_host(self) -> None:
        cached = _decoded().cache(device="gpu", memory=30_000, spill=True)
        ds = cached.map(_cropped).batch(5).with_options(GPU)

        _compared(_passes(ds), _passes(_decoded().cache().map(_cropped).batch(5).with_options(HOST)))

        (filled,) = cached.plan.store.filled.values()  # type: ignore[attr-defined]
        images = [element[0][0].array for element in filled.elements]
        assert on_gpu(images[0]) and not all(map(on_gpu, images))
        assert sum(image.nbytes for image in images if on_gpu(image)) <= 30_000

    def test_a_gpu_without_room_is_an_error_or_spills(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refused(*_: Any) -> Any:
            raise gp.DeviceError("GPU 0 gives no 9 bytes of memory")

        monkeypatch.setattr("gpupipe.transform.device_memory.allocated", refused)

        with pytest.raises(gp.DeviceError, match=r"GPU memory, and GPU 0 gives no 9 bytes of memory; .*spill=True"):
            list(_on_gpu(_decoded()).with_options(GPU))
        assert len(list(_decoded().cache(device="gpu", spill=True).with_options(GPU))) == COUNT

    def test_cupys_own_error_of_memory_is_one_of_the_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import cupy

        def full(*_: Any) -> Any:
            raise type("OutOfMemoryError", (MemoryError,), {})("out of memory allocating 7 bytes")

        monkeypatch.setattr(cupy, "empty", full)

        with pytest.raises(gp.DeviceError, match=r"GPU 0 gives no 7 bytes of memory: .*out of memory"):
            array.allocated(7, 0)

    def test_the_memory_report_counts_its_images(self) -> None:
        images = np.zeros((10, 8, 8, 3), np.uint8)
        ds = Dataset.from_tensor_slices(images).cache(device="gpu").map(ops.flip_up_down).batch(2).with_options(GPU)

        for _ in range(2):
            list(ds)
        rows = {row.step: (row.elements, row.bytes) for row in ds.memory_report().steps}
        assert rows["cache(device='gpu')"] == (10, images.nbytes)

    def test_a_column_may_hold_arrays_of_the_cache_and_others(self) -> None:
        images = [np.full((2, 3, 3), n, np.uint8) for n in range(3)]
        there = array.to_device(images[0], 0)
        tensors, entry = library.import_dali().tensors, Entry("cached", "uint8", 3)
        causes: dict[int, gp.DataError] = {}

        rows = [CachedArray(there), images[1], CachedArray(images[2])]
        made = feed_cached.tensors_on_gpu(tensors, "ops", rows, entry, 0, causes)

        assert made is not None
        for tensor, image in zip(made, images, strict=True):
            held = tensor.as_cpu() if hasattr(tensor, "as_cpu") else tensor
            np.testing.assert_array_equal(np.asarray(held), image)
        assert feed_cached.tensors_on_gpu(tensors, "ops", [images[0][0]], entry, 0, causes) is None
        assert "need uint8 with 3 dimensions" in str(causes[0])


def _counting(function: Callable[..., Any], calls: list[Any]) -> Callable[..., Any]:
    def counted(*given: Any) -> Any:
        calls.append(given)
        return function(*given)

    return counted


def _noted(calls: list[int], n: Any) -> Any:
    calls.append(int(n))
    return np.full((4, 4, 3), n, np.uint8)


def _with_errors(items: Any) -> list[Any]:
    out: list[Any] = []
    while True:
        try:
            out.append(_copied(next(items)))
        except StopIteration:
            return out
        except gp.DataError as error:
            out.append(type(error).__name__)


@pytest.mark.parametrize("options", [Options(), Options(device="gpu"), Options(device="cpu")], ids=["", "gpu", "cpu"])
def test_without_a_gpu_explain_says_so_where_the_cache_is(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "gpu_count", lambda: 0)
    monkeypatch.setattr("gpupipe.transform.choose.gpu_count", lambda: 0)
    ds = _on_gpu(_decoded()).with_options(options)
    with pytest.raises(gp.GpupipeError) as error:
        next(iter(ds))

    (step,) = [line for line in str(ds.explain()).splitlines() if line.startswith("    cache ")]

    assert step == f"    cache in the memory of a GPU, which cannot run here: {error.value}"


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda ds: ds.cache(device="tpu"), gp.PlanError, r'cache needs device="gpu", "cpu" or None, got \'tpu\''),
        (lambda ds: ds.cache(device=0), TypeError, r'cache needs device="gpu", "cpu" or None, got 0'),
        (lambda ds: ds.cache("file", device="gpu"), gp.PlanError, "needs a file or device=.*got both"),
        (lambda ds: ds.cache(memory=5), gp.PlanError, 'needs device="gpu" with memory=5'),
        (lambda ds: ds.cache(spill=True), gp.PlanError, "and spill=True, got None"),
        (lambda ds: ds.cache(device="gpu", memory=0), gp.PlanError, "needs memory >= 1, got 0"),
        (lambda ds: ds.cache(device="gpu", spill=1), TypeError, "needs spill=True or False, got 1"),
        (lambda ds: ds.batch(2).cache(device="gpu"), gp.PlanError, "not batches yet.*put it before batch"),
    ],
)
def test_wrong_arguments_are_refused_where_they_are_written(call: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        call(Dataset.range(3))


def test_its_budget_may_be_a_numpy_integer() -> None:
    five: Any = np.int64(5)
    store = Dataset.range(3).cache(device="gpu", memory=five).plan.store  # type: ignore[attr-defined]

    assert type(store.memory) is int
    assert store.memory == 5


def test_elsewhere_its_memory_is_empty() -> None:
    store = GpuCacheStore({("key",): None}, memory=5, spill=True)  # type: ignore[dict-item]

    copy = pickle.loads(pickle.dumps(store))

    assert (copy.filled, copy.memory, copy.spill) == ({}, 5, True)


def test_arrays_of_the_cache_among_others_are_read_where_the_first_was_not_one() -> None:
    pytest.importorskip("nvidia.dali")
    images = [np.full((2, 3, 3), n, np.uint8) for n in range(2)]
    rows = [images[0], CachedArray(images[1])]

    made = tensors_of(library.import_dali().tensors, "ops", rows, Entry("rows", "uint8", 3), 2, {})

    np.testing.assert_array_equal(np.asarray(made[1]), images[1])


def test_a_cached_array_is_no_numpy_array_unasked() -> None:
    cached = CachedArray(np.zeros((2, 3, 3), np.uint8))

    with pytest.raises(TypeError, match=r"use its read\(\)"):
        np.asarray(cached)
    assert np.shape(cached) == (2, 3, 3)
    with pytest.raises(ValueError, match="read-only"):
        cached.read()[0] = 1

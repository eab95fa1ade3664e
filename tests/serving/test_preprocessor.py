"""Preprocessors give what a chain gives for the same images: for any number, from any thread, on any executor."""

from __future__ import annotations

import copy
import gc
import multiprocessing
import os
import pickle
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.cpus import cpu_count
from gpupipe.errors import FunctionError, PlanTypeError
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.spec import flatten
from gpupipe.transform.machine import has_dali
from gpupipe.transform.numpy import NumpyExecutor
from gpupipe.transform.program import BatchFailed, Executor, Feed
from tests.conformance.harness import host

BACKENDS = ["numpy", pytest.param("dali", marks=pytest.mark.skipif(not has_dali(), reason="needs DALI"))]
on_each = pytest.mark.parametrize("backend", BACKENDS)

IMAGES = [encoded(picture(20 + 3 * i, 47 - 2 * i), quality=90) for i in range(11)]
CUT = IMAGES[3][: len(IMAGES[3]) // 2]
"""An image whose header says that it is cut off: found before anything is decoded."""
DAMAGED = IMAGES[4].replace(b"\xff\xdb", b"\xff\xfe")
"""An image with a good header and a good end that cannot be decoded: its quantisation tables are comments."""


def drawn(data: Any) -> Any:
    image = ops.random_resized_crop(ops.decode_image(data, channels=3), (8, 9))
    image = ops.random_flip_left_right(image)
    return {"image": ops.normalize(image, 127.5, 50.0), "again": ops.transpose(image)}


def plain(data: Any) -> Any:
    return ops.resize(ops.decode_jpeg(data, channels=3), (6, 7))


def in_python(data: bytes) -> np.ndarray[Any, Any]:
    import io

    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(data)).resize((5, 4)), np.float32)


def in_the_middle(data: Any) -> Any:
    image = ops.resize(ops.decode_image(data, channels=3), (6, 7))
    brighter = ops.py_function(lambda x: x + 1, [image], spec=gp.TensorSpec((6, 7, 3), "float32", "HWC"))
    return ops.random_flip_left_right(brighter), ops.extract_jpeg_shape(data)


def options(backend: str, **more: Any) -> gp.Options:
    return gp.Options(backend=backend, device="cpu", seed=5, **more)  # type: ignore[arg-type]


def of_chain(fn: Any, images: list[Any], chosen: gp.Options) -> Any:
    return next(iter(gp.Dataset.from_list(images).map(fn).batch(len(images)).with_options(chosen)))


def same(a: Any, b: Any) -> None:
    for one, other in zip(*(flatten(x)[0] for x in (a, b)), strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(host(one), host(other))


@on_each
@pytest.mark.parametrize("fn", [drawn, plain, in_python, in_the_middle])
def test_a_request_of_any_size_gives_the_batch_of_the_chain(backend: str, fn: Any) -> None:
    with gp.preprocessor(fn, options(backend), batch_size=4) as preprocess:
        for count in (11, 1, 2, 4, 5):
            same(preprocess(IMAGES[:count]), of_chain(fn, IMAGES[:count], options(backend)))


@on_each
def test_decoded_images_are_taken_too(backend: str) -> None:
    arrays = [picture(20 + i, 31) for i in range(3)]

    def fn(image: Any) -> Any:
        return ops.random_crop(image, (9, 8, 3))

    with gp.preprocessor(fn, options(backend)) as preprocess:
        same(preprocess(arrays), of_chain(fn, arrays, options(backend)))
        same(preprocess(arrays[0]), of_chain(fn, arrays[:1], options(backend)))
        same(preprocess(np.stack([arrays[0]] * 3)), of_chain(fn, [arrays[0]] * 3, options(backend)))
        gray = [picture(20, 31, 1)]
        with pytest.raises(gp.SpecError, match="random_crop keeps all channels"):
            preprocess(gray)
        same(preprocess(arrays), of_chain(fn, arrays, options(backend)))  # another kind of images changed nothing


def test_paths_and_bytes_like_objects_are_taken_together(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(IMAGES[1])
    more = [bytearray(IMAGES[2]), memoryview(IMAGES[3]), np.bytes_(IMAGES[4])]
    given = [IMAGES[0], tmp_path / "a.jpg", str(tmp_path / "a.jpg"), *more]

    with gp.preprocessor(drawn) as preprocess:
        same(preprocess(given), of_chain(drawn, [IMAGES[i] for i in (0, 1, 1, 2, 3, 4)], gp.Options()))
        same(preprocess(tmp_path / "a.jpg"), of_chain(drawn, [IMAGES[1]], gp.Options()))


def test_equal_requests_draw_equal_numbers_and_start_shifts_them() -> None:
    with gp.preprocessor(drawn) as preprocess:
        whole = preprocess([IMAGES[0]] * 6)

        same(preprocess([IMAGES[0]] * 6), whole)
        same(preprocess([IMAGES[0]] * 2, start=4), {name: leaf[4:] for name, leaf in whole.items()})
        assert len({row.tobytes() for row in host(whole["image"])}) == 6


@on_each
@pytest.mark.parametrize("bad", [CUT, DAMAGED, b"", b"no image"])
def test_a_bad_image_raises_an_error_that_names_it(backend: str, bad: bytes, tmp_path: Path) -> None:
    (tmp_path / "bad.jpg").write_bytes(bad)
    with gp.preprocessor(plain, options(backend)) as preprocess:
        for given in ([*IMAGES[:2], bad, IMAGES[2]], [*IMAGES[:2], tmp_path / "bad.jpg"]):
            name = "images at index 2" if isinstance(given[2], bytes) else r"bad\.jpg at index 2"
            with pytest.raises(gp.DataError, match=name):
                preprocess(given)
        with pytest.raises(gp.DataError, match="index 0"):
            preprocess(bad)
        same(preprocess(IMAGES), of_chain(plain, IMAGES, options(backend)))


def test_a_missing_file_is_a_bad_image(tmp_path: Path) -> None:
    with gp.preprocessor(plain) as preprocess, pytest.raises(FileNotFoundError, match=r"none\.jpg: read: no such file"):
        preprocess([IMAGES[0], tmp_path / "none.jpg"])


@on_each
def test_bad_images_are_left_out_or_replaced_by_the_last_good_one(backend: str) -> None:
    given = [CUT, IMAGES[0], DAMAGED, IMAGES[1], DAMAGED, b"?"]
    with gp.preprocessor(drawn, options(backend, on_error="skip"), batch_size=2) as preprocess:
        left = preprocess.checked(given, start=7)
        rows = preprocess([IMAGES[0]] * 4, start=7)
    chosen = options(backend, on_error="replace")
    with gp.preprocessor(drawn, chosen) as preprocess:
        replaced = preprocess.checked(given)
        same(replaced.batch, of_chain(drawn, given, chosen))
        same(replaced.batch, preprocess([IMAGES[i] for i in (0, 0, 0, 1, 1, 1)]))

    for found in (left, replaced):
        assert found.valid.tolist() == [False, True, False, True, False, False]
        assert sorted(found.errors) == [0, 2, 4, 5] and all("index" in str(e) for e in found.errors.values())
    assert left.batch["image"].shape == (2, 8, 9, 3)
    np.testing.assert_array_equal(left.batch["image"][0], rows["image"][1])  # with its own numbers


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_without_a_good_image_there_is_no_batch(on_error: Any) -> None:
    with gp.preprocessor(plain, gp.Options(on_error=on_error)) as preprocess:
        found = preprocess.checked([CUT, b"?"])
        assert found.batch is None and not found.valid.any() and sorted(found.errors) == [0, 1]
        with pytest.raises(gp.DataError, match="images at index 0"):
            preprocess([CUT, b"?"])


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_images_that_do_not_stack_are_an_error(on_error: Any) -> None:
    fn = lambda data: ops.decode_image(data, channels=3)  # noqa: E731
    with gp.preprocessor(fn, gp.Options(on_error=on_error)) as preprocess:
        with pytest.raises(gp.DataError, match="resize"):
            preprocess(IMAGES[:2])
        assert preprocess(IMAGES[:1]).shape == (1, 20, 47, 3)


@on_each
def test_many_threads_get_the_right_results_at_once(backend: str) -> None:
    wanted = [of_chain(drawn, IMAGES[:count], options(backend)) for count in range(1, 12)]
    bad = []
    with gp.preprocessor(drawn, options(backend), batch_size=4) as preprocess:
        before = threading.active_count()

        def requests(number: int) -> None:
            rng = np.random.default_rng(number)
            for count in rng.integers(1, 12, 12).tolist():
                same(preprocess(IMAGES[:count]), wanted[count - 1])
                try:
                    preprocess([*IMAGES[:count], DAMAGED])
                except gp.DataError as error:
                    bad.append(f"index {count}" in str(error))

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(requests, range(6)))
        executors = preprocess._chain._run.executors
        counts = [shelf.count for shelf in executors._shelves.values()]  # type: ignore[union-attr]

    assert bad == [True] * 72
    assert max(counts) <= max(cpu_count(), 2)
    assert threading.active_count() <= before


@pytest.fixture
def before_numpy(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Feed], object]], None]:
    """Has a function called before NumPy computes a batch."""

    def put(call: Callable[[Feed], object]) -> None:
        compute = NumpyExecutor.run
        monkeypatch.setattr(NumpyExecutor, "run", lambda self, feed: (call(feed), compute(self, feed))[1])

    return put


def test_requests_are_computed_at_the_same_time(before_numpy: Callable[..., None]) -> None:
    both = threading.Barrier(2, timeout=20)

    with gp.preprocessor(plain, options("numpy"), example=IMAGES[0]) as preprocess, ThreadPoolExecutor(2) as pool:
        before_numpy(lambda feed: both.wait())  # fails unless two are inside
        first, second = pool.map(preprocess, [IMAGES[:1], IMAGES[:1]])

    same(first, second)


@on_each
def test_an_interrupted_request_spoils_no_later_one(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with gp.preprocessor(plain, options(backend), example=IMAGES[0]) as preprocess:
        collect = Executor.collect
        monkeypatch.setattr(Executor, "collect", interrupted)
        for given in (IMAGES[:1], IMAGES[:3]) if backend == "dali" else ():
            with pytest.raises(KeyboardInterrupt, match="in the middle"):
                preprocess(given)
        monkeypatch.setattr(Executor, "collect", collect)

        for count in (1, 3):
            same(preprocess(IMAGES[5 : 5 + count]), of_chain(plain, IMAGES[5 : 5 + count], options(backend)))


def test_a_request_over_the_budget_of_the_device_is_computed_in_parts(before_numpy: Callable[..., None]) -> None:
    sizes: list[int] = []
    before_numpy(lambda feed: sizes.append(feed.size))
    with gp.preprocessor(plain, options("numpy", device_memory=7000)) as preprocess:
        same(preprocess(IMAGES), of_chain(plain, IMAGES, options("numpy")))

    assert sum(sizes) == 11 and len(sizes) > 3


def test_the_limit_of_pixels_holds() -> None:
    with gp.preprocessor(plain, gp.Options(max_pixels=1000)) as preprocess:
        assert len(preprocess(IMAGES[0])) == 1
        with pytest.raises(gp.DataError, match=r"index 1.*1000"):
            preprocess([IMAGES[0], IMAGES[9]])


@on_each
def test_close_ends_all_threads_and_requests_are_refused(backend: str) -> None:
    before = set(threading.enumerate())
    preprocess = gp.preprocessor(plain, options(backend), example=IMAGES[0])
    preprocess([*IMAGES, encoded(picture(9, 9), "WEBP")])
    preprocess.close()
    preprocess.close()

    assert set(threading.enumerate()) <= before
    with pytest.raises(gp.ClosedError, match=r"gpupipe\.preprocessor"):
        preprocess(IMAGES)


def test_the_garbage_collector_ends_its_threads() -> None:
    before = set(threading.enumerate())
    preprocess = gp.preprocessor(plain, options("numpy"))
    preprocess(IMAGES)
    started = set(threading.enumerate()) - before
    del preprocess
    gc.collect()
    for thread in started:
        thread.join(20)

    assert started and set(threading.enumerate()) <= before


def test_close_during_a_request_ends_it(before_numpy: Callable[..., None]) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def wait(feed: Feed) -> None:
        inside.set()
        go_on.wait(20)

    before_numpy(wait)
    preprocess = gp.preprocessor(plain, options("numpy"))
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(preprocess, IMAGES)
        assert inside.wait(20)
        preprocess.close()
        go_on.set()
        with pytest.raises(gp.ClosedError, match="closed"):
            request.result(20)


def test_close_while_rows_wait_for_a_thread_ends_the_request(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, chunk = threading.Event(), NumpyExecutor._chunk

    def slow(self: NumpyExecutor, *args: Any) -> None:
        inside.set()
        while not self._closed:
            time.sleep(0.001)
        time.sleep(0.2)  # until what no thread has taken is cancelled
        chunk(self, *args)

    monkeypatch.setattr(NumpyExecutor, "_chunk", slow)
    preprocess = gp.preprocessor(plain, options("numpy", threads=2))
    with ThreadPoolExecutor(1) as pool:
        request = pool.submit(preprocess, IMAGES)
        assert inside.wait(20)
        preprocess.close()
        with pytest.raises(gp.ClosedError, match="closed"):
            request.result(20)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # Python warns of forking with threads: that is the test
@on_each
def test_a_forked_process_starts_anew(backend: str) -> None:
    with gp.preprocessor(plain, options(backend), example=IMAGES[0]) as preprocess:
        wanted = preprocess(IMAGES)
        child = os.fork()
        if not child:
            status = 1
            try:
                status = int(not np.array_equal(preprocess(IMAGES), wanted))
                preprocess.close()
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        same(preprocess(IMAGES), wanted)


def test_results_are_tensors_of_torch() -> None:
    torch = pytest.importorskip("torch")
    with gp.preprocessor(drawn, options("numpy")) as preprocess:
        tensors = preprocess.as_torch()(IMAGES[:3])
        same({name: tensor.numpy() for name, tensor in tensors.items()}, preprocess(IMAGES[:3]))
        half = preprocess.as_torch("cpu", dtype="bfloat16").checked(IMAGES[0]).batch
        assert (half["image"].dtype, half["again"].dtype) == (torch.bfloat16, torch.uint8)
        view = preprocess.as_torch()
        view.close()
        with pytest.raises(gp.ClosedError, match="closed"):
            preprocess(IMAGES)


@on_each
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))], ids=["copy", "pickle"])
def test_a_copy_of_a_preprocessor_starts_anew(backend: str, copied: Any) -> None:
    with gp.preprocessor(drawn, options(backend), batch_size=4, example=IMAGES[0]) as preprocess:
        wanted = preprocess(IMAGES)
        with copied(preprocess) as again:
            preprocess.close()
            same(again(IMAGES), wanted)
    with pytest.raises(gp.ClosedError, match="closed"):
        copied(preprocess)


def _computed(preprocess: Any, queue: Any) -> None:
    queue.put(preprocess(IMAGES[:2])["image"].tolist())


def test_a_preprocessor_is_given_to_a_process_that_is_spawned() -> None:
    processes = multiprocessing.get_context("spawn")
    with gp.preprocessor(drawn, options("numpy"), example=IMAGES[0]) as preprocess:
        queue = processes.SimpleQueue()
        process = processes.Process(target=_computed, args=(preprocess, queue))
        process.start()

        assert queue.get() == preprocess(IMAGES[:2])["image"].tolist()
        process.join(60)
        assert process.exitcode == 0


class Served:
    """A map-style dataset of PyTorch that preprocesses in the workers of its loader."""

    def __init__(self, preprocess: Any) -> None:
        self.preprocess = preprocess

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return self.preprocess(IMAGES[index], start=index)["image"][0]


def test_a_preprocessor_works_in_the_workers_of_a_dataloader() -> None:
    data = pytest.importorskip("torch.utils.data")
    with gp.preprocessor(drawn, options("numpy")) as preprocess:
        served = Served(preprocess.as_torch())
        loader = data.DataLoader(served, num_workers=1, multiprocessing_context="spawn", batch_size=2)

        got = np.concatenate([batch.numpy() for batch in loader])

        same(got, preprocess(IMAGES[:4])["image"])


def test_tensors_on_another_device_are_pickled_without_the_stream_of_this_process() -> None:
    tensors = pytest.importorskip("gpupipe.tensors.torch")
    with gp.preprocessor(drawn, options("numpy")) as preprocess:
        view = preprocess.as_torch("cpu", dtype="bfloat16")
        convert: Any = view._convert
        convert._stream = threading.Lock()  # a stream is of its process, as a lock is

        again = pickle.loads(pickle.dumps(view))

        assert isinstance(again._convert, tensors.ToTorch) and again._convert._stream is None
        same(again(IMAGES[0])["image"].float(), view(IMAGES[0])["image"].float())
        again.close()


def test_a_mistake_in_the_function_is_raised_with_the_example() -> None:
    with pytest.raises(gp.SpecError, match="resize needs"):
        gp.preprocessor(lambda data: ops.resize(data, (3, 3)), example=IMAGES[0])
    assert repr(gp.preprocessor(plain)) == "<Preprocessor of plain()>"


def test_an_error_of_a_python_function_is_that_of_its_image() -> None:
    def fn(data: bytes) -> int:
        return 1 // (len(data) - len(IMAGES[1]))

    with gp.preprocessor(fn) as preprocess, pytest.raises(FunctionError, match=r"index 1.*ZeroDivisionError"):
        preprocess(IMAGES[:3])
    with gp.preprocessor(fn, gp.Options(on_error="skip")) as preprocess:
        assert preprocess.checked([IMAGES[1], IMAGES[0]]).valid.tolist() == [False, True]
        assert preprocess(IMAGES[2:5]).shape == (3,)


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [
        ([], gp.PlanError, "at least one image"),
        ([IMAGES[0], np.zeros((2, 2, 3), np.uint8)], PlanTypeError, "of one kind.*index 1"),
        ([np.zeros((2, 2, 3), np.uint8), np.zeros((2, 2, 3), np.float32)], PlanTypeError, "of one kind.*index 1"),
        ([IMAGES[0], None], PlanTypeError, "got None, at index 1"),
        ([np.array(["a"])], PlanTypeError, "arrays of numbers"),
        ([np.array([b"a" * 999])], PlanTypeError, r"got an array of \|S999, \[1\], at index 0$"),
        ([[b"a", b"b"]], PlanTypeError, "got list of length 2, at index 0$"),
        ({"image": b"a"}, PlanTypeError, "got dict of length 1$"),
        (7, PlanTypeError, "bytes, paths or arrays"),
        ({"image": IMAGES[0]}, PlanTypeError, "bytes, paths or arrays"),
    ],
)
def test_what_is_no_image_is_refused(given: Any, error: type[Exception], text: str) -> None:
    with gp.preprocessor(plain) as preprocess, pytest.raises(error, match=text):
        preprocess(given)


def test_arguments_are_checked() -> None:
    with pytest.raises(PlanTypeError, match="preprocessor needs a function, got int"):
        gp.preprocessor(3)  # type: ignore[arg-type]
    with pytest.raises(PlanTypeError, match=r"preprocessor needs gpupipe\.Options, got dict"):
        gp.preprocessor(plain, {})  # type: ignore[arg-type]
    with pytest.raises(gp.PlanError, match="batch_size >= 1"):
        gp.preprocessor(plain, batch_size=0)
    with gp.preprocessor(plain) as preprocess, pytest.raises(gp.PlanError, match="start >= 0"):
        preprocess(IMAGES, start=-1)


def test_only_the_bad_rows_of_a_batch_are_asked_for_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor may know only that some row is bad."""
    compute = NumpyExecutor.run

    def run(self: NumpyExecutor, feed: Feed) -> list[Any]:
        try:
            return compute(self, feed)
        except BatchFailed as failure:
            raise BatchFailed(failure.text) from None

    monkeypatch.setattr(NumpyExecutor, "run", run)
    with gp.preprocessor(plain, options("numpy", on_error="skip")) as preprocess:
        found = preprocess.checked([IMAGES[0], DAMAGED, IMAGES[1]])

    assert found.valid.tolist() == [True, False, True]
    monkeypatch.setattr(NumpyExecutor, "run", lambda self, feed: compute(self, feed) if feed.size == 1 else fail())
    with gp.preprocessor(plain, options("numpy")) as preprocess, pytest.raises(gp.DeviceError, match="not the data"):
        preprocess(IMAGES)


def interrupted(self: Executor) -> list[Any]:
    raise KeyboardInterrupt("in the middle")


def fail() -> list[Any]:
    raise BatchFailed("of the device")

"""Steps that pass batches on leave them on the GPU; those that look at values say what they copy to the host."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, ops
from gpupipe.spec import TensorSpec, map_structure
from gpupipe.transform.array import on_gpu, to_host
from tests.behaviour.a_gpu import a_gpu, is_same
from tests.transform.tiny import damaged, jpeg

__all__ = ["a_gpu"]

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("a_gpu")]

IMAGES = np.arange(16 * 8 * 8 * 3, dtype=np.int64).reshape(16, 8, 8, 3).astype(np.uint8)
GPU = Options(device="gpu")
HOST = Options(device="cpu", backend="numpy")


def _batches(images: Any = IMAGES, size: int = 4) -> Dataset:
    return Dataset.from_tensor_slices(images).map(ops.flip_left_right).batch(size)


def _rows() -> Dataset:
    return Dataset.from_tensor_slices(IMAGES).map(ops.flip_left_right)


def _pairs() -> Dataset:
    return Dataset.zip((_batches(), _batches()))


def _labelled() -> Dataset:
    return Dataset.zip((_batches(), Dataset.range(16).batch(4)))


def _in_turn() -> Dataset:
    return Dataset.from_tensor_slices([0, 1, 1, 0]).repeat()


def _inner(n: Any) -> Dataset:
    return _batches()


def _by_value(n: Any) -> Dataset:
    return _batches(IMAGES if int(n) else IMAGES[::-1])


def _where(element: Any) -> Any:
    """The same structure, with the place of each leaf in its stead."""
    return map_structure(lambda leaf: "gpu" if on_gpu(leaf) else "host", element)


def _on_host(element: Any) -> Any:
    return map_structure(to_host, element)


PASSING: dict[str, tuple[Callable[[], Dataset], Any]] = {
    "batch": (_batches, "gpu"),
    "take": (lambda: _batches().take(3), "gpu"),
    "slice": (lambda: _batches()[1:3], "gpu"),
    "shard": (lambda: _batches().shard(2, 1), "gpu"),
    "even shard": (lambda: _batches().shard(3, 1, even="drop"), "gpu"),
    "repeat": (lambda: _batches().repeat(2), "gpu"),
    "prefetch": (lambda: _batches().prefetch(2).take(3).prefetch(1), "gpu"),
    "shuffle": (lambda: _batches().shuffle(3, seed=1), "gpu"),
    "ignore_errors": (lambda: _batches().ignore_errors(), "gpu"),
    "assert_cardinality": (lambda: _batches().assert_cardinality(4), "gpu"),
    "zip": (lambda: Dataset.zip((_batches(), _batches(IMAGES[::-1]))), ("gpu", "gpu")),
    "zip beside numbers": (lambda: _labelled(), ("gpu", "host")),
    "zip, further": (lambda: _pairs().skip(1).shuffle(2, seed=1).repeat(2).prefetch(2), ("gpu", "gpu")),
    "enumerate": (lambda: _batches().enumerate(start=3), ("host", "gpu")),
    "concatenate": (lambda: _batches().concatenate(_batches(IMAGES[::-1])), "gpu"),
    "concatenate on the host": (lambda: Dataset.from_tensor_slices(IMAGES).batch(4).concatenate(_batches()), "gpu"),
    "sample": (lambda: Dataset.sample_from_datasets([_batches(), _batches(IMAGES[::-1])], seed=1), "gpu"),
    "choose": (lambda: Dataset.choose_from_datasets([_batches(), _batches(IMAGES[::-1])], _in_turn()), "gpu"),
    "interleave": (lambda: Dataset.range(2).interleave(_inner, cycle_length=2), "gpu"),
    "interleave of what a function makes": (lambda: Dataset.range(2).interleave(_by_value, cycle_length=2), "gpu"),
    "flat_map": (lambda: Dataset.range(2).flat_map(_inner).skip(1), "gpu"),
    "map that picks": (lambda: _labelled().map(lambda x, y: {"y": y, "x": x}).take(3), {"y": "host", "x": "gpu"}),
}


@pytest.mark.parametrize("step", PASSING)
def test_steps_that_pass_batches_on_leave_them_on_the_gpu(step: str) -> None:
    make, where = PASSING[step]

    got = list(make().with_options(GPU))

    expected = list(make().with_options(HOST))
    assert len(got) == len(expected) > 0
    for element, wanted in zip(got, expected, strict=True):
        assert _where(element) == where
        np.testing.assert_equal(_on_host(element), wanted)
    if "on the host" not in step and "function makes" not in step:  # of datasets made while running nothing is said
        assert "stays  on GPU 0" in str(make().with_options(GPU).explain())
        assert not any(finding.rule == "copied_to_host" for finding in make().with_options(GPU).check())


def _decoded(files: Any) -> Dataset:
    return Dataset.from_tensor_slices(files).map(lambda x: ops.resize(ops.decode_jpeg(x, channels=3), (8, 8)))


JOINS: dict[str, Callable[[Dataset, Dataset], Dataset]] = {
    "zip": lambda one, other: Dataset.zip((one, other)),
    "concatenate": lambda one, other: one.concatenate(other),
    "sample": lambda one, other: Dataset.sample_from_datasets([one, other], seed=1),
}


@pytest.mark.parametrize(("join", "on_error"), [("zip", "skip"), ("concatenate", "replace"), ("sample", "skip")])
def test_bad_images_are_left_out_or_replaced_on_the_gpu_as_on_the_host(join: str, on_error: Any) -> None:
    files = [jpeg(n) for n in range(12)]
    files[5] = damaged(files[5])

    one, other = _decoded(files).batch(4), _decoded(files[::-1]).batch(4)
    ds = JOINS[join](one, other).with_options(GPU).with_options(Options(on_error=on_error))
    elsewhere = ds.with_options(Options(device="cpu", backend="dali"))
    got, expected = iter(ds), iter(elsewhere)
    seen: list[Any] = []
    rest: list[Any] = []
    for element, wanted in zip(got, expected, strict=True):
        assert "gpu" in str(_where(element))
        is_same(_on_host(element), wanted)
        np.testing.assert_array_equal(got.valid, expected.valid)
        seen.append(wanted)
        text = json.dumps(got.state_dict())
        with iter(ds) as again:
            again.load_state_dict(json.loads(text))
            rest.append([_on_host(element) for element in again])
    is_same(rest, [seen[n + 1 :] for n in range(len(seen))])
    assert got.left_out == expected.left_out > 0


def _python(x: Any) -> Any:
    return x


def _first(x: Any) -> Any:
    return x[0, 0, 0] % 2 == 0


def _mixed_and_turned() -> Dataset:
    def mixed(x: Any, y: Any) -> Any:
        x, y = ops.mixup(ops.flip_up_down(x), y, 1.0, num_classes=16)
        return ops.flip_left_right(x), y

    return Dataset.from_tensor_slices((IMAGES, np.arange(16))).batch(4).map(mixed)


COPYING: dict[str, tuple[Callable[[], Dataset], str, str]] = {
    "cache": (lambda: _batches().cache(), "768 bytes of each batch to the host, for cache at", "before the map"),
    "cache of what is delivered": (lambda: _rows().cache().batch(4), "192 bytes of each element", "encoded images are"),
    "unbatch": (lambda: _batches().unbatch(), "of each batch to the host, for unbatch at", "make batches once"),
    "python map": (lambda: _batches().map(_python, traced=False), "for map at", "write its function with ops"),
    "ops behind zip": (lambda: _pairs().map(lambda x, y: ops.flip_up_down(x)), "for map at", "put batch after the map"),
    "no deferral": (lambda: _batches().with_options(_without("deferral")), "for map at", "take 'deferral' out"),
    "no fusion": (lambda: _batches().with_options(_without("map_and_batch")), "for batch at", "take 'map_and_batch'"),
    "filter": (lambda: _rows().filter(_first).batch(2), "of each element to the host, for filter at", "put it before"),
    "padded_batch": (lambda: _rows().padded_batch(4), "for padded_batch at", "bring the images to one size"),
    "flat_map": (lambda: _batches().flat_map(Dataset.from_tensor_slices), "for flat_map at", "after it"),
    "py_function": (lambda: _rows().map(_with_python).batch(4), "for ops.py_function at", "ops.dali_function"),
    "ops on rows after mixup": (_mixed_and_turned, "for an op on rows after one on batches at", "after all others"),
    "no batch": (_rows, "for elements that are delivered without a batch at", "end the chain with batch"),
}


def _without(rule: str) -> Options:
    return Options(disabled_rules=(rule,))


def _with_python(x: Any) -> Any:
    return ops.py_function(_python, [ops.flip_up_down(x)], spec=TensorSpec((8, 8, 3), "uint8", "HWC"))


@pytest.mark.parametrize("step", COPYING)
def test_steps_that_look_at_values_say_what_is_copied(step: str) -> None:
    make, copied, instead = COPYING[step]
    ds = make().with_options(GPU)

    assert copied in str(ds.explain())
    (finding,) = [finding for finding in ds.check() if finding.rule == "copied_to_host"]
    assert instead in finding.text and finding.line.startswith(__file__)
    assert str(finding) in str(ds.explain())
    assert not any(f.rule == "copied_to_host" for f in make().with_options(HOST).check())
    np.testing.assert_equal([_on_host(x) for x in ds.take(2)], list(make().with_options(HOST).take(2)))


def test_a_cache_of_images_that_are_augmented_behind_it_is_no_slip() -> None:
    ds = _rows().cache().map(ops.flip_up_down).batch(4).with_options(GPU)

    assert "for cache at" in str(ds.explain())
    assert not any(finding.rule == "copied_to_host" for finding in ds.check())
    assert all(on_gpu(x) for x in ds)


def test_what_one_user_of_a_batch_looks_at_is_copied_for_that_one_alone() -> None:
    batches = _batches()

    ds = Dataset.zip((batches, batches.map(_python, traced=False))).with_options(GPU)

    assert [_where(element) for element in ds] == [("gpu", "host")] * 4

"""mixup and cutmix: torchvision's law on a batch, their numbers, and ops on batches anywhere behind `batch`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import DataError, PlanTypeError, SpecError
from gpupipe.graph.op import Op
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.mixing import beta
from gpupipe.ops._shared.samples import encoded, picture
from gpupipe.ops.cutmix import Cutmix
from gpupipe.ops.mixup import Mixup
from gpupipe.ops.mixup_or_cutmix import MixupOrCutmix
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec
from gpupipe.transform import machine
from gpupipe.transform.array import has_cupy
from tests.ops.refusals import refused
from tests.ops.value_chains import on
from tests.transform.tiny import damaged

BACKENDS = ["numpy"] + ["dali"] * machine.has_dali()
X = np.random.default_rng(0).integers(0, 256, (10, 8, 6, 3), dtype=np.uint8)
Y = np.arange(10) % 4


def files() -> list[bytes]:
    return [encoded(picture(20 + n, 30), quality=95) for n in range(10)]


def mixed(x: Any, share: Any) -> Any:
    """`inpt.roll(1, 0).mul_(1 - lam).add_(inpt.mul(lam))` of torchvision."""
    x = x.astype(np.float32)
    return np.roll(x, 1, 0) * np.float32(1 - share) + x * np.float32(share)


# ---- the ops


def test_mixup_by_hand() -> None:
    images, labels = Mixup(1.0).array(
        np, np.array([10, 20, 40], np.float32).reshape(3, 1, 1, 1), np.eye(3, dtype=np.float32), np.float32(0.75)
    )

    assert images.ravel().tolist() == [17.5, 17.5, 35.0]  # 0.75 of its own and 0.25 of the one before
    assert labels.tolist() == [[0.75, 0, 0.25], [0.25, 0.75, 0], [0, 0.25, 0.75]]


@pytest.mark.parametrize("layout", ["HWC", "CHW"])
def test_cutmix_by_hand(layout: Any) -> None:
    x = np.arange(2, dtype=np.uint8).reshape(2, 1, 1, 1) + np.zeros((2, 3, 4, 1), np.uint8)
    x = x if layout == "HWC" else x.transpose(0, 3, 1, 2)

    images, labels = Cutmix(1.0, layout=layout).array(
        np, x, np.eye(2, dtype=np.float32), np.array([1, 0, 3, 2]), np.float32(1 - 4 / 12)
    )

    first = [[0, 0, 0, 0], [1, 1, 0, 0], [1, 1, 0, 0]]
    np.testing.assert_array_equal(images.reshape(2, 3, 4), [first, 1 - np.array(first)])
    np.testing.assert_allclose(labels, [[2 / 3, 1 / 3], [1 / 3, 2 / 3]], rtol=1e-6)
    assert images.dtype == labels.dtype == np.float32
    assert x.ravel().tolist() == [0] * 12 + [1] * 12  # the input is as it was


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.5, 1.0, 2.0, 8.0, 1000.0])
def test_shares_are_of_a_beta_distribution(alpha: float) -> None:
    count = 20_000

    share = beta(BatchRng(1, 0, np.arange(count, dtype=np.uint64), 5), alpha)

    assert share.min() >= 0
    assert share.max() <= 1
    share = share.round(12)  # what is nearer to 0 is 0: it is a difference of numbers near 1/2
    other = np.random.default_rng(7).beta(alpha, alpha, count).round(12)  # NumPy's own, by another method
    grid = np.concatenate([share, other])
    a, b = (np.searchsorted(np.sort(x), grid, "right") / count for x in (share, other))
    assert np.abs(a - b).max() < 2.47 * math.sqrt(2 / count)  # Kolmogorov-Smirnov at 1e-5
    # its moments: mean 1/2 and variance 1 / (4 (2 alpha + 1)), within 5 standard errors of the mean
    deviation = math.sqrt(1 / (4 * (2 * alpha + 1)))
    assert abs(share.mean() - 0.5) < 5 * deviation / math.sqrt(count)
    assert abs(share.var() / deviation**2 - 1) < 0.05


def test_eager_calls_take_a_batch() -> None:
    images, labels = ops.mixup(X, Y, 1.0, num_classes=4, seed=1)
    share = labels[1, 1]

    np.testing.assert_array_equal(images, mixed(X, share))
    np.testing.assert_array_equal(labels, mixed(np.eye(4)[Y], share))
    again, _ = ops.mixup(X, Y, 1.0, num_classes=4, seed=1)
    np.testing.assert_array_equal(images, again)
    nchw = np.ascontiguousarray(X.transpose(0, 3, 1, 2))
    for op in (ops.mixup, ops.cutmix):
        one, two = op(X, Y, num_classes=4, seed=2), op(nchw, Y, num_classes=4, seed=2, layout="CHW")
        np.testing.assert_array_equal(one[0], two[0].transpose(0, 2, 3, 1))
        np.testing.assert_array_equal(one[1], two[1])


def test_labels_can_be_vectors_already() -> None:
    smooth = np.random.default_rng(0).random((10, 5)).astype(np.float32)

    _, labels = ops.mixup(X, smooth, 1.0, seed=3)
    _, hot = ops.mixup(X, Y, 1.0, num_classes=4, seed=3)

    np.testing.assert_array_equal(labels, mixed(smooth, hot[1, 1]))


@pytest.mark.gpu
@pytest.mark.skipif(not (has_cupy() and machine.gpu_count()), reason="needs an NVIDIA GPU and CuPy")
@pytest.mark.parametrize("case", [*Mixup.cases(), *Cutmix.cases(), *MixupOrCutmix.cases()], ids=str)
def test_cupy_gives_what_numpy_gives(case: Any) -> None:
    import cupy

    images, labels = case.inputs
    params = case.op.draw(BatchRng(1, 0, np.zeros(1, np.uint64), 5), np.array([images.shape[1:3]], np.int32))
    expected = case.op.array(np, images, labels, *(param[0] for param in params))
    got = case.op.array(cupy, cupy.asarray(images), cupy.asarray(labels), *(param[0] for param in params))

    for a, b in zip(got, expected, strict=True):
        np.testing.assert_allclose(a.get(), b, rtol=3e-7, atol=3e-5)  # a sum of products may be rounded once


# ---- behind batch


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", ["pending", "cached", "raw"])
def test_wherever_the_batch_comes_from_the_numbers_are_those_of_its_first_row(backend: Any, how: str) -> None:
    ds = gp.Dataset.from_tensor_slices((X, Y))
    if how != "raw":
        ds = ds.map(lambda x, y: (ops.flip_left_right(x), y))
    ds = ds.batch(4)
    if how == "cached":
        ds = ds.cache()
    source = X if how == "raw" else X[:, :, ::-1]

    got = list(ds.map(lambda x, y: ops.cutmix(x, y, num_classes=4, seed=5)).with_options(on(backend)))

    assert [len(x) for x, _ in got] == [4, 4, 2]
    for n, (x, y) in enumerate(got):
        before, label = source[4 * n : 4 * n + 4].astype(np.float32), np.eye(4, dtype=np.float32)[Y[4 * n : 4 * n + 4]]
        other = np.roll(before, 1, 0)
        pasted = (x != before).any(axis=(0, 3))
        assert (x == np.where(pasted[:, :, None], other, before)).all()
        share = 1 - pasted.mean()
        np.testing.assert_allclose(y, share * label + (1 - share) * np.roll(label, 1, 0), atol=0.05)


def test_numbers_are_the_same_on_every_executor_and_in_every_batch_that_begins_alike() -> None:
    ds = gp.Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (ops.flip_left_right(x), y))

    def first(backend: Any, size: int) -> Any:
        mixing = ds.batch(size).map(lambda x, y: ops.mixup(x, y, 1.0, num_classes=4))
        return next(iter(mixing.with_options(on(backend))))[1][1, 1]

    assert len({float(first(backend, size)) for backend in BACKENDS for size in (2, 5, 10)}) == 1


def test_epochs_and_passes_draw_anew() -> None:
    ds = gp.Dataset.from_tensor_slices((X, Y)).batch(10).map(lambda x, y: ops.mixup(x, y, 1.0, num_classes=4))

    shares = [float(y[1, 1]) for _, y in ds.repeat(3)] + [float(next(iter(ds.iterator(epoch=1)))[1][1, 1])]

    assert len(set(shares)) == 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_ops_on_rows_may_stand_before_between_and_behind(backend: Any) -> None:
    def chain(x: Any, y: Any) -> Any:
        x, y = ops.mixup(ops.flip_up_down(x), y, 1.0, num_classes=4, seed=1)
        x = ops.random_flip_left_right(x, p=1.0)
        x, y = ops.cutmix(x, y * 0.5, seed=2)
        return {"image": ops.transpose(ops.normalize(x, 10.0, 4.0)), "label": y + 1.0, "mixed": x}

    source = gp.Dataset.from_tensor_slices((X, Y))
    first = source.batch(5).map(lambda x, y: ops.mixup(ops.flip_up_down(x), y, 1.0, num_classes=4, seed=1))
    # Images of their own number show what the window of the second op is.
    numbers = np.arange(10, dtype=np.uint8)[:, None, None, None] + np.zeros_like(X)
    second = gp.Dataset.from_tensor_slices((numbers, Y)).batch(5)
    second = second.map(lambda x, y: ops.cutmix(x, y, num_classes=4, seed=2)).with_options(on("numpy"))

    got = list(source.batch(5).map(chain).with_options(on(backend)))

    assert len(got) == 2
    for n, (element, (x, y), (number, _)) in enumerate(zip(got, first.with_options(on("numpy")), second, strict=True)):
        pasted = number[1:2] != 5 * n + 1
        flipped, label = x[:, :, ::-1], y * np.float32(0.5)
        expected = np.where(pasted, np.roll(flipped, 1, 0), flipped)
        np.testing.assert_array_equal(element["mixed"], expected)
        np.testing.assert_allclose(element["image"], (expected.transpose(0, 3, 1, 2) - 10) / 4, atol=1e-5)
        share = 1 - pasted[..., 0].mean()
        np.testing.assert_allclose(element["label"], share * label + (1 - share) * np.roll(label, 1, 0) + 1, atol=1e-6)
    assert str(source.batch(5).map(chain).with_options(on(backend)).explain()).count("as array code (NumPy)") == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_nodes_around_a_mixing_map_change_nothing(backend: Any) -> None:
    def mixing(ds: Any) -> Any:
        return ds.map(lambda x, y: ops.mixup(x, y, 1.0, num_classes=4))

    ds = gp.Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (ops.flip_left_right(x), y)).batch(2)
    whole = list(mixing(ds).with_options(on(backend)))
    variants: dict[str, tuple[Callable[[], Any], list[int]]] = {
        "skip below": (lambda: mixing(ds.skip(2)), [2, 3, 4]),
        "skip above": (lambda: mixing(ds).skip(2), [2, 3, 4]),
        "prefetch and take": (lambda: mixing(ds.prefetch(2)).take(3).prefetch(2), [0, 1, 2]),
        "shard": (lambda: mixing(ds).shard(2, 1), [1, 3]),
        "enumerate": (lambda: mixing(ds).enumerate().map(lambda n, element: element), [0, 1, 2, 3, 4]),
        "python map": (lambda: mixing(ds).map(_as_it_is, traced=False), [0, 1, 2, 3, 4]),
        "unbatch": (lambda: mixing(ds).unbatch().batch(2), [0, 1, 2, 3, 4]),
    }

    for name, (make, expected) in variants.items():
        got = list(make().with_options(on(backend)))
        assert len(got) == len(expected), name
        for (x, y), n in zip(got, expected, strict=True):
            np.testing.assert_array_equal(x, whole[n][0], err_msg=name)
            np.testing.assert_array_equal(y, whole[n][1], err_msg=name)


def _as_it_is(x: Any, y: Any) -> Any:
    return np.array(x), np.array(y)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_of_any_size_is_taken_apart_again(backend: Any) -> None:
    x = np.random.default_rng(0).integers(0, 256, (150, 4, 3, 3), dtype=np.uint8)
    short = gp.Dataset.from_tensor_slices(x[:3]).batch(3)
    ds = short.concatenate(gp.Dataset.from_tensor_slices(x[3:]).batch(100))  # the first batch is not the largest

    got = list(ds.map(lambda i: ops.flip_left_right(i)).with_options(on(backend)))

    assert [len(images) for images in got] == [3, 100, 47]
    np.testing.assert_array_equal(np.concatenate(got), x[:, :, ::-1])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_batch_without_its_bad_images_is_mixed(backend: Any) -> None:
    data = files()
    data[0] = data[0][:40]  # its header says that it is cut short
    data[5] = damaged(data[5])  # what only the decoder sees
    ds = (
        gp.Dataset.from_tensor_slices((data, np.arange(10)))
        .map(lambda b, y: (ops.resize(ops.decode_jpeg(b, 3), (9, 9)), y))
        .batch(3)
        .map(lambda x, y: ops.mixup(x, y, 1.0, num_classes=10))
    )

    got = list(ds.with_options(on(backend, on_error="skip")))

    rows = np.concatenate([y for _, y in got])
    np.testing.assert_allclose(rows.sum(axis=1), 1, atol=1e-6)
    assert [len(x) for x, _ in got] == [3, 3, 2]
    assert (rows.sum(axis=0) > 0).tolist() == [n not in (0, 5) for n in range(10)]


@pytest.mark.parametrize("backend", BACKENDS)
def test_explain_says_where_array_code_runs(backend: Any) -> None:
    ds = gp.Dataset.from_tensor_slices((files(), Y)).map(lambda b, y: (ops.resize(ops.decode_jpeg(b, 3), (9, 9)), y))
    mixing = ds.batch(4).map(lambda x, y: ops.mixup(x, y, num_classes=4))

    text = str(mixing.with_options(on(backend)).explain())
    raw = gp.Dataset.from_tensor_slices((X, Y)).batch(4).map(lambda x, y: ops.mixup(x, y, num_classes=4))

    assert "mixup(alpha=0.2) -> float32[9,9,3]{HWC} and float32[4] as array code (NumPy)" in text
    assert "gives  float32[4]" in text
    assert "array code on the host: mixup" in str(raw.with_options(on(backend)).explain())


def test_before_batch_it_is_a_plan_error_that_says_where_to_put_it() -> None:
    ds = gp.Dataset.from_tensor_slices((X, Y))
    for op in (ops.mixup, ops.cutmix):
        with pytest.raises(SpecError, match=r"needs all rows of a batch at once, got one element, at .*after batch"):
            ds.map(lambda x, y, op=op: op(x, y, num_classes=4))


test_mistakes_are_plan_errors = refused(
    (PlanTypeError, "mixup needs num_classes", lambda: ops.mixup(X, Y)),
    (SpecError, "labels of num_classes=3 numbers", lambda: ops.mixup(X, np.eye(4, dtype=np.float32)[Y], num_classes=3)),
    (SpecError, "cutmix needs a vector of float32 as the label", lambda: ops.cutmix(X, np.eye(4)[Y])),
    (SpecError, r"alpha from 0\.001", lambda: ops.cutmix(X, Y, 0, num_classes=4)),
    (SpecError, "mixup needs an image", lambda: ops.mixup(X[0, 0], Y[:6], num_classes=4)),
    (SpecError, "batches of one length", lambda: ops.mixup(X, Y[:6], num_classes=4)),
)


# ---- ops of a user


@dataclass(frozen=True, slots=True)
class Centred(Op):
    """Subtract the mean of the batch."""

    rows: ClassVar[Literal["each", "batch"]] = "batch"

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return xs[0].require("centred", layout="HWC", dtype="float32")

    def array(self, xp: Any, *args: Any) -> Any:
        (x,) = args
        if x.max() > 1e6:
            raise ValueError("far too bright")
        return x - x.mean(axis=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_op_of_a_user_can_need_the_batch(backend: Any) -> None:
    ds = gp.Dataset.from_tensor_slices(X).map(lambda x: ops.cast(ops.flip_left_right(x), "float32")).batch(5)

    for n, x in enumerate(ds.map(lambda x: apply(Centred(), x)).with_options(on(backend))):
        source = X[5 * n : 5 * n + 5, :, ::-1].astype(np.float32)
        np.testing.assert_array_equal(x, source - source.mean(axis=0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_failure_in_array_code_is_an_error_of_its_batch(backend: Any) -> None:
    x = X.astype(np.float32)
    x[3] = 1e9
    ds = gp.Dataset.from_tensor_slices(x).map(ops.flip_left_right).batch(2).map(lambda x: apply(Centred(), x))

    with pytest.raises(DataError, match="centred: ValueError: far too bright"):
        list(ds.with_options(on(backend)))
    rest = list(ds.ignore_errors().with_options(on(backend)))

    assert len(rest) == 4

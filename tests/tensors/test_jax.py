"""Arrays of JAX: on one device, on two devices of a process, and of two processes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from tests.tensors.launch import ON_JAX, expected, shared
from tests.tensors.programs import chain, converted

jax = pytest.importorskip("jax")

pytestmark = pytest.mark.timeout(240)  # programs that import a framework, two at a time


def test_batches_are_arrays_of_jax_with_the_same_values() -> None:
    for found, wanted in zip(chain().as_jax(), chain().iterator(epoch=0), strict=True):
        assert isinstance(found[0], jax.Array)
        assert all(map(np.array_equal, map(np.asarray, found), wanted))


def test_floats_can_have_another_type_and_bytes_stay_bytes() -> None:
    ds = gp.Dataset.from_tensor_slices((np.ones((2, 3), np.float32), np.array([b"a", b"b"], object))).batch(2)
    ((values, found),) = ds.as_jax(dtype="bfloat16")

    assert (values.dtype, values.shape) == (jax.numpy.bfloat16, (2, 3))
    assert found.tolist() == [b"a", b"b"]


def test_arrays_go_to_a_device_or_a_sharding_of_this_process() -> None:
    device = jax.devices()[-1]

    inputs, _ = next(iter(chain().as_jax(device)))

    assert inputs.devices() == {device}


@pytest.mark.parametrize("backend", ["dali", "numpy"])
def test_a_batch_of_a_stage_is_shared_with_jax_on_the_cpu_and_stays_as_it_is(backend: Literal["dali", "numpy"]) -> None:
    if backend == "dali":
        pytest.importorskip("nvidia.dali")
    pixels = np.random.default_rng(0).integers(0, 256, (60, 9, 7, 3), np.uint8)

    def transform(image: Any) -> Any:
        return ops.rot90(image), ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD)

    ds = gp.Dataset.from_tensor_slices(pixels).map(transform).batch(3).prefetch(2)
    ds = ds.with_options(gp.Options(device="cpu", backend=backend))
    loader = ds.as_jax(jax.devices("cpu")[0])
    arrays = converted(loader)
    batches = list(loader)

    places = [array.unsafe_buffer_pointer() for batch in batches for array in batch]
    assert places == [array.ctypes.data for array in arrays]
    for given, wanted in zip(batches, ds.iterator(epoch=0), strict=True):
        assert all(map(np.array_equal, given, wanted))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"dtype": "int32"}, "as_jax needs a floating-point dtype, such as 'bfloat16', got "),
        ({"dtype": "nothing"}, "as_jax needs a floating-point dtype, such as 'bfloat16', got 'nothing'"),
        ({"device": 1, "sharding": 2}, "as_jax needs a device or a sharding, got both"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((TypeError, ValueError), match=words):
        chain().as_jax(**arguments)


def test_two_processes_make_one_array(tmp_path_factory: pytest.TempPathFactory) -> None:
    every = expected(0)[:10]
    for rank, one in enumerate(shared(tmp_path_factory, "on_jax", ranks=2, variables=ON_JAX)):
        assert one["own"] == every[rank::2]
        assert one["sums"] == [sum(a) + sum(b) for a, b in zip(every[::2], every[1::2], strict=True)]
        assert one["devices"] == 4


def test_a_sharding_needs_batches_of_one_size_which_is_said_before_the_first() -> None:
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    short = gp.Dataset.range(10).batch(4)

    with pytest.raises(
        gp.PlanError, match=r"as_jax\(sharding=\) needs batches of one size, got batch\(4\) at .*may be short"
    ):
        short.prefetch(1).as_jax(sharding=sharding)
    for full in (gp.Dataset.range(10).batch(4, drop_remainder=True), gp.Dataset.range(12).batch(4)):
        assert [len(batch) for batch in full.as_jax(sharding=sharding)] == [4] * len(full)

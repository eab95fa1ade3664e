"""Keras 3 takes a dataset on each of its backends; TensorFlow takes it as a tf.data.Dataset."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from tests.tensors.launch import ON_JAX, expected, run, shared

pytestmark = pytest.mark.timeout(240)  # programs that import a framework, two at a time


@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
def test_fit_takes_an_epoch_for_each_of_its_own(backend: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("keras")
    pytest.importorskip(backend)

    (found,) = shared(tmp_path_factory, "on_keras", variables={"KERAS_BACKEND": backend, **ON_JAX})

    assert all(one == expected(0)[: len(one)] for one in found["train"] if len(one) < 11)
    assert found["steps"] == [11, 11, 11]
    assert [one for one in found["test"] if len(one) == 11] == [expected(number) for number in range(3)]
    assert found["finite"]
    assert found["rows"] == [44, 2]
    assert len(found["parts"][-1]) >= 12  # two epochs of 6 steps from one pass
    for count, fits in found["few"].items():
        orders = [_few(int(count), epoch) for epoch in range(30)]
        for epochs in fits:  # a look at all batches is an epoch, too, so there may be others between them
            numbers = [orders.index(one) for one in epochs]
            assert numbers == sorted(set(numbers)) and len(numbers) == 3
    assert len(found["unknown"]) == 10
    assert "a dataset that ended after 11: write assert_cardinality(11) at its end" in found["ended"]


def _few(count: int, epoch: int) -> list[list[int]]:
    ds = gp.Dataset.range(20 * count).shuffle(gp.ALL).batch(20)
    return [batch.tolist() for batch in ds.iterator(epoch=epoch)]


def test_two_ranks_train_a_keras_model_on_their_shards_and_resume() -> None:
    pytest.importorskip("keras")
    pytest.importorskip("torch")

    found = run("on_keras_ranks", ranks=2, KERAS_BACKEND="torch")

    for rank, one in enumerate(found):
        assert one["batches"] == expected(0)[rank:10:2]
        assert one["rest"] == one["batches"][2:]
        assert one["own"]  # no copy
    assert found[0]["weights"] == found[1]["weights"] == found[0]["resumed"] == found[1]["resumed"]


@pytest.fixture
def tf() -> Any:
    return pytest.importorskip("tensorflow")


def test_tensorflow_gets_the_same_elements_types_and_number(tf: Any) -> None:
    pixels = np.random.default_rng(0).random((10, 3, 2), np.float32)
    names = np.array([b"n%d" % i for i in range(10)], object)
    ds = gp.Dataset.from_tensor_slices({"image": pixels, "name": names}).shuffle(gp.ALL).batch(4)

    theirs = ds.as_tf()

    pixels_spec, name_spec = tf.TensorSpec((None, 3, 2), tf.float32), tf.TensorSpec((None,), tf.string)
    assert theirs.element_spec == {"image": pixels_spec, "name": name_spec}
    assert int(theirs.cardinality()) == 3
    for epoch in range(2):
        for found, wanted in zip(theirs.as_numpy_iterator(), ds.iterator(epoch=epoch), strict=True):
            assert np.array_equal(found["image"], wanted["image"])
            assert found["name"].tolist() == wanted["name"].tolist()


@pytest.mark.parametrize("count", [1, 2, 9])
def test_each_iteration_of_tensorflow_is_the_next_epoch_also_over_some_elements(tf: Any, count: int) -> None:
    ds = gp.Dataset.range(9).shuffle(gp.ALL)
    some = ds.as_tf().take(count)

    for epoch in range(3):
        assert [int(x) for x in some] == [int(x) for x in ds.iterator(epoch=epoch)][:count]


def test_ragged_leaves_stay_ragged_in_tensorflow(tf: Any) -> None:
    spec = gp.TensorSpec((None,), "int64")
    ds = gp.Dataset.from_tensor_slices(np.arange(1, 5)).map(lambda n: np.arange(n), spec=spec)

    (found,) = ds.ragged_batch(4).as_tf()

    assert isinstance(found, tf.RaggedTensor)
    assert found.to_list() == [[0], [0, 1], [0, 1, 2], [0, 1, 2, 3]]


def test_a_type_that_is_unknown_before_the_chain_runs_is_refused(tf: Any) -> None:
    with pytest.raises(gp.PlanError, match=r"as_tf needs the dtype of every leaf.*map\(\.\.\., spec=\.\.\.\)"):
        gp.Dataset.range(3).map(lambda x: str(x)).as_tf()


def test_an_endless_dataset_is_endless_in_tensorflow(tf: Any) -> None:
    assert int(gp.Dataset.range(3).repeat().as_tf().cardinality()) == tf.data.INFINITE_CARDINALITY


@pytest.mark.parametrize("again", [1, 2])
def test_a_program_ends_while_tensorflow_reads_ahead(again: int) -> None:
    """Without `at_exit` three of four such programs do not end; tf.data itself cannot be told to wait."""
    pytest.importorskip("tensorflow")

    assert run("on_exit") == [{"rank": 0, "first": 0}]

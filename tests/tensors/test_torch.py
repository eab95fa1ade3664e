"""Tensors of PyTorch, and the trainers that take a DataLoader: torchdata, Lightning, Accelerate."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from tests.tensors.launch import expected, shared
from tests.tensors.programs import converted

torch = pytest.importorskip("torch")

from gpupipe.tensors.torch import ToTorch  # noqa: E402  # it imports PyTorch

pytestmark = pytest.mark.timeout(240)  # programs that import a framework, two at a time


def images() -> gp.Dataset:
    pixels = np.random.default_rng(0).random((24, 6, 5, 3), np.float32)
    labels = np.arange(24)
    return gp.Dataset.from_tensor_slices({"image": pixels, "label": labels}).shuffle(gp.ALL, seed=1)


def test_a_batch_on_the_host_is_shared_not_copied() -> None:
    loader = images().batch(4).as_torch()
    arrays = converted(loader)

    batch = next(iter(loader))

    assert [tensor.data_ptr() for tensor in batch.values()] == [array.ctypes.data for array in arrays]


def test_the_numbered_device_of_the_cpu_is_no_reason_to_copy() -> None:
    array = np.zeros((2, 3), np.float32)

    assert ToTorch(torch.device("cpu", 0), None, True)(array).data_ptr() == array.ctypes.data


def test_tensors_have_the_types_and_values_of_the_arrays() -> None:
    ds = images().batch(5)
    loader = ds.as_torch()

    for tensors, arrays in zip(loader, ds.iterator(epoch=0), strict=True):
        assert list(tensors) == list(arrays)
        for name, tensor in tensors.items():
            assert tensor.dtype == torch.from_numpy(arrays[name]).dtype
            assert np.array_equal(tensor.numpy(), arrays[name])


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"])
def test_numbers_of_each_type_become_tensors_of_it(dtype: str) -> None:
    (tensor,) = gp.Dataset.from_tensors(np.ones((2, 3), dtype)).as_torch()

    assert tensor.dtype == getattr(torch, dtype)
    assert tensor.tolist() == np.ones((2, 3), dtype).tolist()


def test_an_element_that_is_read_only_is_copied_so_that_writing_harms_nothing() -> None:
    source = np.zeros((2, 3), np.float32)
    ds = gp.Dataset.from_tensor_slices(source)

    for tensor in ds.as_torch():
        tensor += 1

    assert source.sum() == 0
    (scalar,) = gp.Dataset.range(1).as_torch()
    assert (scalar.shape, scalar.dtype, int(scalar)) == (torch.Size([]), torch.int64, 0)


def test_what_is_no_number_stays_what_it_is() -> None:
    ds = gp.Dataset.from_tensor_slices((np.array([b"a", b"b"], object), np.arange(2))).batch(2)

    ((names, numbers),) = ds.as_torch()

    assert names.tolist() == [b"a", b"b"]
    assert numbers.tolist() == [0, 1]
    (ragged,) = gp.Dataset.from_tensors(gp.Ragged([1, 2, 3], [0, 1, 3])).as_torch()
    assert isinstance(ragged, gp.Ragged)


def test_floats_can_have_another_type_and_integers_keep_theirs() -> None:
    for dtype in ("bfloat16", torch.bfloat16):
        batch = next(iter(images().batch(4).as_torch(dtype=dtype)))
        assert (batch["image"].dtype, batch["label"].dtype) == (torch.bfloat16, torch.int64)


def test_a_dtype_of_images_leaves_soft_labels_and_boxes_alone() -> None:
    def made(image: Any, label: Any, box: Any) -> Any:
        return ops.normalize(image, mean=ops.IMAGENET_MEAN, std=ops.IMAGENET_STD), label, box

    rows = np.zeros((4, 8, 8, 3), np.uint8), np.full((4, 5), 0.2, np.float32), np.zeros((4, 2, 4), np.float32)
    (batch,) = gp.Dataset.from_tensor_slices(rows).map(made).batch(4).as_torch(dtype="bfloat16")

    assert [leaf.dtype for leaf in batch] == [torch.bfloat16, torch.float32, torch.float32]


def test_tensors_go_to_a_device() -> None:
    batch = next(iter(images().batch(4).as_torch(device="meta")))

    assert {tensor.device.type for tensor in batch.values()} == {"meta"}


@pytest.mark.parametrize(
    ("arguments", "kind", "words"),
    [
        ({"device": "gpu"}, gp.PlanError, "as_torch needs a device such as 'cpu', 'cuda' or 'cuda:1', got 'gpu'"),
        ({"device": 1.5}, gp.PlanError, "as_torch needs a device"),
        ({"dtype": "int32"}, TypeError, "as_torch needs a floating-point dtype, such as 'bfloat16', got 'int32'"),
        ({"dtype": "bf16"}, TypeError, "as_torch needs a floating-point dtype"),
    ],
)
def test_a_wrong_argument_is_refused_at_once(arguments: dict[str, Any], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        images().as_torch(**arguments)


def test_a_gpu_that_pytorch_does_not_find_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)

    with pytest.raises(gp.DeviceError, match="needs a GPU that PyTorch can use, found none"):
        images().as_torch("cuda")


def test_it_is_a_dataloader_whose_elements_are_batches() -> None:
    loader = images().batch(4).as_torch()

    assert isinstance(loader, torch.utils.data.DataLoader)
    assert isinstance(loader.dataset, torch.utils.data.IterableDataset)
    elements: Any = loader.dataset
    assert (len(loader), len(elements), loader.batch_size) == (6, 6, None)


def test_an_error_of_an_element_is_raised_once_and_the_loop_can_go_on() -> None:
    def fail(x: Any) -> Any:
        if x == 3:
            raise ValueError("three")
        return x

    items = iter(gp.Dataset.range(6).map(fail, spec=gp.TensorSpec((), "int64")).as_torch())
    assert [int(next(items)) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(gp.DataError, match="three"):
        next(items)
    assert [int(x) for x in items] == [4, 5]


@pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")  # torchdata calls it
def test_torchdata_saves_and_restores_its_position() -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader").StatefulDataLoader
    ds = images().batch(4)
    loader = stateful(ds.as_torch().dataset, batch_size=None)
    items = iter(loader)
    list(islice(items, 2))
    state = json.loads(json.dumps(loader.state_dict()))

    again = stateful(images().batch(4).as_torch().dataset, batch_size=None)
    again.load_state_dict(state)

    wanted = [batch["label"].tolist() for batch in ds.iterator(epoch=0)][2:]
    assert [batch["label"].tolist() for batch in again] == wanted


@pytest.mark.parametrize("ranks", [1, 2])
def test_accelerate_gives_each_rank_its_shard_and_resumes(ranks: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    pytest.importorskip("accelerate")

    found = shared(tmp_path_factory, "on_accelerate", ranks=ranks)

    every = expected(0)
    wrapped = [*every, *every[: -len(every) % ranks]]
    assert [one["batches"] for one in found] == [wrapped[rank::ranks] for rank in range(ranks)]
    warned = [] if ranks == 1 else [True] * 2  # when it saves and loads
    for one in found:
        assert one["ends"] == [False] * (len(one["batches"]) - 1) + [True]
        assert one["own"]  # no copy
        assert one["rest"] == one["batches"][3:]
        assert one["next"] == [*expected(1), *expected(1)[: -len(every) % ranks]][one["rank"] :: ranks]
        assert ["one file for the loaders of all ranks" in words for words in one["warnings"]] == warned
        assert (one["length"], one["device"], one["steps"]) == (len(one["batches"]), "cpu", len(one["batches"]))


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")  # also where it is asked for
def test_torch_distributed_checkpoint_saves_and_restores_a_loader(tmp_path: Path) -> None:
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    items, other = images().batch(4).as_torch(), images().batch(4).as_torch()
    loop = iter(items)
    assert len(list(islice(loop, 2))) == 2

    checkpoint.save({"loader": items}, checkpoint_id=tmp_path, no_dist=True)
    checkpoint.load({"loader": other}, checkpoint_id=tmp_path, no_dist=True)

    assert [batch["label"].tolist() for batch in other] == [batch["label"].tolist() for batch in loop]


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled:UserWarning")
def test_a_loader_whose_state_does_not_fit_goes_on_in_a_checkpoint_of_torch_distributed(tmp_path: Path) -> None:
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    items = images().batch(4).as_torch()
    assert len(list(islice(items, 2))) == 2
    checkpoint.save({"loader": items}, checkpoint_id=tmp_path, no_dist=True)

    other = images().batch(2)
    with pytest.raises(Exception, match=r"batch\(4\).*strict_states=False"):
        checkpoint.load({"loader": other.as_torch()}, checkpoint_id=tmp_path, no_dist=True)
    now = other.with_options(gp.Options(strict_states=False)).as_torch()
    checkpoint.load({"loader": now}, checkpoint_id=tmp_path, no_dist=True)

    whole = [batch["label"].tolist() for batch in images().batch(2).iterator(epoch=0)]
    assert [batch["label"].tolist() for batch in now] == whole[2:]


def _labels(items: Any, queue: Any) -> None:
    queue.put([batch["label"].tolist() for batch in items])


def test_a_loader_is_given_to_a_process_that_is_spawned() -> None:
    processes = torch.multiprocessing.get_context("spawn")
    queue, items = processes.SimpleQueue(), images().batch(4).as_torch()
    process = processes.Process(target=_labels, args=(items, queue))
    process.start()

    assert queue.get() == [batch["label"].tolist() for batch in items]
    process.join(60)
    assert process.exitcode == 0


def test_libraries_that_ask_for_a_length_find_one_only_where_it_is_known() -> None:
    known, unknown = images().batch(4).as_torch(), images().filter(lambda row: row["label"] > 1).batch(4).as_torch()

    of_known: Any = known.dataset
    assert hasattr(of_known, "__len__") and len(of_known) == len(known)
    assert not hasattr(unknown.dataset, "__len__")


def test_a_loader_takes_no_argument_of_a_dataloader_that_would_change_its_batches() -> None:
    from gpupipe.tensors.torch import TorchLoader

    made = TorchLoader(images().batch(4), batch_size=None, sampler=None, num_workers=2)
    assert [len(list(made)), len(list(made))] == [len(made)] * 2
    wrong: list[dict[str, Any]] = [{"sampler": [1]}, {"colour": 1}]
    for given in wrong:
        with pytest.raises(TypeError, match="has no argument"):
            TorchLoader(images().batch(4), **given)

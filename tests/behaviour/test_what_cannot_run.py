"""explain() and check() agree on what cannot run on this machine, and on what is verified."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpupipe import Dataset, Options, PlanError, ops
from gpupipe.spec import TensorSpec
from gpupipe.transform import machine
from tests.transform.tiny import jpeg

IMAGES = np.zeros((8, 8, 8, 3), np.uint8)


def _flipped() -> Dataset:
    return Dataset.from_tensor_slices(IMAGES).map(ops.flip_left_right).batch(4)


def _decoded() -> Dataset:
    return Dataset.from_tensor_slices([jpeg(n) for n in range(4)]).map(ops.decode_jpeg).batch(2)


@pytest.fixture
def _no_gpu_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "installed", lambda: (0, None))


@pytest.mark.usefixtures("_no_gpu_here")
@pytest.mark.parametrize(
    ("options", "why"),
    [
        (Options(device="gpu"), "needs an NVIDIA GPU and its driver"),
        (Options(device="gpu:3"), "needs an NVIDIA GPU and its driver"),
        (Options(device="gpu", backend="numpy"), "the backend 'numpy' runs on the CPU"),
    ],
    ids=["no gpu", "no gpu of this number", "numpy on a gpu"],
)
def test_options_that_cannot_run_here_are_a_finding(options: Options, why: str) -> None:
    ds = _flipped().with_options(options)

    (finding,) = [finding for finding in ds.check() if finding.rule == "cannot_run"]

    assert why in finding.text and finding.line.startswith(__file__)
    assert "it cannot run here" in str(ds.explain()) and str(finding) in str(ds.explain())
    with pytest.raises(PlanError, match=why):
        next(iter(ds))


def test_a_chain_without_images_runs_everywhere() -> None:
    ds = Dataset.range(4).batch(2).with_options(Options(device="gpu"))

    assert not any(finding.rule == "cannot_run" for finding in ds.check())
    assert len(list(ds)) == 2


@pytest.mark.usefixtures("_no_gpu_here")
def test_made_datasets_without_images_run_everywhere() -> None:
    ds = Dataset.range(2).flat_map(lambda n: Dataset.from_tensor_slices(IMAGES[int(n) :]).batch(8))

    assert len(list(ds.with_options(Options(device="gpu")))) == 2


def test_an_op_that_the_executor_does_not_have_is_a_finding() -> None:
    pytest.importorskip("nvidia.dali", reason="DALI is not installed")
    ds = (
        Dataset.from_tensor_slices(IMAGES).map(_only_dali).batch(4).with_options(Options(device="cpu", backend="numpy"))
    )

    (finding,) = [finding for finding in ds.check() if finding.rule == "cannot_run"]

    assert "cannot run as NumPy on CPU" in finding.text and "cannot run as NumPy on CPU" in str(ds.explain())


def _only_dali(x: Any) -> Any:
    return ops.dali_function(_brighter, x, spec=TensorSpec((8, 8, 3), "uint8", "HWC"))


def _brighter(x: Any) -> Any:
    return x + 1


def test_explain_promises_to_verify_only_what_dali_decodes() -> None:
    pytest.importorskip("nvidia.dali", reason="DALI is not installed")
    options = Options(device="cpu", backend="dali", verify=10)

    assert "one image in 10 is decoded again" in str(_decoded().with_options(options).explain())
    assert "nothing is verified, DALI decodes no image" in str(_flipped().with_options(options).explain())
    assert "nothing is verified" in str(Dataset.range(3).with_options(options).explain())


def _made(n: Any) -> Dataset:
    return _decoded() if int(n) else _flipped()


def test_explain_promises_nothing_of_datasets_that_are_made_while_running() -> None:
    ds = Dataset.range(2).flat_map(_made).with_options(Options(device="cpu", backend="auto", verify=10))

    assert "one image in 10 that DALI decodes is decoded again" in str(ds.explain())


@pytest.mark.usefixtures("_no_gpu_here")
def test_findings_tell_what_to_write_instead_of_what_was_written() -> None:
    images = Dataset.from_tensor_slices(IMAGES)
    spec, chw = TensorSpec((8, 8, 3), "uint8"), np.zeros((8, 3, 6, 7), np.uint8)
    masks = Dataset.from_tensor_slices(IMAGES[..., :1])
    ops.random_flip_left_right(IMAGES[0])  # an op is known to the check once it was used
    seeded = Dataset.zip(tuple(x.map(lambda i: ops.random_crop(i, (3, 3), seed=7)) for x in (images, masks)))

    for chain, text in (
        (images.map(lambda x: ops.random_flip_left_right(x), spec=spec, num_parallel_calls=2), "drop its spec=, which"),
        (Dataset.from_tensor_slices(chw).map(lambda x: ops.transpose(x, "CHW")), "like {CHW}; drop it, or keep arrays"),
        (Dataset.range(511).shard(2, 1).batch(128, True), "the first one makes 2 steps and the last one 1"),
        (Dataset.range(511).shard(2, 1).batch(128, True), "use shard(2, 1, even='drop') or even='wrap'"),
        (seeded, "which draw independently, although their seeds are equal: if the parts"),
    ):
        (finding,) = chain.prefetch(1).check()
        assert finding.line.startswith(f"{__file__}:")
        assert text in finding.text

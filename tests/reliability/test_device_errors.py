"""A failure of the GPU, its driver or its memory is an error of the run, never of an image: nothing is left out because
of it, nothing is repeated for ever, and one error says what failed and what to do."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import Dataset, Options, ops
from gpupipe.transform.dali import failures, library
from tests.reliability.bad_records import photograph

pytest.importorskip("nvidia.dali", reason="DALI is not installed")


def said(device: str, name: str, cause: str) -> str:
    """What DALI raises."""
    frame = f"Critical error in pipeline:\nError in {device} operator `nvidia.dali.fn.{name}`,\nencountered:\n\n"
    return f"{frame}{cause}\nC++ context: x"


RUNTIME = "CUDA runtime API error"
ILLEGAL = said(
    "mixed", "decoders.image", f"{RUNTIME} cudaErrorIllegalAddress (700):\nan illegal memory access was encountered"
)
LAUNCH = said("gpu", "resize", "CUDA driver API error CUDA_ERROR_LAUNCH_FAILED (719):\nunspecified launch failure")
MEMORY = said("gpu", "resize", f"{RUNTIME} cudaErrorMemoryAllocation (2):\nout of memory")
POOL = said("gpu", "resize", "Can't allocate 150994944 bytes on device 0.")
DRIVER = said("gpu", "resize", f"{RUNTIME} cudaErrorInsufficientDriver (35):\nCUDA driver version is insufficient")
DAMAGED = said("mixed", "decoders.image", "nvImageCodec failure: '#4'")
UNKNOWN = said("mixed", "decoders.image", "nvImageCodec failure: '#8'")
BATCH, IMAGES = 8, 64
FILES = [photograph(n) for n in range(IMAGES)]


@pytest.fixture
def breaks(other_dali: Callable[..., None]) -> Callable[..., None]:
    """Lets runs of DALI pipelines fail with a text: from the run with a number on, for ever or once."""
    real = library.import_dali()

    def install(text: str | BaseException, run: int, sticky: bool = True) -> None:
        runs = iter(range(1, 1 << 30))

        class Pipeline(real.pipeline):  # type: ignore[name-defined,misc]
            def share_outputs(self, *arguments: Any) -> Any:
                outputs = super().share_outputs(*arguments)
                number = next(runs)
                if number == run or (sticky and number > run):
                    self.release_outputs()
                    raise text if isinstance(text, BaseException) else RuntimeError(text)
                return outputs

        other_dali(pipeline=Pipeline)

    return install


def _chain(on_error: Any, files: list[bytes] = FILES, prefetch: bool = True) -> Dataset:
    ds = Dataset.from_tensor_slices(files).map(
        lambda x: ops.resize(ops.decode_jpeg(x, channels=3), (16, 16), antialias=False)
    )
    ds = ds.batch(BATCH)
    ds = ds.prefetch(2) if prefetch else ds
    return ds.with_options(Options(device="cpu", backend="dali", on_error=on_error))


def ended_by(kind: type[gp.GpupipeError], ds: Dataset, count: int) -> str:
    """What the error says with which a run ends behind so many batches, without a bad element."""
    items = iter(ds)
    for _ in range(count):
        next(items)
    with pytest.raises(kind) as caught:
        next(items)
    assert not isinstance(caught.value, gp.DataError)
    assert items.left_out == 0 and items.errors == ()
    with pytest.raises(gp.ClosedError):
        next(items)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("gpupipe")]
    return str(caught.value)


ACCESS = "illegal memory access was encountered; restart the process"
MORE = "more memory than is available .* smaller batch or a smaller Options.device_memory"
FAILURES: dict[str, tuple[Any, bool, str]] = {  # a text or an error, whether every run has it, what is said
    "illegal access": (ILLEGAL, True, ACCESS),
    "illegal access once": (ILLEGAL, False, ACCESS),
    "launch": (LAUNCH, True, "unspecified launch failure; restart the process"),
    "memory": (MEMORY, True, MORE),
    "memory once": (MEMORY, False, MORE),
    "pool": (POOL, True, "Can't allocate 150994944 bytes on device 0.*; use a smaller batch"),
    "host": (MemoryError("std::bad_alloc"), True, "more memory than is available"),
    "without a name": (UNKNOWN, True, "fails on rows that it computed before, so it is not the data"),
    "without a name, once": (UNKNOWN, False, "failed once and ran on the same batch again, so it is not the data"),
}


ON_ERROR = pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])


@ON_ERROR
@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_of_the_device_ends_the_run_with_one_error(on_error: str, name: str, breaks: Any) -> None:
    text, sticky, words = FAILURES[name]
    breaks(text, run=4, sticky=sticky)

    error = ended_by(gp.DeviceError, _chain(on_error), 3)

    assert error.startswith("DALI on CPU ") and re.search(words, error)


@ON_ERROR
@pytest.mark.parametrize("sticky", [True, False], ids=["for ever", "once"])
@pytest.mark.parametrize("text", [ILLEGAL, MEMORY, POOL, DAMAGED], ids=["illegal access", "memory", "pool", "damaged"])
def test_that_it_is_not_the_data_shows_without_any_text(
    on_error: str, sticky: bool, text: str, breaks: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_DEVICE_FAILURES", ())
    monkeypatch.setattr(failures, "_OUT_OF_MEMORY", ())
    breaks(text, run=4, sticky=sticky)

    assert "so it is not the data" in ended_by(gp.DeviceError, _chain(on_error), 3)


@ON_ERROR
@pytest.mark.parametrize("text", [ILLEGAL, MEMORY, UNKNOWN], ids=["illegal access", "memory", "without a name"])
@pytest.mark.parametrize(
    ("decodes", "run", "sticky"),
    [(False, 4, True), (False, 4, False), (True, 1, True)],
    ids=["a graph without decoders", "the same once", "before a row was computed"],
)
def test_other_graphs_and_first_runs_are_judged_alike(
    on_error: Any, decodes: bool, run: int, sticky: bool, text: str, breaks: Any
) -> None:
    images = Dataset.from_tensor_slices(np.zeros((IMAGES, 8, 8, 3), np.uint8)).map(lambda x: ops.resize(x, (4, 4)))
    plain = images.batch(BATCH).with_options(Options(device="cpu", backend="dali", on_error=on_error))
    breaks(text, run=run, sticky=sticky)

    ended_by(gp.DeviceError, _chain(on_error) if decodes else plain, run - 1)


@ON_ERROR
@pytest.mark.parametrize("later", [1, 2, 4])
def test_a_failure_during_a_repair_is_one_of_the_device_too(on_error: str, later: int, breaks: Any) -> None:
    files = list(FILES)
    files[BATCH + 3] = files[BATCH + 3][:300] + bytes(200)  # the second batch is repaired: runs 2 and on
    breaks(ILLEGAL, run=2 + later)

    items = iter(_chain(on_error, files, prefetch=False))
    with pytest.raises(gp.DeviceError, match="illegal memory access"):
        for _ in range(IMAGES):
            try:
                next(items)
            except gp.DataError as error:
                assert on_error == "raise" and "index 11" in str(error)

    assert {record.offset for record in items.errors} <= {BATCH + 3}


def test_a_pipeline_that_cannot_be_built_is_a_failure_of_the_device(other_dali: Callable[..., None]) -> None:
    class Pipeline(library.import_dali().pipeline):  # type: ignore[misc]
        def build(self) -> None:
            raise RuntimeError(DRIVER)

    other_dali(pipeline=Pipeline)

    assert "CUDA driver version is insufficient" in ended_by(gp.DeviceError, _chain("skip"), 0)

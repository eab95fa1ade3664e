"""What is particular to the DALI executor: its pipelines, their pool, fork and exit, its errors and its lowering."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.errors import GpupipeError, PlanError, SpecError
from gpupipe.graph.values import Apply
from gpupipe.ops._shared.decoding import decoder
from gpupipe.options import DecoderOptions
from gpupipe.spec import TensorSpec
from gpupipe.transform.dali import library
from gpupipe.transform.dali.executor import DaliExecutor
from gpupipe.transform.dali.failures import cause_of
from gpupipe.transform.dali.feeding import LEGAL, wrap
from gpupipe.transform.dali.library import release_memory
from gpupipe.transform.program import BatchFailed, Feed, Program
from tests.transform.region_decode import _PROBE, probe_region_decode
from tests.transform.tiny import IMAGE, TinyHostOnly, TinySame, TinyScale, chain, damaged, expected, feed_of, jpeg

pytest.importorskip("nvidia.dali", reason="DALI is not installed")

ROOT = Path(__file__).resolve().parents[2]
FILES = [jpeg(n) for n in range(4)]
FORK_IS_MEANT = "ignore:This process:DeprecationWarning"  # Python 3.12 warns of a fork with threads


@pytest.fixture(autouse=True)
def _empty_pool() -> Iterator[None]:
    release_memory()
    yield
    release_memory()


def run_once(executor: DaliExecutor, factor: float = 2.0) -> Any:
    """One batch of `chain`, checked; answer the pipeline that made it."""
    executor.submit(feed_of(chain(factor), FILES))
    np.testing.assert_array_equal(executor.collect()[0], expected(FILES, factor=factor))
    return executor._pipeline


def test_what_dali_says_of_libraries_that_nobody_needs_is_no_error() -> None:
    code = (
        "from gpupipe.transform.dali.library import import_dali; dali = import_dali().backend;"
        "dali.GetCudaVersion = lambda: 13000; dali.GetCufftVersion = lambda: -1; dali.GetNppVersion = lambda: -1;"
        "dali.check_cuda_runtime(); assert dali.cuda_checked; print('built')"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=100
    )

    assert done.stdout == "built\n", done.stderr[-2000:]


def test_a_closed_executor_leaves_its_pipeline_to_the_next_one() -> None:
    first, second = DaliExecutor(chain(), 4, 2), DaliExecutor(chain(), 4, 2)
    pipeline = run_once(first)
    first.close()

    assert run_once(second) is pipeline
    second.close()


def test_a_pipeline_is_reused_after_failures_and_with_batches_in_flight() -> None:
    program = chain()
    first, second = DaliExecutor(program, 4, 2), DaliExecutor(program, 4, 2)
    pipeline = run_once(first)
    for files in ([*FILES[:3], damaged(FILES[3])], FILES, [damaged(FILES[0]), *FILES[1:]], FILES[::-1]):
        first.submit(feed_of(program, files))
    with pytest.raises(BatchFailed):
        first.collect()
    first.close()

    assert run_once(second) is pipeline
    second.close()


@pytest.mark.parametrize(("factor", "batch", "threads"), [(3.0, 4, 2), (2.0, 5, 2), (2.0, 4, 1)])
def test_another_program_size_or_thread_count_needs_its_own_pipeline(factor: float, batch: int, threads: int) -> None:
    first, second = DaliExecutor(chain(), 4, 2), DaliExecutor(chain(factor), batch, threads)
    pipeline = run_once(first)
    first.close()

    assert run_once(second, factor) is not pipeline
    second.close()


def test_the_pool_is_bounded_and_release_memory_empties_it() -> None:
    for n in range(10):
        executor = DaliExecutor(chain(float(n + 1)), 4, 1)
        run_once(executor, float(n + 1))
        executor.close()

    assert len(library.POOL) == 8
    gp.release_memory()
    assert len(library.POOL) == 0


def test_an_executor_that_is_only_forgotten_frees_its_pipeline() -> None:
    executor = DaliExecutor(chain(), 4, 1)
    run_once(executor)
    gc.collect()  # what tests before this one left is not counted
    alive = len(library.POOL._alive)

    del executor
    gc.collect()

    assert len(library.POOL._alive) == alive - 1


def test_a_batch_may_be_collected_on_another_thread_than_it_was_submitted_on() -> None:
    program = chain()
    executor = DaliExecutor(program, 4, 2)
    executor.submit(feed_of(program, FILES))
    got: list[Any] = []

    thread = threading.Thread(target=lambda: got.extend(executor.collect()))
    thread.start()
    thread.join(30)
    executor.close()

    np.testing.assert_array_equal(got[0], expected(FILES))


def in_a_new_process(code: str) -> subprocess.CompletedProcess[str]:
    """Run code that has `program`, `FILES` and an `executor` with one batch done and three in flight."""
    head = """
import os, sys, time
from gpupipe.transform.dali.executor import DaliExecutor
from gpupipe.transform.numpy import NumpyExecutor
from tests.transform.tiny import *
program, FILES = chain(), [jpeg(n, 375, 500) for n in range(8)] * 8
executor = {kind}(program, 64, 2)
executor.submit(feed_of(program, FILES)); executor.collect()
for _ in range(3): executor.submit(feed_of(program, FILES))
"""
    kind, _, rest = code.partition(";")
    return subprocess.run(
        [sys.executable, "-W", "error", "-W", FORK_IS_MEANT, "-c", head.format(kind=kind) + rest],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )


@pytest.mark.parametrize(
    ("kind", "last"),
    [
        ("DaliExecutor", "pass"),
        ("DaliExecutor", "executor.close()"),
        ("DaliExecutor", "del executor"),
        ("NumpyExecutor", "pass"),
    ],
)
def test_the_interpreter_ends_silently_with_batches_in_flight(kind: str, last: str) -> None:
    done = in_a_new_process(f"{kind};{last}")

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


OWN = """
    own = DaliExecutor(program, 64, 2)
    own.submit(feed_of(program, FILES))
    assert np.array_equal(own.collect()[0], expected(FILES))
    own.close()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize(
    ("state", "end"),
    [
        pytest.param("pass", "pass", id="in flight"),
        pytest.param("pass", "del executor; gc.collect()", id="in flight, collected"),
        pytest.param("executor.close()", "pass", id="pooled"),
        pytest.param("executor.close()", OWN, id="pooled, and runs its own"),
    ],
)
def test_a_forked_child_ends_whatever_it_does_with_pipelines(state: str, end: str) -> None:
    done = in_a_new_process(f"""DaliExecutor;
import gc
{state}
time.sleep(1)  # CPython 3.11 itself may hang in a child if another thread is just entering Python when it forks
child = os.fork()
if child == 0:
    {end}
    sys.exit(0)
_, status = os.waitpid(child, 0)
print(status)
""")

    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")


TEXT = """Critical error in pipeline:
Critical error in pipeline:
Error in CPU operator `nvidia.dali.fn.decoders.image`,
which was used in the pipeline definition with the following traceback:

  File "ops/decode_jpeg.py", line 15, in dali
    im=fn.decoders.image(j,adjust_orientation=False)

encountered:

{}
Current pipeline object is no longer valid.
Current pipeline object is no longer valid."""


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("Failed to decode sample #2 : ", "decoders.image: Failed to decode sample #2"),
        ("nvImageCodec failure: '#3'", "decoders.image: nvImageCodec failure '#3' (damaged image)"),
        (
            'Assert on "a < b" failed: Index out of range\nC++ context: [/opt/dali/x.h:209] ',
            "decoders.image: Index out of range",
        ),
    ],
)
def test_only_the_cause_is_left_of_dalis_text(words: str, cause: str) -> None:
    assert cause_of(TEXT.format(words)) == cause
    assert cause_of("CUDA error: out of memory") == "CUDA error: out of memory"


@dataclass(frozen=True, slots=True)
class Broken(TinyHostOnly):
    """Cannot be lowered, each time for another reason."""

    how: str = ""

    def dali(self, d: Any, x: Any) -> Any:
        if self.how == "python":
            raise KeyError("no such thing")
        if self.how == "argument":
            return d.fn.resize(x, no_such_argument=1)
        return d.fn.resize(x, size=d.types.Constant(np.array([3, 3], np.int32)))  # size needs floats: seen when it runs


@pytest.mark.parametrize("how", ["python", "argument", "type"])
def test_a_wrong_graph_is_a_mistake_that_names_the_op_and_not_bad_data(how: str) -> None:
    program = Program((Apply(Broken(how), (IMAGE,)),))
    executor = DaliExecutor(program, 2, 1)

    with pytest.raises(GpupipeError, match="broken") as error:
        executor.run(Feed(1, ([np.zeros((4, 4, 3), np.uint8)],)))

    assert not isinstance(error.value, BatchFailed)
    executor.close()


def test_rows_of_another_rank_or_dtype_are_bad_rows() -> None:
    program = Program((Apply(TinyScale(), (IMAGE,)),))
    executor = DaliExecutor(program, 4, 1)
    good = np.ones((4, 4, 3), np.uint8)

    executor.submit(Feed(3, ([good, good[..., 0], good.astype(np.int16)],)))
    executor.submit(Feed(1, ([good],)))

    with pytest.raises(BatchFailed, match="uint8 with 3 dimensions, got uint8") as failure:
        executor.collect()
    assert set(failure.value.causes) == {1, 2}
    assert executor.collect()[0][0, 0, 0, 0] == 2
    executor.close()


@pytest.mark.parametrize("dtype", ["complex64", "datetime64[s]", "U3", "longdouble"])
def test_dtypes_that_dali_would_misread_are_refused(dtype: str) -> None:
    with pytest.raises(SpecError, match="needs one of bool"):
        wrap(np.zeros(2, dtype))


def test_wrapping_copies_only_what_dali_cannot_read() -> None:
    good = np.zeros((4, 5, 3), np.uint8)

    assert np.shares_memory(wrap(good), good)
    assert wrap(np.float32(3)).shape == ()
    assert wrap(good[:, ::-1]).flags.c_contiguous
    assert wrap(np.arange(3, dtype=">f4")).dtype == np.dtype("<f4")


@pytest.mark.parametrize("dtype", [str(dtype) for dtype in LEGAL])
def test_every_legal_dtype_goes_in_and_comes_out_unchanged(dtype: str) -> None:
    @dataclass(frozen=True, slots=True)
    class Copy(TinySame):
        def dali(self, d: Any, x: Any) -> Any:
            return d.fn.copy(d.fn.cast(x, dtype=d.dtype(dtype)))

    x = np.arange(12).reshape(2, 2, 3).astype(dtype)
    image = type(IMAGE)(0, TensorSpec((None, None, 3), dtype, "HWC"))
    executor = DaliExecutor(Program((Apply(Copy(), (image,)),)), 1, 1)

    (result,) = executor.run(Feed(1, ([x],)))
    executor.close()

    assert result.dtype == dtype
    np.testing.assert_array_equal(result[0], x)


@pytest.mark.parametrize(
    ("code", "said", "answer"),
    [(0, b"13\n2\n", True), (0, b"13\n1\n", False), (0, b"", False), (1, b"13\n2\n", False)],
    ids=str,
)
def test_regions_are_decoded_where_they_come_out_right_and_nvjpeg_decodes_them(
    code: int, said: bytes, answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = subprocess.CompletedProcess([], code, said, b"")
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: done)

    assert probe_region_decode(0) is answer


def test_the_probe_asks_for_regions_as_the_ops_do() -> None:
    """Its arguments are those of every decoder on a GPU, which `nvJPEG` may decline as a whole."""
    d = SimpleNamespace(decoder_device="mixed", decoding=DecoderOptions(), types=SimpleNamespace(RGB="RGB"))
    asked = decoder(d, 3, False)

    for name in asked.keys() - {"output_type"}:
        assert f"{name}={asked[name]!r}".replace("'", '"') in _PROBE
    compile(_PROBE, "probe", "exec")


def test_an_op_without_a_dali_form_is_named() -> None:
    executor = DaliExecutor(Program((Apply(TinyHostOnly(), (IMAGE,)),)), 2, 1)

    with pytest.raises(PlanError, match="host_only has no DALI form"):
        executor.submit(Feed(1, ([np.zeros((4, 4, 3), np.uint8)],)))

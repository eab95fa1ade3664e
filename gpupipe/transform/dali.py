"""dali: the executor that runs a program as a DALI graph, on the CPU or on a GPU. The only home of DALI.

DALI is pushed, never pulls: `submit` feeds a batch and schedules a run, `collect` takes the oldest result. Nothing
random, no reader and no state is in the graph, so a batch depends on its feed alone. DALI's default (dynamic) executor
is needed for three things, each tested: results are owned by whoever holds them, a failing batch costs exactly that
batch, and at `prefetch_queue_depth=1` any number of runs may be scheduled ahead.
"""

from __future__ import annotations

import atexit
import functools
import os
import re
import subprocess
import sys
import warnings
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import (
    ClosedError,
    DataError,
    DecodeError,
    DeviceError,
    GpupipeError,
    MissingDependencyError,
    PlanError,
    ShapeError,
    SpecError,
)
from ..graph import Apply, Const, Item, Value
from ..op import Array
from ..spec import TensorSpec
from .array import copied, load_cupy, overlap, to_device_array
from .host import HostDecoder
from .pool import ENDINGS, PipelinePool
from .program import BatchFailed, Feed, Program

__all__ = ["DaliExecutor", "Lowering", "probe_region_decode", "release_memory", "wrap"]

LEGAL = tuple(
    np.dtype(name) for name in "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
)
"""dtypes that DALI takes as they are; it silently reinterprets others (complex and big-endian become float32)."""

_POOL = PipelinePool()
_REGION_DECODE: dict[int, bool] = {}
_ON_GPU: list[int] = []
"""The process that first built a pipeline on a GPU, as its id; its forked children inherit the list."""

_NO_LONGER_SHIPPED = r"nvidia-dali-cuda\d+ is no longer shipped with"
"""How DALI begins its warnings of libraries of CUDA that its wheel leaves out."""


def wrap(row: Any) -> Array:
    """One array as DALI takes it: contiguous, native byte order, a legal dtype. Copies only where it must.

    Raises:
        SpecError: for a dtype that DALI has no equal of.
    """
    array = np.asarray(row)
    dtype = array.dtype.newbyteorder("=")
    if dtype not in LEGAL:
        raise SpecError(f"the DALI executor needs one of {', '.join(map(str, LEGAL))}, got {array.dtype}")
    return np.asarray(array, dtype, order="C")


@dataclass(frozen=True, slots=True)
class Lowering:
    """What an op's `dali` method is handed.

    Attributes:
        fn: `nvidia.dali.fn`.
        types: `nvidia.dali.types`.
        math: `nvidia.dali.math`.
        device: where images live, ``"cpu"`` or ``"gpu"``.
        decoder_device: the `device=` of decoders, ``"cpu"`` or ``"mixed"``.
        region_decode: whether `decoders.image_slice` may be used; else decode the whole image and slice.
    """

    fn: Any
    types: Any
    math: Any
    device: str
    decoder_device: str
    region_decode: bool

    def dtype(self, dtype: Any) -> Any:
        """The DALI type of a NumPy dtype."""
        found = np.dtype(dtype)
        if found not in LEGAL:
            raise SpecError(f"DALI has no equal of dtype {found}")
        return getattr(self.types, "FLOAT" if found == np.float32 else str(found).upper())


@functools.cache
def _import_dali() -> Any:
    """Import what is needed of DALI, once.

    Raises:
        MissingDependencyError: naming the extra that brings it.
    """
    try:
        from nvidia.dali import backend, fn, math, tensors, types
        from nvidia.dali.pipeline import Pipeline
    except ImportError as error:
        raise MissingDependencyError(
            f"the DALI executor needs nvidia-dali, which cannot be imported ({error}); "
            f"pip install 'gpupipe[cuda12]', or run with Options(backend='numpy')"
        ) from error
    # Building the first GPU pipeline warns of cuFFT and NPP, which only operators need that no op here uses.
    warnings.filterwarnings("ignore", message=_NO_LONGER_SHIPPED)
    # Registered after DALI's own handlers, hence run before them: what is idle goes while DALI is whole.
    atexit.register(_end)
    return _Dali(Pipeline, backend, fn, math, tensors, types)


def _end() -> None:
    for ending in ENDINGS:
        ending()
    _POOL.clear()


@dataclass(frozen=True, slots=True)
class _Dali:
    pipeline: Any
    backend: Any
    fn: Any
    math: Any
    tensors: Any
    types: Any


def release_memory() -> None:
    """Destroy idle pipelines and return DALI's unused memory, of the host and of GPUs, to the system."""
    _POOL.clear()
    if "nvidia.dali" in sys.modules:
        _import_dali().backend.ReleaseUnusedMemory()


@dataclass(frozen=True, slots=True)
class _Entry:
    """How one input of the program enters DALI.

    Attributes:
        kind: "bytes" (encoded, one row each), "rows" (an array for each row) or "batch" (one array[B, ...]).
        dtype: of the rows.
        ndim: of one row.
    """

    kind: str
    dtype: str
    ndim: int


@dataclass(slots=True)
class _Flight:
    """A batch in flight.

    Attributes:
        feed: its rows, the images as DALI gets them.
        buffers: what was fed, kept until DALI is done with it.
        causes: of the rows that kept the batch from being fed at all.
        outcome: what DALI made of it, where it was asked for before its turn.
    """

    feed: Feed
    buffers: list[Any]
    causes: dict[int, DataError]
    outcome: Any = None


class DaliExecutor:
    """A program as a DALI graph. Implements `Executor`.

    Args:
        program: what to compute.
        batch_size: the largest batch that will be submitted.
        threads: CPU threads of DALI.
        device_id: ordinal of the GPU, None for the CPU (then no GPU and no driver are needed).

    Results on the CPU are NumPy arrays, on a GPU CuPy arrays (`DeviceArray` where CuPy is missing), without a copy.
    """

    def __init__(self, program: Program, batch_size: int, threads: int, device_id: int | None = None) -> None:
        self._program, self._batch_size, self._threads, self._device_id = program, batch_size, threads, device_id
        self._fed = [n for n, value in enumerate(program.inputs) if not isinstance(value, Const)]
        self._flights: deque[_Flight] = deque()
        self._entries: tuple[_Entry, ...] | None = None
        self._pipeline: Any = None
        self._foreign = [value for value in program.values if isinstance(value, Apply) and value.op.foreign]
        self._checked = not self._foreign
        self._host = HostDecoder(program, threads, batch_size, libjpeg=device_id is None)
        if device_id is not None:
            load_cupy()
        self._good: Feed | None = None  # a row that was computed: it tells a broken executor from bad data
        self._closed = False
        self._pid = os.getpid()

    @property
    def label(self) -> str:
        """Where the program runs."""
        return "DALI on CPU" if self._device_id is None else f"DALI on GPU {self._device_id}"

    def submit(self, feed: Feed) -> None:
        """Feed a batch and schedule its run; see `Executor.submit`."""
        self._check_open()
        if not 1 <= feed.size <= self._batch_size:
            raise GpupipeError(f"{self.label} was built for batches of 1 to {self._batch_size} rows, got {feed.size}")
        if self._entries is None:
            self._entries = tuple(_entry(self._program.inputs[n], feed.values[n]) for n in self._fed)
        causes: dict[int, DataError] = {}
        values = list(feed.values)
        for n in self._host.readings:
            values[n] = self._host.ready(n, values[n], causes)
        self._flights.append(self._start(Feed(feed.size, tuple(values)), causes))

    def _start(self, feed: Feed, causes: dict[int, DataError]) -> _Flight:
        """Feed a batch to DALI and schedule its run, unless some of its rows are known to be bad."""
        assert self._entries is not None
        entries = zip(self._fed, self._entries, strict=True)
        buffers = [] if causes else [self._tensors(n, entry, feed, causes) for n, entry in entries]
        if causes:
            return _Flight(feed, [], causes)
        if self._pipeline is None:
            self._pipeline = _POOL.take(self._key) or self._build(self._entries)
        try:
            for n, buffer in zip(self._fed, buffers, strict=True):
                self._pipeline.feed_input(f"input{n}", buffer)
            self._pipeline.schedule_run()
        except Exception as error:
            # Some inputs are fed and others not: nothing that comes out of this pipeline can be trusted any more.
            self._give_up()
            self._raise_failure_of_device(error)
            raise GpupipeError(f"{self.label} refused a batch of {self._names()}: {cause_of(str(error))}") from error
        return _Flight(feed, buffers, {})

    def collect(self) -> list[Any]:
        """Wait for the oldest batch; see `Executor.collect`."""
        self._check_open()
        if not self._flights:
            raise GpupipeError(f"{self.label}: collect() needs a batch in flight, got none; call submit() first")
        flight = self._flights.popleft()
        outputs = self._outcome(flight) if flight.outcome is None else flight.outcome
        if isinstance(outputs, BatchFailed):
            if flight.feed.size == 1 and not flight.causes:
                self._check_good_row()
            outputs = self._judged(flight, outputs)
        elif self._good is None:
            self._good = _kept(flight.feed.chosen([0]))
        size = flight.feed.size
        count = len(self._program.outputs)
        outputs, shapes = outputs[:count], [_to_numpy(shape, size) for shape in outputs[count:]]
        self._check_shapes(shapes)
        hand_over = _to_numpy if self._device_id is None else to_device_array
        results = _separate([hand_over(output, size) for output in outputs])
        if not self._checked:
            self._checked = True
            for value, result in zip(self._program.outputs, results, strict=True):
                _check(value, result)
        return results

    def _outcome(self, flight: _Flight) -> Any:
        """Wait for the oldest run: DALI's outputs, or BatchFailed. No later one can be asked for before it."""
        if flight.causes:
            return BatchFailed(str(next(iter(flight.causes.values()))), flight.causes)
        try:
            # Without a stream this waits until the batch is there, on a GPU, too; the next run is scheduled already.
            outputs = self._pipeline.share_outputs()
        except (RuntimeError, MemoryError) as error:
            text = str(error)
            self._raise_failure_of_device(error)
            if "scheduler was shut down" in text:
                raise ClosedError(f"{self.label} was shut down because the interpreter ends") from error
            if "Calling type does not match" in text or "ExternalSource expected" in text:
                raise GpupipeError(f"{self.label} cannot run {self._names()}: {cause_of(text)}") from error
            return BatchFailed(cause_of(text))  # the rest of DALI's text is about its own source
        self._pipeline.release_outputs()
        return outputs

    def _raise_failure_of_device(self, error: BaseException) -> None:
        """Give up if an error of DALI's is one of the GPU, its driver or of memory.

        Raises:
            DeviceError: it is.
        """
        failure = _device_failure(error, self.label, f"{self._names()} in batches of {self._batch_size}")
        if failure is not None:
            self._give_up()
            raise failure from error

    def _check_good_row(self) -> None:
        """Compute a row again that was computed before, after a run all of whose rows failed.

        Raises:
            DeviceError: it fails now.
        """
        if self._good is None:
            return
        self._finish_later()
        outputs = self._outcome(self._start(self._good, {}))
        if isinstance(outputs, BatchFailed):
            self._give_up()
            raise DeviceError(
                f"{self.label} fails on rows that it computed before, so it is not the data: {outputs.text}; start the "
                "process again, or run with Options(device='cpu')"
            )

    def _give_up(self) -> None:
        """Close without giving the pipeline back: nobody is to use it again."""
        self._closed, self._pipeline = True, None
        self._flights.clear()
        self._host.close()

    def _finish_later(self) -> None:
        """Wait for all batches in flight: DALI answers them in order, and one run at a time tells which rows fail."""
        for later in self._flights:
            if later.outcome is None:
                later.outcome = self._outcome(later)

    def _judged(self, flight: _Flight, failure: BatchFailed) -> Any:
        """The outputs of a batch that DALI failed on, the images that it refuses decoded by the host.

        Raises:
            BatchFailed: the host refuses some of them, too, or it is not for images that the batch failed.
        """
        if not self._host.readings:
            raise failure
        self._finish_later()
        causes = dict(failure.causes)  # of rows that DALI has not seen, nor those beside them
        rest = [row for row in range(flight.feed.size) if row not in causes]
        # The host's threads find the bad ones sooner than halving does; DALI has a say, as it has in batches without.
        refused = [row for row in self._host.refused(flight.feed, rest) if self._refused(flight.feed, [row])]
        refused = refused or self._refused(flight.feed, rest)
        if len(refused) == len(rest) > 1:
            self._check_good_row()
        if not refused and not causes:  # a run that fails and then works: that is none of its images
            raise failure
        values: list[Any] = list(flight.feed.values)
        for n in self._host.readings:
            values[n] = list(values[n])
        for row in (*causes, *refused):  # the first of its images that is bad is the reason
            try:
                for n in self._host.readings:
                    values[n][row] = self._host.second_opinion(n, values[n][row])
            except DecodeError as error:
                causes[row] = error
        if not causes:
            outputs = self._outcome(self._start(Feed(flight.feed.size, tuple(values)), {}))
            if not isinstance(outputs, BatchFailed):
                return outputs
            failure = outputs  # for another reason than its images
        raise BatchFailed(failure.text, causes)

    def _refused(self, feed: Feed, rows: list[int]) -> list[int]:
        """Those of some rows for which a run fails, found by halving."""
        out, parts = [], [rows] if rows else []
        while parts:
            part = parts.pop()
            if isinstance(self._outcome(self._start(feed.chosen(part), {})), BatchFailed):
                middle = len(part) // 2
                if middle:
                    parts += [part[middle:], part[:middle]]
                else:
                    out += part
        return out

    def _check_shapes(self, shapes: list[Any]) -> None:
        """Compare the shapes of what users' functions gave with what was declared, whether it is delivered or not.

        Raises:
            SpecError: one is another.
        """
        rest = iter(shapes)
        for value in self._foreign:
            given, *made = (next(rest) for _ in range(1 + len(value.specs)))
            for index, rows in enumerate(made):
                for row, first in zip(rows, given, strict=True):
                    given_shape = tuple(first.tolist())
                    spec = value.op.promised(index, given_shape, value.x[0].spec.layout) or value.specs[index]
                    shape = tuple(row.tolist())
                    if not spec.accepts(TensorSpec(shape, spec.dtype)):
                        raise _unlike(value, spec, f"one of shape {list(shape)}")

    def close(self) -> None:
        """Drain the pipeline and put it back for the next executor of this program."""
        if self._closed or self._pid != os.getpid():
            return
        self._closed = True
        self._host.close()
        pipeline, self._pipeline = self._pipeline, None
        flights, self._flights = self._flights, deque()
        if pipeline is None:
            return
        for flight in flights:
            if not flight.causes and flight.outcome is None:
                try:
                    pipeline.share_outputs()
                    pipeline.release_outputs()
                except RuntimeError:
                    continue  # bad data in a batch that nobody wants any more; the pipeline is as good as before
        _POOL.put(self._key, pipeline, self._program)

    def _check_open(self) -> None:
        if self._pid != os.getpid():
            raise ClosedError(f"{self.label} was created before fork; make a new iterator in the child process")
        if self._closed:
            raise ClosedError(f"{self.label} was closed")

    @property
    def _key(self) -> tuple[Any, ...]:
        return (self._program.digest, self._entries, self._batch_size, self._threads, self._device_id)

    def _names(self) -> str:
        return ", ".join(value.op.name for value in self._program.values if isinstance(value, Apply))

    def _tensors(self, n: int, entry: _Entry, feed: Feed, causes: dict[int, DataError]) -> Any:
        """One input of a batch as a TensorList that shares its memory. Adds the rows that do not fit to `causes`."""
        tensors = _import_dali().tensors
        rows = feed.values[n]
        if entry.kind == "batch":
            batch = wrap(rows)
            if str(batch.dtype) != entry.dtype or batch.ndim != entry.ndim + 1 or len(batch) != feed.size:
                raise SpecError(
                    f"{self.label} needs {entry.dtype} rows of rank {entry.ndim}, got {batch.dtype}{batch.shape}"
                )
            return tensors.TensorListCPU(batch)
        if entry.kind == "bytes":
            for row, data in enumerate(rows):
                if not len(data):
                    causes[row] = DecodeError("an image needs bytes, got none", stage="decode")
            return tensors.TensorListCPU([tensors.TensorCPU(data) for data in rows], contiguous=False)
        arrays = [wrap(row) for row in rows]
        for row, array in enumerate(arrays):
            if str(array.dtype) != entry.dtype or array.ndim != entry.ndim:
                causes[row] = ShapeError(
                    f"{self._names()} need {entry.dtype} with {entry.ndim} dimensions, got {array.dtype}{array.shape}"
                )
        if causes:
            return None
        return tensors.TensorListCPU([tensors.TensorCPU(array) for array in arrays], contiguous=False)

    def _build(self, entries: tuple[_Entry, ...]) -> Any:
        dali = _import_dali()
        on_gpu = self._device_id is not None
        if on_gpu:
            _refuse_fork(self.label)
        d = Lowering(
            dali.fn,
            dali.types,
            dali.math,
            "gpu" if on_gpu else "cpu",
            "mixed" if on_gpu else "cpu",
            _REGION_DECODE.get(self._device_id, False) if self._device_id is not None else True,
        )
        pipeline = dali.pipeline(
            batch_size=self._batch_size, num_threads=self._threads, device_id=self._device_id, prefetch_queue_depth=1
        )
        _POOL.watch(pipeline)  # before it is built: a fork in between leaves the child one that it must not end
        with pipeline:
            nodes = _inputs(d, self._program, dict(zip(self._fed, entries, strict=True)))
            for n in self._fed:
                # With `preserve`, this keeps an input that no operator reads: pruned, it could not be fed.
                pipeline.add_sink(nodes[self._program.inputs[n]])
            for value in self._program.values:
                nodes[value] = _lower(d, value, nodes)
            shapes = [node.shape() for value in self._foreign for node in _promises(value, nodes)]
            pipeline.set_outputs(*(_delivered(d, nodes[value]) for value in self._program.outputs), *shapes)
        try:
            pipeline.build()
        except Exception as error:
            self._raise_failure_of_device(error)
            raise GpupipeError(f"{self.label} cannot build {self._names()}: {cause_of(str(error))}") from error
        return pipeline


def copy_to_gpu(array: Array, device_id: int) -> Any:
    """Copy an array to a GPU with nothing but DALI; answer the tensor, finished."""
    array = wrap(array)
    return _copied("cpu", [array], array.dtype, array.ndim, device_id)


def copy_on_gpu(array: Any, device_id: int) -> Any:
    """Copy an array of a GPU, finished and contiguous, into memory of DALI's there; answer the tensor, finished."""
    tensors, interface = _import_dali().tensors, array.__cuda_array_interface__
    given = array if isinstance(array, tensors.TensorGPU) else tensors.TensorGPU(array, "", device_id)
    dtype = np.dtype(interface["typestr"])
    # -1: a stream of DALI's, and `feed_input` waits for the copy.
    return _copied("gpu", [given], dtype, len(interface["shape"]), device_id, cuda_stream=-1)


def _copied(source: str, arrays: list[Any], dtype: np.dtype[Any], ndim: int, device_id: int, **how: Any) -> Any:
    """Copy an array from a device to a GPU, through a pipeline that does nothing else."""
    key = ("copy", source, str(dtype), ndim, device_id)
    try:
        pipeline = _POOL.take(key) or _copying(source, dtype, ndim, device_id)
        pipeline.feed_input("input0", arrays, **how)
        pipeline.schedule_run()
        (output,) = pipeline.share_outputs()
        pipeline.release_outputs()
    except (RuntimeError, MemoryError) as error:
        failure = _device_failure(error, f"DALI on GPU {device_id}", "a copy")
        if failure is None:
            raise
        raise failure from error
    _POOL.put(key, pipeline)
    return output[0]


def _refuse_fork(label: str) -> None:
    """Make sure that CUDA can work in this process.

    Raises:
        DeviceError: its parent used a GPU before it was forked.
    """
    if not _ON_GPU:
        _ON_GPU.append(os.getpid())
    if _ON_GPU[0] != os.getpid():
        raise DeviceError(
            f"{label} cannot run in a process that was forked from one that used a GPU: CUDA does not survive a fork; "
            "start it with multiprocessing's 'spawn' (torch: DataLoader(multiprocessing_context='spawn')), or use "
            "Options(device='cpu') in it"
        )


def _copying(source: str, dtype: np.dtype[Any], ndim: int, device_id: int) -> Any:
    dali = _import_dali()
    _refuse_fork(f"DALI on GPU {device_id}")
    d = Lowering(dali.fn, dali.types, dali.math, "gpu", "mixed", False)
    pipeline = dali.pipeline(batch_size=1, num_threads=1, device_id=device_id, prefetch_queue_depth=1)
    _POOL.watch(pipeline)
    with pipeline:
        given = dali.fn.external_source(name="input0", device=source, dtype=d.dtype(dtype), ndim=ndim)
        pipeline.set_outputs(given.gpu() if source == "cpu" else given)
    pipeline.build()
    return pipeline


def _device_failure(error: BaseException, label: str, what: str) -> DeviceError | None:
    """An error of DALI's in words, if it is one of the GPU, its driver or of memory; None if it is not.

    Args:
        error: what DALI raised.
        label: where.
        what: what needed memory.
    """
    text = str(error)
    cause = cause_of(text) or text or type(error).__name__
    if isinstance(error, MemoryError) or any(words in text for words in _OUT_OF_MEMORY):
        return DeviceError(
            f"{label} needs more memory than there is for {what}: "
            f"{cause}; use a smaller batch or a smaller Options(device_memory=...)"
        )
    if any(words in text for words in _DEVICE_FAILURES):
        forked = "(a process that was forked from one that used CUDA cannot use it) " * ("InitializationError" in text)
        return DeviceError(
            f"{label} failed, and not because of the data: {cause}; {forked}start the process again, and if the error "
            "comes back, look at nvidia-smi and the kernel's log (Xid), or run with Options(device='cpu')"
        )
    return None


def _kept(feed: Feed) -> Feed:
    """The same rows in memory of their own: views of a block of a file would hold all of it."""
    values = [
        [bytes(row) if isinstance(row, memoryview) else row for row in rows] if isinstance(rows, list) else rows
        for rows in feed.values
    ]
    return Feed(feed.size, tuple(values))


def _entry(value: Value, rows: Sequence[Any] | Array) -> _Entry:
    """Decide from the first batch how an input enters, where the spec leaves something open."""
    if value.spec.dtype is bytes or isinstance(rows[0], (bytes, memoryview, bytearray)):
        return _Entry("bytes", "uint8", 1)
    if isinstance(rows, np.ndarray):
        batch = wrap(rows)
        return _Entry("batch", str(batch.dtype), batch.ndim - 1)
    first = wrap(rows[0])
    rank = first.ndim if value.spec.rank is None else value.spec.rank
    return _Entry("rows", str(first.dtype if value.spec.dtype is None else np.dtype(value.spec.dtype)), rank)


def _inputs(d: Lowering, program: Program, entries: dict[int, _Entry]) -> dict[Value, Any]:
    """The nodes of a program's inputs. Parameters and encoded bytes stay on the CPU."""
    calls = [value for value in program.values if isinstance(value, Apply)]
    images = {
        x for call in calls for x in call.x if not call.op.foreign or x.spec.layout is not None or x.spec.rank == 3
    }
    nodes: dict[Value, Any] = {}
    for n, value in enumerate(program.inputs):
        if isinstance(value, Const):
            nodes[value] = _constant(d, value.value, d.device if value in images else "cpu")
            continue
        entry = entries[n]
        # An array of rank 3 without a layout is an image {HWC}, as in TensorSpec.require.
        layout = value.spec.layout or ("HWC" if entry.ndim == 3 and value in images else None)
        node = d.fn.external_source(
            name=f"input{n}",
            no_copy=True,
            dtype=d.dtype(entry.dtype),
            ndim=entry.ndim,
            layout=layout,
            preserve=True,
        )
        moves = d.device == "gpu" and entry.kind != "bytes" and value in images
        nodes[value] = node.gpu() if moves else node
    return nodes


def _constant(d: Lowering, value: Any, device: str) -> Any:
    if isinstance(value, bytes):
        return d.types.Constant(np.frombuffer(value, np.uint8), device="cpu")
    if isinstance(value, np.ndarray):
        return d.types.Constant(wrap(value), device=device)
    return value.item() if isinstance(value, np.generic) else value


def _lower(d: Lowering, value: Value, nodes: dict[Value, Any]) -> Any:
    if isinstance(value, Item):
        return nodes[value.value][value.index]
    if not isinstance(value, Apply):
        raise TypeError(f"{value!r} is not an image value")
    if not value.op.supports("dali"):
        raise PlanError(f"{value.op.name} has no DALI form; run it with Options(backend='numpy') or as a Python map")
    try:
        return value.op.dali(d, *(nodes[below] for below in value.inputs))
    except Exception as error:
        where = f" ({value.line})" if value.line else ""
        raise GpupipeError(f"{value.op.name}{where} cannot be built as DALI nodes: {cause_of(str(error))}") from error


def _delivered(d: Lowering, node: Any) -> Any:
    """A result where images are: some operators, and constants, are on the CPU whatever the device."""
    if d.device == "cpu":
        return node
    if isinstance(node, d.types.ScalarConstant):
        return d.types.Constant(node.value, dtype=node.dtype, shape=(), device="gpu")
    return node.gpu() if getattr(node, "device", "") == "cpu" else node


def _promises(value: Apply, nodes: dict[Value, Any]) -> list[Any]:
    """The first input of a user's function and all that it gave, as nodes."""
    given, made = nodes[value.x[0]], nodes[value]
    return [given, *(made if isinstance(made, tuple) else (made,))]


def _to_numpy(output: Any, size: int) -> Any:
    """A TensorListCPU as one array[B, ...], or as a list of arrays where shapes differ. They own DALI's buffers."""
    if output.is_dense_tensor():
        return np.asarray(_POOL.lend(output.as_tensor()))[:size]
    rows = [np.asarray(_POOL.lend(output[row])) for row in range(size)]
    return np.stack(rows) if len({row.shape for row in rows}) == 1 else rows


def _check(value: Value, result: Any) -> None:
    """Compare a result with what its op promised.

    Raises:
        SpecError: it is something else; a user's op or function was declared wrongly.
    """
    for row in result:
        got = TensorSpec(tuple(row.shape), row.dtype)
        if not value.spec.accepts(got):
            raise _unlike(value, value.spec, str(got))


def _unlike(value: Value, spec: TensorSpec, got: str) -> SpecError:
    made = value.value if isinstance(value, Item) else value
    name = made.op.name if isinstance(made, Apply) else repr(made)
    where = f" ({made.line})" if isinstance(made, Apply) and made.line else ""
    return SpecError(f"{name}{where} was declared as {spec}, DALI gave {got}; correct its spec")


def _separate(results: list[Any]) -> list[Any]:
    """Copy results that share memory with an earlier one: in DALI a reshape is a view, and so is a needless cast."""
    for n, later in enumerate(results):
        for earlier in results[:n]:
            if overlap(earlier, later):
                results[n] = [copied(row) for row in later] if isinstance(later, list) else copied(later)
                break
    return results


# As DALI's libraries say it (their strings); everything else that fails in a run is taken for bad data.
_DEVICE_FAILURES = ("CUDA runtime API error", "CUDA driver API error", "CUDA Driver API error", "NVML")
_OUT_OF_MEMORY = (
    "CUDA allocation failed",
    "Can't allocate",
    "cudaErrorMemoryAllocation",
    "CUDA_ERROR_OUT_OF_MEMORY",
    "std::bad_alloc",
)

_OPERATOR = re.compile(r"operator `(?:nvidia\.dali\.)?(?:fn\.)?([\w.]+)`")
_NOISE = re.compile(r"^(Critical error in pipeline|Current pipeline object|C\+\+ context|Assert on .* failed: ?)|^$")
_NVIMGCODEC = {"'#3'": "damaged image", "'#4'": "no image, or a kind it cannot read"}


def cause_of(text: str) -> str:
    """DALI's own words about a failure without what it wraps around them: the operator and the cause."""
    operator = _OPERATOR.search(text)
    words = text.rpartition("encountered:")[2]
    lines = [re.sub(r"^Assert on .*? failed: ", "", line.strip()) for line in words.splitlines()]
    cause = " ".join(line.rstrip(" :") for line in lines if line and not _NOISE.match(line))
    for code, meaning in _NVIMGCODEC.items():
        cause = cause.replace(f"nvImageCodec failure: {code}", f"nvImageCodec failure {code} ({meaning})")
    return f"{operator[1]}: {cause}" if operator else cause


_PROBE = """
import io, sys
import numpy as np
from PIL import Image
from nvidia.dali import Pipeline, fn, types
from nvidia.dali.tensors import TensorCPU, TensorListCPU
files, starts = [], []
for n in range(32):
    ramp = np.add.outer(np.arange(375 + n), np.arange(500 - n))[..., None] * np.array([1, 2, 3]) // 8 % 256
    file = io.BytesIO()
    Image.fromarray(ramp.astype(np.uint8)).save(file, "JPEG", subsampling=n % 3)
    files.append(file.getvalue())
    starts.append([n, 2 * n])
pipeline = Pipeline(batch_size=32, num_threads=2, device_id=int(sys.argv[1]), prefetch_queue_depth=1)
with pipeline:
    data = fn.external_source(name="data", dtype=types.UINT8, ndim=1)
    start = fn.external_source(name="start", dtype=types.INT32, ndim=1)
    window = dict(start=start, shape=[200, 300], axis_names="HW")
    options = dict(device="mixed", adjust_orientation=False, jpeg_fancy_upsampling=True)
    pipeline.set_outputs(fn.decoders.image_slice(data, **options, **window),
                         fn.slice(fn.decoders.image(data, **options), **window))
pipeline.build()
for _ in range(8):
    pipeline.feed_input("data", TensorListCPU([TensorCPU(file) for file in files], contiguous=False))
    pipeline.feed_input("start", np.array(starts, np.int32))
    a, b = (output.as_cpu().as_array().astype(int) for output in pipeline.run())
    if abs(a - b).max() > 2:
        sys.exit("regions differ from the whole image")
"""


def probe_region_decode(device_id: int) -> bool:
    """Try whether region decode works on a GPU as the ops ask for it, in a process of its own: it may crash.

    nvImageCodec 0.9.0 fails there on some GPUs (NVIDIA/nvImageCodec#55), so regions are decoded on a GPU only after
    this succeeded in this process. Takes some seconds the first time; the answer is remembered.
    """
    if device_id not in _REGION_DECODE:
        try:
            done = subprocess.run([sys.executable, "-c", _PROBE, str(device_id)], capture_output=True, timeout=120)
            _REGION_DECODE[device_id] = done.returncode == 0
        except subprocess.TimeoutExpired:
            _REGION_DECODE[device_id] = False
    return _REGION_DECODE[device_id]

"""stand_in_gpu: a pytest plugin that puts a GPU there where none is: `python -m pytest -p tests.stand_in_gpu ...`

DALI computes on the CPU; everything else believes in a GPU: "auto", the executor, the hand-over, array code, repairs
and states. The module `cupy` is a stand-in over NumPy, whose arrays refuse to become NumPy arrays unasked, and take
nothing but their like and numbers as operands, as CuPy's do. It finds Python that takes an array of a device for one of
the host, and an iterator whose arrays are now on a device and now on the host. It says nothing of kernels, streams or
memory.

What says nothing new there is left out: `LEFT_OUT`, and with `--passed-on-host FILE` each test that passed on the host
and never asked for a GPU (tests/asked.py), by the file that tests/passed.py writes. At the end it prints how many
executors ran how many batches on it, with those of pytest-xdist's workers; fewer batches than `--stand-in-batches` fail
the session.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from numpy.lib.mixins import NDArrayOperatorsMixin

from tests.passed import passed_on_host

REFUSAL = (
    "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly."
)
"""CuPy's words."""
CUDA = 2
"""DLPack's number for memory of an NVIDIA GPU."""


WHY_LEFT_OUT = {
    "starts processes, which have no stand-in": "benchmarks cli tensors chains/test_memory.py reliability/test_kill.py "
    "reliability/test_soak.py test_imports.py test_packaging.py",
    "chains or programs on the CPU": "algebra/test_random_rewrites.py differential reliability/test_formats.py "
    "reliability/test_hostile_files.py reliability/test_interrupts.py reliability/test_resume_programs.py "
    "reliability/test_shutdown.py",
    "bytes or processes of the host alone": "fuzz extract behaviour/test_process_functions.py "
    "behaviour/test_process_map.py reliability/test_failed_reads.py reliability/test_reader_faults.py",
    "hands tensors to PyTorch, which takes no arrays of the simulated GPU": "docs",
    "compares resized pixels with those of Keras": "behaviour/test_image_folder.py",
    "lowers for a real GPU itself": "conformance/test_gpu_graphs.py",
    "reads sources, or a table of names": "conformance/test_references.py conformance/test_tfdata_names.py "
    "test_security.py test_sizes.py",
}
LEFT_OUT = [f"tests/{name}" for names in WHY_LEFT_OUT.values() for name in names.split()]
"""What is not run, since no batch of it would go through the stand-in. Nearly all slow tests are among it."""
ON_THE_HOST = frozenset({"numpy", "fast", "dali-cpu"})
"""Executors, which tests take as `backend`, `executor` or `kind`, that no batch goes through the stand-in with."""


@dataclass
class Used:
    """What ran on the stand-in."""

    executors: int = 0
    batches: int = 0


USED = Used()


class Stream:
    """A stream; a context, as CuPy's."""

    def __init__(self, non_blocking: bool = False) -> None:
        self.non_blocking = non_blocking

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def synchronize(self) -> None:
        """Nothing runs behind anybody's back."""


class Device(Stream):
    """A GPU; a context, as CuPy's."""

    def __init__(self, ordinal: int = 0) -> None:
        super().__init__()
        self.id = int(ordinal)


def host(x: Any) -> Any:
    """The NumPy array in a stand-in, or a number.

    Raises:
        TypeError: anything else, a NumPy array (without axes, too) or a list among it, as CuPy says.
    """
    if isinstance(x, DeviceNumbers):
        return x.values
    if isinstance(x, int | float | complex | np.generic):
        return x
    raise TypeError(f"Unsupported type {type(x)}")


def index(key: Any) -> Any:
    """What NumPy is indexed with; CuPy takes arrays of the host here, and copies them."""
    if isinstance(key, tuple):
        return tuple(map(index, key))
    return key.values if isinstance(key, DeviceNumbers) else key


OF_THE_HOST = "shape dtype ndim size nbytes item tolist strides flags".split()
OF_THE_DEVICE = "astype reshape view transpose copy sum mean min max all any std T".split()
"""What an array gives for its host, and what is an array again."""


class DeviceNumbers(NDArrayOperatorsMixin):
    """What gpupipe, its tests and their users may ask of a CuPy array."""

    __array_priority__ = 1000

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(REFUSAL)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, out: Any = None, **given: Any) -> Any:
        if method != "__call__":
            return NotImplemented
        if out is not None:
            given["out"] = tuple(map(host, out))
        result = getattr(ufunc, method)(*map(host, inputs), **given)
        return DeviceNumbers(result) if out is None else out[0]

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {**self.values.__array_interface__, "version": 3, "stream": 1}

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0

    @property
    def device(self) -> Device:
        return Device()

    def __getattr__(self, name: str) -> Any:
        if name in OF_THE_HOST:
            return getattr(self.values, name)
        if name in OF_THE_DEVICE:
            found = getattr(self.values, name)
            return (lambda *a, **k: DeviceNumbers(found(*a, **k))) if callable(found) else DeviceNumbers(found)
        raise AttributeError(name)

    def get(self, *_: Any, **__: Any) -> Any:
        return self.values.copy()

    def set(self, array: Any, stream: Any = None) -> None:
        assert isinstance(array, np.ndarray), "CuPy sets what the host has"
        assert (array.dtype, array.shape) == (self.dtype, self.shape)
        self.values[...] = array

    def __len__(self) -> int:
        return len(self.values)

    def __iter__(self) -> Any:
        return map(DeviceNumbers, self.values)

    def __getitem__(self, key: Any) -> DeviceNumbers:
        return DeviceNumbers(self.values[index(key)])

    def __setitem__(self, key: Any, value: Any) -> None:
        self.values[index(key)] = host(value)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __int__(self) -> int:
        return int(self.values)

    def __float__(self) -> float:
        return float(self.values)


class DeviceTensor:
    """What gpupipe asks of DALI's `TensorGPU`."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(np.asarray(self.tensor).__array_interface__)

    def __dlpack__(self, *, stream: Any = None, max_version: Any = None, copy: Any = None) -> Any:
        assert stream == -1, "what is handed over is finished: no stream is to wait for it"
        return np.asarray(self.tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CUDA, 0

    def as_cpu(self) -> Any:
        return self.tensor


def in_memory(array: DeviceNumbers | DeviceTensor) -> Any:
    """What lies in the memory of the GPU, on the host."""
    return array.values if isinstance(array, DeviceNumbers) else array.tensor


class DeviceTensors:
    """What gpupipe asks of DALI's `TensorListGPU`."""

    def __init__(self, tensors: Any) -> None:
        self.tensors = tensors

    def is_dense_tensor(self) -> bool:
        return bool(self.tensors.is_dense_tensor())

    def as_tensor(self) -> DeviceTensor:
        return DeviceTensor(self.tensors.as_tensor())

    def __getitem__(self, row: int) -> DeviceTensor:
        return DeviceTensor(self.tensors[row])


def stand_in_cupy() -> ModuleType:
    """The module `cupy`."""
    cupy: Any = ModuleType("cupy")
    cupy.__spec__ = ModuleSpec("cupy", None)  # whether a module is there, importlib reads here

    def asarray(x: Any, dtype: Any = None) -> DeviceNumbers:
        if isinstance(x, DeviceNumbers) and dtype in (None, x.dtype):
            return x
        return DeviceNumbers(np.array(x.values if isinstance(x, DeviceNumbers) else x, dtype))

    def from_dlpack(x: Any) -> DeviceNumbers:
        if x.__dlpack_device__()[0] != CUDA:
            raise TypeError("CPU arrays cannot be directly imported to CuPy.")
        return DeviceNumbers(x.__dlpack__(stream=1, max_version=(1, 0)))

    def several(join: Any) -> Any:
        def call(arrays: Any, axis: int = 0) -> DeviceNumbers:
            arrays = list(arrays)
            if not all(isinstance(x, DeviceNumbers) for x in arrays):
                raise TypeError("Only cupy arrays can be concatenated")
            return DeviceNumbers(join([x.values for x in arrays], axis))

        return call

    cupy.ndarray = DeviceNumbers
    cupy.asarray = cupy.array = asarray
    cupy.from_dlpack = from_dlpack
    cupy.empty = lambda shape, dtype: DeviceNumbers(np.empty(shape, dtype))
    cupy.ascontiguousarray = lambda x: x if x.flags.c_contiguous else DeviceNumbers(np.ascontiguousarray(host(x)))
    cupy.stack, cupy.concatenate = several(np.stack), several(np.concatenate)
    cupy.roll = lambda x, shift, axis=None: DeviceNumbers(np.roll(host(x), shift, axis))
    cupy.asnumpy = lambda x: x.get()
    runtime = SimpleNamespace(deviceSynchronize=lambda: None)
    cupy.cuda = SimpleNamespace(Device=Device, runtime=runtime, Stream=Stream, get_current_stream=Stream)
    for name in "float16 float32 float64 uint8 int32 int64 bool_".split():
        setattr(cupy, name, getattr(np, name))
    return cupy  # type: ignore[no-any-return]


def install() -> None:
    """Put the GPU there, before any test module looks for one.

    Raises:
        MissingDependencyError: DALI is not installed.
    """
    from gpupipe.transform import array, machine
    from gpupipe.transform.dali import copying, feeding, library
    from gpupipe.transform.dali import executor as dali

    real, lowering, make = library.import_dali(), dali.Lowering, dali.DaliExecutor.__init__
    hand_over = array.to_device_array

    class Pipeline(real.pipeline):  # type: ignore[name-defined,misc]
        def __init__(self, **arguments: Any) -> None:
            self.on_stand_in = arguments.get("device_id") is not None
            super().__init__(**{**arguments, "device_id": None})

        def share_outputs(self, *arguments: Any) -> Any:
            outputs = super().share_outputs(*arguments)
            USED.batches += self.on_stand_in
            return outputs

    def init(
        self: Any, program: Any, batch_size: int, threads: int, device_id: int | None = None, *others: Any, **named: Any
    ) -> None:
        USED.executors += device_id is not None
        make(self, program, batch_size, threads, device_id, *others, **named)

    tensor = real.tensors.TensorCPU
    tensors = SimpleNamespace(TensorCPU=tensor, TensorListCPU=real.tensors.TensorListCPU)
    tensors.TensorGPU = lambda array, layout, device_id: tensor(host(array))

    sys.modules["cupy"] = stand_in_cupy()
    machine.installed = lambda: (1, 13)  # type: ignore[assignment]
    library.import_dali = lambda: replace(real, pipeline=Pipeline, tensors=tensors)  # type: ignore[assignment]
    dali.to_device_array = lambda output, size: hand_over(DeviceTensors(output), size)  # type: ignore[attr-defined]
    copying.copy_to_gpu = lambda array, device_id: DeviceTensor(tensor(feeding.wrap(array).copy()))
    copying.copy_on_gpu = lambda array, device_id: DeviceTensor(tensor(np.asarray(in_memory(array)).copy()))
    dali.Lowering = lambda fn, types, math, device, decoder, regions, *others: lowering(  # type: ignore[assignment,misc]
        fn, types, math, "cpu", "cpu", regions, *others
    )
    dali.DaliExecutor.__init__ = init  # type: ignore[method-assign]


def note_kinds(kinds: dict[int, str], element: Any) -> None:
    """Note where the arrays of an element are, by the numbers of its leaves.

    Raises:
        AssertionError: one is elsewhere than in an element before.
    """
    from gpupipe.structure import flatten
    from gpupipe.transform.array import goes_to_gpu, on_gpu

    for i, leaf in enumerate(flatten(element)[0]):
        if on_gpu(leaf) or goes_to_gpu(leaf):
            kind = "the GPU" if on_gpu(leaf) else "the host"
            assert kinds.setdefault(i, kind) == kind, f"leaf {i} is on {kind}, and was on {kinds[i]} before"


def watch_kinds() -> None:
    """Have every iterator fail that gives arrays of the GPU and of the host as the same leaf."""
    from gpupipe.load.iterator import DatasetIterator

    give, seen = DatasetIterator._next, WeakKeyDictionary[Any, dict[int, str]]()

    def watched(self: Any) -> Any:
        element = give(self)
        note_kinds(seen.setdefault(self, {}), element)
        return element

    DatasetIterator._next = watched  # type: ignore[method-assign]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stand-in-batches", type=int, default=0, help="batches that the stand-in GPU must have run")
    parser.addoption("--passed-on-host", metavar="FILE", help="tests that are left out if they never asked for a GPU")


def pytest_configure() -> None:
    install()
    watch_kinds()


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    root, path = config.rootpath, collection_path.resolve()
    return True if path.is_relative_to(root) and path.relative_to(root).as_posix() in LEFT_OUT else None


def names_the_host(item: pytest.Item) -> bool:
    """Whether a test is for an executor of the host."""
    given = item.callspec.params if isinstance(item, pytest.Function) and hasattr(item, "callspec") else {}
    named = (given.get(name) for name in ("backend", "executor", "kind"))
    return any(isinstance(value, str) and value in ON_THE_HOST for value in named)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out those that need the machine for themselves, that name an executor of the host, or that passed there."""
    name = config.getoption("--passed-on-host")
    passed = passed_on_host(Path(name)) if name else set()

    def says_nothing_new(item: pytest.Item) -> bool:
        return item.get_closest_marker("alone") is not None or names_the_host(item) or item.nodeid in passed

    left_out = [item for item in items if says_nothing_new(item)]
    config.hook.pytest_deselected(items=left_out)
    out = set(left_out)
    items[:] = [item for item in items if item not in out]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a worker of pytest-xdist ran."""
    executors, batches = getattr(node, "workeroutput", {}).get("stand_in_gpu", (0, 0))
    USED.executors += executors
    USED.batches += batches


def pytest_sessionfinish(session: pytest.Session) -> None:
    worker: dict[str, Any] | None = getattr(session.config, "workeroutput", None)
    if worker is not None:  # of pytest-xdist, whose numbers are added up
        worker["stand_in_gpu"] = (USED.executors, USED.batches)
        return
    least = session.config.getoption("--stand-in-batches") or 0
    if USED.batches < least and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    least = config.getoption("--stand-in-batches")
    terminalreporter.write_line(
        f"stand-in GPU: {USED.executors} executors ran {USED.batches} batches on it, at least {least} are wanted; "
        f"not run there: {', '.join(LEFT_OUT)}"
    )

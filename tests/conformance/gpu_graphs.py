"""gpu_graphs: the graphs that a GPU would run, lowered on a machine without one, and what DALI would refuse of them.

A pipeline with ``device_id=0`` cannot even be made without a driver; one with None can, and takes GPU operators as long
as nobody builds it. So the real executor lowers a program for the GPU into such a pipeline, whose `build` is replaced
by a look at it. Serialising checks schemas, the names and types of arguments, the number and devices of inputs. Then,
operator by operator: is there one for its device, are named arguments on the CPU and inputs where the schema wants
them, are results on the GPU, and is there a kernel for the dtypes, by the symbols of DALI's library. Nothing runs.
"""

from __future__ import annotations

import functools
import importlib
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpupipe.transform.dali import copying, library
from gpupipe.transform.dali import executor as dali
from gpupipe.transform.dali.failures import cause_of
from gpupipe.transform.dali.feeding import entry_of
from gpupipe.transform.program import Feed, Program

__all__ = ["GpuGraph", "has_symbols", "looked_at", "lowered", "lowered_copy", "lowering_for_a_gpu", "written_by_hand"]

KERNELS = {
    "Cat": "TensorJoinGPU<{x}, false>",
    "CropMirrorNormalize": "SliceFlipNormalizeGPU<{y}, {x}, 2, ",
    "Erase": "EraseImplGpu<{x}, 3, ",
    "Flip": "FlipGPU<{x}>",
    "RandomResizedCrop": "SeparableResamplingGPUImpl<{y}, {x}, 2, ",
    "Resize": "SeparableResamplingGPUImpl<{y}, {x}, 2, ",
    "Slice": "SliceGPU<{y}, {x}, 3>",
    "Stack": "TensorJoinGPU<{x}, true>",
    "WarpAffine": "WarpGPU<dali::kernels::AffineMapping<2>, 2, {y}, {x}, ",
}
"""What the symbol of a kernel holds, for the operators whose GPU code exists for some dtypes only: x of the input, y of
the output. The others are made for every dtype (Cast, Reshape, arithmetic) or by the size of an element (Transpose)."""

_CPP = {
    "bool": "bool", "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned int",
    "uint64": "unsigned long", "int8": "signed char", "int16": "short", "int32": "int", "int64": "long",
    "float16": "dali::float16", "float": "float", "float64": "double",
}  # fmt: skip
"""DALI's dtypes as a demangled symbol says them."""

_SAME = set(
    "Flip Slice Erase WarpAffine RandomResizedCrop Resize Transpose Reshape Reinterpret Copy MakeContiguous".split()
)
"""Operators whose result has the dtype of their input unless they are given one."""


@dataclass
class GpuGraph:
    """What is in the graph of one program.

    Attributes:
        wrong: what DALI would refuse, in words; empty if it would run.
        operators: (schema, device) of each operator, and how often.
        typed: operators whose kernels were looked up.
        copied: results of the CPU that operators of the GPU read: DALI copies each once a batch, whoever reads it.
        decoders: the arguments of each decoder.
    """

    wrong: list[str] = field(default_factory=list)
    operators: Counter[tuple[str, str]] = field(default_factory=Counter)
    typed: int = 0
    copied: set[tuple[int, str]] = field(default_factory=set)
    decoders: list[dict[str, Any]] = field(default_factory=list)


class _Looked(Exception):
    """Carries what was found instead of a built pipeline."""


def _looked_at_where_built(pipeline: Any) -> Callable[..., Any]:
    """Makes pipelines as a class of DALI's does; those of a GPU without one, and their `build` raises `_Looked`."""

    def made(**arguments: Any) -> Any:
        if arguments["device_id"] is None:
            return pipeline(**arguments)
        one = pipeline(**{**arguments, "device_id": None})

        def build() -> None:
            raise _Looked(one)

        one.build = build
        return one

    return made


class _Operators:
    """`nvidia.dali.fn`, with a copy of the first input in place of a Python function, which cannot be serialised.

    Its other inputs are not in the graph then.
    """

    def __init__(self, fn: Any) -> None:
        self._fn = fn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fn, name)

    def python_function(self, x: Any, *others: Any, **_: Any) -> Any:
        if any(one.device != "cpu" for one in (x, *others)):
            raise ValueError("a Python function needs its input on the CPU")
        return self._fn.copy(x)


@contextmanager
def lowering_for_a_gpu() -> Iterator[None]:
    """Inside, pipelines are looked at where they would be built."""
    real, watch = library.import_dali(), library.POOL.watch
    kept = library.import_dali
    looked_at_pipeline, operators = _looked_at_where_built(real.pipeline), _Operators(real.fn)
    library.import_dali = lambda: replace(real, pipeline=looked_at_pipeline, fn=operators)  # type: ignore[assignment]
    library.POOL.watch = lambda pipeline: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        library.import_dali = kept
        library.POOL.watch = watch  # type: ignore[method-assign]


def lowered(program: Program, feed: Feed, regions: bool = False, **others: Any) -> GpuGraph:
    """The graph that GPU 0 would run for a program; inside `lowering_for_a_gpu`.

    Args:
        program: what to compute.
        feed: a batch, which tells how its inputs enter.
        regions: whether decoders may decode regions.
        others: that the executor is given.
    """
    if regions:
        dali.REGION_DECODE.add(0)
    executor = dali.DaliExecutor(program, feed.size, 2, 0, **others)
    entries = tuple(entry_of(program.inputs[n], feed.values[n]) for n in executor._fed)
    try:
        executor._build(entries)
    except Exception as error:
        cause = error if isinstance(error, _Looked) else error.__cause__
        if isinstance(cause, _Looked):
            return looked_at(cause.args[0], len(program.outputs))
        return GpuGraph([f"{type(error).__name__}: {error}"])
    finally:
        executor.close()
        dali.REGION_DECODE.clear()
    raise AssertionError("the pipeline was built")


def lowered_copy(source: str, dtype: Any) -> GpuGraph:
    """The graph that copies an array of a device to GPU 0; inside `lowering_for_a_gpu`."""
    try:
        copying._copying(source, np.dtype(dtype), 1, 0)
    except _Looked as found:
        return looked_at(found.args[0], 1)
    raise AssertionError("the pipeline was built")


def written_by_hand(make: Callable[[], Any]) -> GpuGraph:
    """The graph of the first pipeline of a GPU that `make` builds with `nvidia.dali.Pipeline` itself."""
    module: Any = importlib.import_module("nvidia.dali")
    kept = module.Pipeline
    module.Pipeline = _looked_at_where_built(kept)
    try:
        make()
    except _Looked as looked:
        return looked_at(looked.args[0], None)
    finally:
        module.Pipeline = kept
    raise AssertionError("the pipeline was built")


def looked_at(pipeline: Any, delivered: int | None) -> GpuGraph:
    """What DALI would say of a graph that was not built.

    Args:
        pipeline: after `set_outputs`.
        delivered: how many of the first outputs must be on the GPU; the others are shapes to check. None: all.
    """
    try:
        pipeline.serialize()
    except Exception as error:
        return GpuGraph([f"it cannot be serialised: {cause_of(str(error)) or str(error)[:300]}"])
    graph = GpuGraph()
    for n, node in enumerate(pipeline._graph_outputs[:delivered]):
        if node.device != "gpu":
            graph.wrong.append(f"result {n} is on the {node.device}, and is delivered as an array of the GPU")
    dtypes: dict[int, str | None] = {}
    for op in pipeline._ops:
        name, device = op._op.schema.Name(), op.spec.OutputDevice(0) if op._op._device != "mixed" else "mixed"
        graph.operators[name, device] += 1
        if name.startswith("decoders__"):
            graph.decoders.append({**op._op._init_args, "device": device})
        if name not in _registered()[device]:
            graph.wrong.append(f"{name} has no {device} operator")
        _look_at_inputs(op, name, device, graph)
        given = [dtypes.get(id(node.source)) for node in op.inputs[: op.spec.NumRegularInput()]]
        dtypes[id(op)] = made = _dtype_of(op, name, given[0] if given else None)
        if device == "gpu" and name in KERNELS and given and given[0] and made:
            graph.typed += 1
            if not _has_kernel(name, given[0], made):
                graph.wrong.append(f"{name} has no GPU kernel from {given[0]} to {made}")
    return graph


def _look_at_inputs(op: Any, name: str, device: str, graph: GpuGraph) -> None:
    spec, schema = op.spec, op._op.schema
    for i in range(spec.NumInput()):
        where = spec.InputDevice(i)
        if i >= spec.NumRegularInput():
            if where != "cpu":
                graph.wrong.append(f"{name}: a named argument is on the {where}")
            continue
        wanted = schema.GetInputDevice(i, where, device)
        wanted = "cpu" if wanted == "mixed" else wanted  # what a mixed operator reads is on the CPU
        if wanted is not None and wanted != where:
            graph.wrong.append(f"{name} on the {device}: input {i} is on the {where}, not on the {wanted}")
        source = op.inputs[i].source
        if where == "gpu" and source is not None and source.spec.OutputDevice(0) == "cpu":
            graph.copied.add((id(source), op.inputs[i].name))


def _dtype_of(op: Any, name: str, given: str | None) -> str | None:
    """The dtype of an operator's first result in DALI's words, as far as its arguments say it."""
    dtype = op._op._init_args.get("dtype", getattr(op._op, "_dtype", None))
    if dtype is not None:
        return str(dtype).rpartition(".")[2].lower()
    if name.startswith(("decoders__", "ImageDecoder")):
        return "uint8"
    if name == "CropMirrorNormalize":
        return "float"
    return given if name in _SAME else None


@functools.cache
def _registered() -> dict[str, set[str]]:
    backend = library.import_dali().backend
    return {
        "cpu": set(backend.RegisteredCPUOps(True)),
        "gpu": set(backend.RegisteredGPUOps(True)),
        "mixed": set(backend.RegisteredMixedOps(True)),
    }


def has_symbols() -> bool:
    """Whether the symbols of DALI's library can be read here."""
    return shutil.which("nm") is not None


@functools.cache
def _symbols() -> str:
    operators = Path(library.import_dali().backend.__file__).parent / "libdali_operators.so"
    listed = subprocess.run(["nm", "-C", str(operators)], capture_output=True, text=True, check=True, timeout=60).stdout
    kernels = {pattern.partition("<")[0] for pattern in KERNELS.values()}
    return "\n".join(line for line in listed.splitlines() if any(kernel in line for kernel in kernels))


@functools.cache
def _has_kernel(name: str, x: str, y: str) -> bool:
    return not has_symbols() or KERNELS[name].format(x=_CPP[x], y=_CPP[y]) in _symbols()

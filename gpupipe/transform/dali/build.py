"""build: build a program as DALI nodes. DALI itself is passed in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from ...classes import dataclass
from ...errors import GpupipeError, PlanError, SpecError
from ...graph.values import Apply, Const, Item, Value
from ...options import DecoderOptions
from ...spec import TensorSpec
from ..program import Program
from .failures import cause_of
from .feeding import LEGAL, VERIFIED, Entry, wrap
from .proof import BLOCK

__all__ = ["Lowering", "check_nodes", "delivered", "input_nodes", "lower", "promises"]


@dataclass(frozen=True, slots=True)
class Lowering:
    """The first argument of an op's `dali` method.

    Attributes:
        fn: `nvidia.dali.fn`.
        types: `nvidia.dali.types`.
        math: `nvidia.dali.math`.
        device: of the images, ``"cpu"`` or ``"gpu"``.
        decoder_device: the `device=` of decoders, ``"cpu"`` or ``"mixed"``.
        region_decode: whether `decoders.image_slice` may be used; else the whole image is decoded and sliced.
        decoding: the user's options of decoders on a GPU.
        threads: of the pipeline on the CPU.
        decoded: the images passed to `note_decoded`, and whether each is a region.
        unknown_channels: whether the number of channels of an image of this call is unknown: it may be 0, and differ.
        spec: of the first input of the graph's call, of which this may be a part.
    """

    fn: Any
    types: Any
    math: Any
    device: str
    decoder_device: str
    region_decode: bool
    decoding: DecoderOptions = field(default_factory=DecoderOptions)
    threads: int = 1
    decoded: list[tuple[Any, bool]] = field(default_factory=list)
    unknown_channels: bool = False
    spec: TensorSpec = TensorSpec(None)

    def note_decoded(self, image: Any, region: bool = False) -> Any:
        """Have the output of a decoder checked, see `proof`; return `image`."""
        self.decoded.append((image, region))
        return image

    def dtype(self, dtype: Any) -> Any:
        """The DALI type of a NumPy dtype."""
        found = np.dtype(dtype)
        if found not in LEGAL:
            raise SpecError(f"DALI has no dtype {found}")
        return getattr(self.types, "FLOAT" if found == np.float32 else str(found).upper())


def input_nodes(d: Lowering, program: Program, entries: dict[int, Entry]) -> dict[Value, Any]:
    """The nodes of a program's inputs. Parameters and encoded bytes stay on the CPU."""
    images = program.images
    nodes: dict[Value, Any] = {}
    for n, value in enumerate(program.inputs):
        if isinstance(value, Const):
            nodes[value] = _constant(d, value.value, d.device if value in images else "cpu")
            continue
        entry = entries[n]
        # An array of rank 3 without a layout is an image {HWC}, as in TensorSpec.require.
        layout = value.spec.layout or ("HWC" if entry.ndim == 3 and value in images else None)
        cached = entry.kind == "cached"
        node = d.fn.external_source(
            name=f"input{n}",
            device=d.device if cached else "cpu",
            no_copy=not cached,  # its rows lie apart, and a result of one row would be a view of what is kept
            dtype=d.dtype(entry.dtype),
            ndim=entry.ndim,
            layout=layout,
            preserve=True,
        )
        moves = d.device == "gpu" and entry.kind not in ("bytes", "cached") and value in images
        nodes[value] = node.gpu() if moves else node
    return nodes


def _constant(d: Lowering, value: Any, device: str) -> Any:
    if isinstance(value, bytes):
        return d.types.Constant(np.frombuffer(value, np.uint8), device="cpu")
    if isinstance(value, np.ndarray):
        return d.types.Constant(wrap(value), device=device)
    return value.item() if isinstance(value, np.generic) else value


def lower(d: Lowering, value: Value, nodes: dict[Value, Any]) -> Any:
    """The node of a value, built from the nodes of its inputs.

    Raises:
        PlanError: the op has no DALI form.
        GpupipeError: the op's `dali` method, or DALI in it, raised.
    """
    if isinstance(value, Item):
        return nodes[value.value][value.index]
    if not isinstance(value, Apply):
        raise TypeError(f"{value!r} is not an image value")
    if not value.op.supports("dali"):
        raise PlanError(f"{value.op.name} has no DALI form; run it with Options(backend='numpy') or as a Python map")
    spec = value.x[0].spec if value.x else d.spec
    try:
        return value.op.dali(
            replace(d, unknown_channels=_unknown_channels(value), spec=spec), *(nodes[below] for below in value.inputs)
        )
    except Exception as error:
        where = f" ({value.line})" if value.line else ""
        raise GpupipeError(f"{value.op.name}{where} cannot be built as DALI nodes: {cause_of(str(error))}") from error


def _unknown_channels(call: Apply) -> bool:
    """Whether the number of channels of an image of a call is unknown, or 0."""
    images = [(x.spec.shape, x.spec.layout or call.op.takes) for x in call.x if x.spec.rank == 3]
    return any(shape is not None and not shape[layout.index("C")] for shape, layout in images)


def delivered(d: Lowering, node: Any) -> Any:
    """Move a result to the images' device: some operators, and constants, are always on the CPU."""
    if d.device == "cpu":
        return node
    if isinstance(node, d.types.ScalarConstant):
        return d.types.Constant(node.value, dtype=node.dtype, shape=(), device="gpu")
    return node.gpu() if getattr(node, "device", "") == "cpu" else node


def promises(value: Apply, nodes: dict[Value, Any]) -> list[Any]:
    """The nodes of the first input and of all results of a user's function."""
    given, made = nodes[value.x[0]], nodes[value]
    return [given, *(made if isinstance(made, tuple) else (made,))]


def check_nodes(d: Lowering, images: Sequence[Any], proves: bool, verifies: bool) -> list[Any]:
    """Outputs with which the host checks decoded images: samples and shape, and each verified image.

    In place of an image that is not verified there is its first pixel.
    """
    out = []
    if verifies and images:
        whole = d.fn.external_source(name=VERIFIED, dtype=d.dtype(np.int32), ndim=1)
    for image in images:
        if proves:
            grid = d.fn.resize(image, size=[BLOCK, BLOCK], interp_type=d.types.INTERP_NN, antialias=False)
            beyond = {"out_of_bounds_policy": "pad", "fill_values": 0}
            block = d.fn.slice(image, start=[0, 0], shape=[BLOCK, BLOCK], axes=[0, 1], **beyond)
            out += [_on_host(d, d.fn.cat(grid, block, axis=0)), image.shape()]
        if verifies:
            given = d.fn.slice(image, start=[0, 0], shape=whole, axes=[0, 1], out_of_bounds_policy="trim_to_shape")
            out.append(_on_host(d, given))
    return out


def _on_host(d: Lowering, node: Any) -> Any:
    return node.cpu() if d.device == "gpu" else node

"""dali_function: any DALI operator inside a traced function, for what the catalogue lacks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from typing import Any, ClassVar

from gpupipe.classes import dataclass
from gpupipe.errors import PlanError, PlanTypeError, SpecError
from gpupipe.graph.classify import name_of
from gpupipe.graph.op import Array, Op
from gpupipe.graph.symbols import active_trace, apply
from gpupipe.ops._shared.geometry import full
from gpupipe.spec import Structure, TensorSpec, flatten

__all__ = ["DaliFunction", "dali_function", "known_size"]


@dataclass(frozen=True, slots=True)
class DaliFunction(Op):
    """Nodes of a DALI graph built by a user's function. Runs on the DALI executors only: it has no NumPy form.

    Attributes:
        fn: called with one node per input while the pipeline is built.
        structure: of its result.
        specs: of the leaves of its result. Several leaves are several results.
        same_size: whether results of unknown height and width are as large as the first input.

    Shapes: any -> `specs`
    """

    stateful: ClassVar[bool] = True
    foreign: ClassVar[bool] = True

    fn: Callable[..., Any]
    structure: Structure = field(repr=False)
    specs: tuple[TensorSpec, ...] = field(repr=False)
    same_size: bool = False
    call: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise PlanTypeError(f"dali_function needs a function, got {type(self.fn).__name__}")
        for spec in self.specs:
            if not isinstance(spec, TensorSpec):
                raise PlanTypeError(f"dali_function needs a TensorSpec for each result, got {spec!r}")
            if not spec.known or spec.dtype is bytes:
                raise SpecError(f"dali_function needs a spec with a numeric dtype and a rank, got {spec}")

    def infer(self, *xs: TensorSpec) -> TensorSpec | tuple[TensorSpec, ...]:
        return self.specs[0] if len(self.specs) == 1 else self.specs

    def size(self, hw: Array, *params: Array) -> Array:
        known = known_size(self.specs[0])
        if known is None and self.same_size:
            return hw
        # (-1, -1): unknown until the pixels are there, when the rows of a batch are compared
        return full(*(known or (-1, -1)), len(hw))

    def dali(self, d: Any, *args: Any) -> Any:
        result = self.fn(*args)
        leaves, structure = flatten(tuple(result) if type(result) is list and self.structure.kind is tuple else result)
        if structure != self.structure:
            wanted = self.structure.unflatten([str(spec) for spec in self.specs])
            raise SpecError(f"{name_of(self.fn)} needs to return nodes in the structure {wanted}, got {structure}")
        nodes = tuple(_placed(d, leaf, spec) for leaf, spec in zip(leaves, self.specs, strict=True))
        return nodes[0] if len(nodes) == 1 else nodes

    def promised(self, index: int, given: tuple[int, ...], layout: str | None) -> TensorSpec | None:
        spec = self.specs[index]
        if not self.same_size or spec.layout is None or spec.shape is None or len(given) < 2:
            return spec
        first = 1 if layout == "CHW" else 0
        sizes = dict(zip("HW", given[first : first + 2], strict=True))
        axes = zip(spec.shape, spec.layout, strict=True)
        return replace(spec, shape=tuple(sizes.get(axis) if n is None else n for n, axis in axes))


def known_size(spec: TensorSpec) -> tuple[int, int] | None:
    """Height and width of an image of this spec; None where either varies."""
    if spec.shape is None or len(spec.shape) != 3:
        return None
    height, width = spec.shape[1:] if spec.layout == "CHW" else spec.shape[:2]
    return None if height is None or width is None else (height, width)


def _placed(d: Any, node: Any, spec: TensorSpec) -> Any:
    """A result on the images' device, with the layout of its spec."""
    if not hasattr(node, "device") or not hasattr(node, "gpu"):
        raise SpecError(f"dali_function needs DALI nodes as results, got {type(node).__name__}")
    if d.device == "gpu" and node.device == "cpu":
        node = node.gpu()
    return node if spec.layout is None else d.fn.reshape(node, layout=spec.layout)


def dali_function(fn: Callable[..., Any], *args: Any, spec: Any, same_size: bool = False) -> Any:
    """Run any DALI operator inside a traced function. DALI executors only: there is no NumPy form.

    Args:
        fn: called as ``fn(*nodes)`` with one DALI node (or plain number) per item of `args`, once per pipeline, while
            it is built; returns nodes in the structure of `spec`. It can be an operator itself, say
            ``nvidia.dali.fn.gaussian_blur``, or ``functools.partial`` of one.
        args: values, at least one of them traced. On a GPU, images (and arrays of rank 3) are passed as GPU
            nodes; other host values stay on the CPU, where operators want their named arguments.
        spec: `TensorSpec` of the result for one element, with a layout if it is an image, or a tuple or dict of
            them. The shapes of every batch, and the dtypes of the first delivered one, are checked against it.
        same_size: whether an image whose height or width is None in `spec` is as large as the first argument. Otherwise
            a later op that needs the size (a crop, a resize) starts a stage of its own, as `explain()` shows.

    Returns:
        The result, in the structure of `spec`.

    gpupipe's guarantees end at `fn`. A random DALI operator in it numbers its samples by their index in the batch: it
    is neither repeatable nor the same for another batch size, on another executor or after a resume. Draw with
    gpupipe's ops and pass the numbers instead. Functions are compared by their code and the values they capture.

    Raises:
        SpecError: a spec has no dtype or rank; at run time: a result does not match `spec`.
        PlanError: called outside a traced function, or in a chain that runs on NumPy.

    Example:
        >>> from nvidia.dali import fn  # doctest: +SKIP
        >>> blur = functools.partial(fn.gaussian_blur, window_size=5)  # doctest: +SKIP
        >>> image_spec = TensorSpec((None, None, 3), "uint8", "HWC")
        >>> ds.map(lambda image: ops.dali_function(blur, image, spec=image_spec))  # doctest: +SKIP
    """
    if not args:
        raise PlanError("dali_function needs at least one argument, got none")
    specs, structure = flatten(spec)
    if not specs:
        raise PlanTypeError("dali_function needs a TensorSpec for each result, got None")
    op = DaliFunction(fn, structure, tuple(specs), bool(same_size))
    if active_trace() is None:
        raise PlanError("dali_function has no NumPy form and cannot take arrays; call it in a map that DALI runs")
    result = apply(op, *args)
    return structure.unflatten(result if len(specs) > 1 else [result])

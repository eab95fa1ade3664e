"""policy: the base of policies that apply a few of many ops to each image: RandAugment, TrivialAugment, AutoAugment.

The host draws which op each image gets in each layer, and how strongly. All ops that move pixels are one affine map.
On a GPU, DALI splits a batch by op, so an image costs what is done to it; all strengths of an image enter as one array.
In a graph on the CPU NumPy computes each image: two layers take 0.9 CPU-ms for 224x224 there, by DALI's nodes 2.9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from functools import partial
from typing import Any, ClassVar, Literal

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import PlanTypeError, SpecError
from gpupipe.graph.op import Array, Case, Op, check_number
from gpupipe.graph.symbols import apply
from gpupipe.ops._shared.affine import inverse_affine
from gpupipe.ops._shared.colour import Colour
from gpupipe.ops._shared.enhance import (
    brightened,
    brightened_dali,
    colored,
    colored_dali,
    contrasted,
    contrasted_dali,
    sharpened,
    sharpened_dali,
)
from gpupipe.ops._shared.fill import fills_of, parts_of
from gpupipe.ops._shared.on_host import on_host
from gpupipe.ops._shared.operands import spec_of_operand
from gpupipe.ops._shared.samples import noise, picture
from gpupipe.ops._shared.sometimes import where_dali
from gpupipe.ops._shared.travel import moved
from gpupipe.ops._shared.turn import WIDENED
from gpupipe.ops._shared.warp import Warp, inverted
from gpupipe.ops.adjust_sharpness import KERNEL
from gpupipe.ops.autocontrast import Autocontrast
from gpupipe.ops.convert_image_dtype import dtype_of
from gpupipe.ops.equalize import Equalize, equalized_dali
from gpupipe.ops.invert import Invert
from gpupipe.ops.sample import Sample
from gpupipe.ops.solarize import Solarize, thresholds
from gpupipe.random import BatchRng
from gpupipe.spec import TensorSpec

__all__ = [
    "MOST",
    "OPS",
    "USED",
    "Policy",
    "augmented",
    "evenly",
    "laid_out",
    "settings_of",
    "signed_strengths",
    "strengths",
]

OPS = (
    "identity",
    "shear_x",
    "shear_y",
    "translate_x",
    "translate_y",
    "rotate",
    "brightness",
    "color",
    "contrast",
    "sharpness",
    "posterize",
    "solarize",
    "autocontrast",
    "equalize",
    "invert",
)
"""What a layer may do to an image: a number in the drawn arrays is an index of this."""

USED = OPS[:-1]
"""The ops of RandAugment and TrivialAugment: all but inverting."""

MOST: dict[str, float] = {
    **dict.fromkeys(("shear_x", "shear_y"), 0.3),
    **dict.fromkeys(("translate_x", "translate_y"), 150 / 331),
    "rotate": 30.0,
    **dict.fromkeys(("brightness", "color", "contrast", "sharpness"), 0.9),
}
"""The greatest strength of each op that has one, in RandAugment and AutoAugment; translations: a share of the image."""

NUMBER: dict[str, int] = {name: number for number, name in enumerate(OPS)}

MOVING = frozenset(OPS[1:6])
"""The affine maps."""

SIGNED = frozenset(OPS[1:10])
"""Ops whose strength is negative half of the time."""

WARPED = NUMBER["rotate"]
"""The number of every affine map in the parameters that executors get."""

FIRST = 9 + 2
"""Where the numbers of the layers begin: after a kernel and the size of the image, which DALI needs for all of them."""

NUDGE = np.float32(1 / 256)
"""Pixels by which positions of shears are moved: by some strengths every fifth line lies exactly between two pixels,
where each executor's rounding would choose another one."""


def evenly(start: float, stop: float, count: int) -> Array:
    """`count` numbers from `start` to `stop`, as torch.linspace rounds them to float32."""
    if count == 1:
        return np.array([start], np.float32)
    first, last = np.float64(np.float32(start)), np.float64(np.float32(stop))
    step = np.float64((np.float32(last) - np.float32(first)) / np.float32(count - 1))
    k = np.arange(count)  # each product with its sum is rounded once
    return np.where(k < count // 2, first + step * k, last - step * (count - 1 - k)).astype(np.float32)


def strengths(name: str, bins: int, hw: Array, most: dict[str, float], bits: float) -> Array:
    """The strengths that an op may have, for each image of a batch: float64[B,bins]; zeros where it has none.

    Args:
        name: of the op.
        bins: how many there are.
        hw: int32[B,2], the sizes of the images.
        most: the greatest strength of each op; of "translate_x" and "translate_y" below 1 a share of the image.
        bits: how many bits posterizing takes away at most.
    """
    if name == "solarize":
        values = evenly(1.0, 0.0, bins)
    elif name == "posterize":
        values = np.rint(8 - np.arange(bins, dtype=np.float32) / np.float32(max(bins - 1, 1) / bits))
    elif name in ("translate_x", "translate_y") and most[name] < 1:
        sides, which = np.unique(hw[:, int(name == "translate_x")], return_inverse=True)
        table = np.stack([evenly(0.0, most[name] * side, bins) for side in sides.tolist()])
        return table[which.reshape(-1)].astype(np.float64)
    else:
        values = evenly(0.0, most[name], bins) if name in most else np.zeros(bins)
    return np.broadcast_to(values.astype(np.float64), (len(hw), bins))


def signed_strengths(
    ops: Array, index: Any, negative: Array, bins: int, hw: Array, most: dict[str, float], bits: float
) -> Array:
    """The strengths of drawn ops, float64[B,layers].

    Args:
        ops: int[B,layers], indices of `OPS`.
        index: which of the strengths, one number or int[B,layers].
        negative: bool[B,layers], whether a strength that has a sign is negative.
        bins: how many strengths there are.
        hw: as in `strengths`.
        most: as in `strengths`.
        bits: as in `strengths`.
    """
    places = np.broadcast_to(np.asarray(index, np.int64), ops.shape)
    found = np.zeros(ops.shape)
    for number in np.unique(ops).tolist():
        name, here = OPS[number], ops == number
        values = np.take_along_axis(strengths(name, bins, hw, most, bits), places, axis=1)
        found[here] = np.where(negative & (name in SIGNED), -values, values)[here]
    return found


def laid_out(ops: Array, strength: Array, hw: Array) -> tuple[Array, Array, Array]:
    """What executors need for one layer.

    Args:
        ops: int[B], indices of `OPS`.
        strength: float64[B], with their sign.
        hw: int32[B,2], the sizes of the images.

    Returns:
        Which op, int32[B], with one number for all affine maps; its number, float32[B]: a factor, a weight, a mask or
        a threshold; the matrices, float32[B,2,3].
    """

    def of(name: str, value: Array) -> Array:
        return np.where(ops == NUMBER[name], value, 0.0)

    shears, whole = np.degrees(np.arctan(strength)), np.trunc(strength)
    sheared = (ops == NUMBER["shear_x"]) | (ops == NUMBER["shear_y"])
    matrices = inverse_affine(
        hw,
        -of("rotate", strength),  # torchvision's `rotate` turns counter-clockwise
        (of("translate_x", whole), of("translate_y", whole)),
        1.0,
        (of("shear_x", shears), of("shear_y", shears)),
        (np.where(sheared, 0.0, hw[:, 1] / 2), np.where(sheared, 0.0, hw[:, 0] / 2)),
    )
    matrices[sheared, :, 2] += NUDGE
    numbers = of("brightness", 1 + strength) + of("color", 1 + strength) + of("contrast", 1 + strength)
    numbers += of("sharpness", -strength) + of("posterize", 256 - np.exp2(8 - np.clip(strength, 0, 8)))
    numbers += of("solarize", thresholds(255 * strength, "uint8"))
    kinds = np.where(np.isin(ops, [NUMBER[name] for name in MOVING]), WARPED, ops)
    tiny = (kinds == NUMBER["sharpness"]) & (hw < 3).any(axis=1)
    return np.where(tiny, NUMBER["identity"], kinds).astype(np.int32), numbers.astype(np.float32), matrices


_NUMPY: dict[str, Callable[[Array, Any], Array]] = {
    "brightness": brightened,
    "color": colored,
    "contrast": contrasted,
    "sharpness": sharpened,
    "posterize": lambda x, mask: x & np.uint8(mask),
    "solarize": lambda x, threshold: Solarize().reference(x, threshold),
    "autocontrast": lambda x, _: Autocontrast().reference(x),
    "equalize": lambda x, _: Equalize().reference(x),
    "invert": lambda x, _: Invert().reference(x),
}
"""Ops on colours in NumPy: of an image and the number of `laid_out`."""

_FAST = {**_NUMPY, "equalize": lambda x, _: Equalize().fast(x)}

_BY_NUMBER = {NUMBER[name]: (_NUMPY[name], _FAST[name]) for name in _NUMPY}

_DALI: dict[str, Callable[..., Any]] = {
    "brightness": brightened_dali,
    "color": colored_dali,
    "contrast": contrasted_dali,
    "sharpness": sharpened_dali,
    "posterize": lambda d, x, mask: x & d.fn.cast(mask, dtype=d.dtype(np.uint8)),
    "solarize": lambda d, x, least: x ^ ((x >= least) * d.types.Constant(255, dtype=d.dtype(np.uint8))),
    "autocontrast": lambda d, x: Autocontrast().dali(d, x),
    "invert": lambda d, x: Invert().dali(d, x),
}

_WITHOUT_A_NUMBER = ("autocontrast", "invert")


def settings_of(who: str, image: Any, interpolation: str, fill: Any) -> dict[str, Any]:
    """The fields that all policies have, as a user gives them: no `fill` is black.

    Raises:
        PlanTypeError: there are several images.
        SpecError: the dtype of the image is unknown or has no agreed range.
    """
    if isinstance(image, tuple):
        raise PlanTypeError(f"{who} needs one image, got a tuple; call it for each of them, with equal seeds")
    own, _ = parts_of(who, image, fill)
    return {"interpolation": interpolation, "fill": 0 if own is None else own, "dtype": dtype_of(who, image)}


@dataclass(frozen=True, slots=True)
class Policy(Colour):
    """Apply ops of `OPS` in layers. Subclasses define `layers`, `used` and `plan`. For images of 8 bits.

    Attributes:
        interpolation: of affine maps, "nearest" or "bilinear".
        fill: what they bring in from outside the image.
    """

    frames: ClassVar[Literal["", "sequence", "planes", "rows", "axes"]] = ""
    still: ClassVar[bool] = False
    random: ClassVar[bool] = True
    legal: ClassVar[tuple[int, ...] | None] = (3,)
    parameters: ClassVar[tuple[str, ...]] = ("kinds", "numbers", "matrices")

    interpolation: str = field(default="nearest", kw_only=True)
    fill: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        Colour.__post_init__(self)
        if self.dtype != "uint8":
            raise SpecError(f"{self.name} needs an image of uint8, got {self.dtype}; use it before what makes floats")
        if self.interpolation not in ("nearest", "bilinear"):
            raise SpecError(f"{self.name} needs interpolation 'nearest' or 'bilinear', got {self.interpolation!r}")
        self.check("fill", 0, 255)

    def check(self, name: str, low: float, high: float | None, *, integer: bool = True) -> None:
        """Check that a field is one number, and known: a policy's settings are those of all images.

        Raises:
            PlanTypeError: it is no number.
            SpecError: it is out of range, or traced.
        """
        value = getattr(self, name)
        if isinstance(value, np.ndarray) and value.ndim:
            raise PlanTypeError(
                f"{self.name} needs {'an integer' if integer else 'a number'} for {name}, got {value!r}"
            )
        check_number(self.name, name, value, low, high, integer=integer, traceable=False)

    @property
    def layers(self) -> int:
        """How many ops are applied to an image, one after another."""
        raise TypeError(f"{type(self).__name__} does not define layers")

    @property
    def used(self) -> tuple[str, ...]:
        """The ops that may be applied."""
        raise TypeError(f"{type(self).__name__} does not define used")

    def plan(self, rng: BatchRng, hw: Array) -> tuple[Array, Array]:
        """Draw for each image and layer an index of `OPS` and a strength with its sign: [B,layers] each."""
        raise TypeError(f"{type(self).__name__} does not define plan")

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        ops, strength = self.plan(rng, hw)
        kinds, numbers = np.zeros(ops.shape, np.int32), np.zeros((len(hw), FIRST + self.layers), np.float32)
        matrices = np.zeros((*ops.shape, 2, 3), np.float32)
        numbers[:, :9], numbers[:, 9:FIRST] = KERNEL.reshape(9), hw
        for n in range(self.layers):
            kinds[:, n], numbers[:, FIRST + n], matrices[:, n] = laid_out(ops[:, n], strength[:, n], hw)
        return kinds, numbers, matrices

    @property
    def _warp(self) -> Warp:
        return Warp(self.interpolation, (float(self.fill),), stage=self.name)

    def motion(self, hw: Array, *params: Array) -> Array:
        kinds, _, matrices = params
        made = np.eye(3)
        for kind, matrix in zip(kinds, matrices, strict=True):
            if kind == WARPED:
                made = inverted(self.name, matrix) @ made
        return made

    def reference(self, x: Array, *params: Any) -> Array:
        return self._applied(x, params, 0)

    def fast(self, x: Array, *params: Any) -> Array:
        return self._applied(x, params, 1)

    def _applied(self, x: Array, params: Sequence[Any], form: int) -> Array:
        """The result in NumPy, 0, or on the fast path, 1."""
        return self.chained(x, params, form, range(self.layers))

    def chained(self, x: Array, params: Sequence[Any], form: int, layers: range) -> Array:
        """Apply some of the layers; `params` is what the first three parameters hold for the image."""
        self.check_channels(x)
        kinds, numbers, matrices = params
        for layer in layers if x.size else ():
            if (kind := int(kinds[layer])) == WARPED:
                x = (self._warp.fast if form else self._warp.reference)(x, matrices[layer])
            elif kind:
                x = _BY_NUMBER[kind][form](x, numbers[FIRST + layer])
        return x

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        x = self.checked_dali(d, x)
        return on_host(d, self.reference, x, params) if d.device == "cpu" else self.nodes(d, x, *params)

    def nodes(self, d: Any, x: Any, *params: Any) -> Any:
        """The form for a GPU, of DALI nodes alone."""
        return d.fn.reshape(self.chains_dali(d, x, params, [range(self.layers)])[0], layout="HWC")

    def chains_dali(self, d: Any, x: Any, params: Sequence[Any], chains: Sequence[range]) -> list[Any]:
        """`chained` as DALI nodes, for each of some chains of equally many layers; `params` are nodes of the host."""
        kinds, numbers, matrices = params
        if d.device == "gpu":
            numbers = numbers.gpu()
        part = partial(d.fn.slice, numbers, axes=[0])
        kernel = d.fn.reshape(part(start=[0], shape=[9]), shape=[3, 3])
        more = {"sharpness": [kernel], "contrast": [part(start=[9], shape=[2])]}
        params, xs = (kinds, numbers, matrices), [x] * len(chains)
        for layers in zip(*chains, strict=True):
            xs = [self._layer_dali(d, x, params, more, layer) for x, layer in zip(xs, layers, strict=True)]
            xs = equalized_dali(d, xs, [kinds[layer] == NUMBER["equalize"] for layer in layers])
        return xs

    def _layer_dali(self, d: Any, x: Any, params: Sequence[Any], more: dict[str, Any], layer: int) -> Any:
        """One layer but for equalizing; `more` is what some ops need beside their number."""
        kinds, numbers, matrices = params
        if MOVING & set(self.used):
            x = where_dali(d, kinds[layer] == WARPED, x, [matrices[layer]], partial(self._warp.dali, d))
        for name in self.used:
            if name in _DALI:
                number = [] if name in _WITHOUT_A_NUMBER else [numbers[FIRST + layer]]
                given = number + more.get(name, [])
                x = where_dali(d, kinds[layer] == NUMBER[name], x, given, partial(_DALI[name], d))
        return x

    @classmethod
    def policy_cases(cls, *ops: Op) -> Iterator[Case]:
        """Cases of policies with these settings."""
        cut = "a product just below an integer is truncated one level lower, and what follows may enlarge that"
        for number, op in enumerate(ops):
            for x in (picture(31, 40), noise(9, 8), noise(2, 5), noise(1, 1)):
                yield Case(op, (x,), ("HWC",), atol=4, reason=cut, note=f"settings-{number}")


@dataclass(frozen=True, slots=True)
class PolicyMask(Op):
    """The affine maps of a policy alone, on a mask: each pixel is the nearest one's.

    Attributes:
        op: the policy.
        fill: what comes from outside.
        widened: as in `Warp`.

    Shapes: ``T[H,W,C]{HWC} -> T[H,W,C]{HWC}``, with the parameters of the policy.
    """

    op: Policy
    fill: tuple[float, ...] = (0.0,)
    widened: bool = False

    @property
    def stage(self) -> str:
        return self.op.stage

    @property
    def parameters(self) -> tuple[str, ...]:  # type: ignore[override]
        return self.op.parameters

    @property
    def _warp(self) -> Warp:
        return Warp("nearest", self.fill, widened=self.widened, stage=self.op.name)

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return self._warp.infer(*xs)

    def reference(self, x: Array, *params: Array) -> Array:
        return self._turned(self._warp.reference, x, params)

    def fast(self, x: Array, *params: Array) -> Array:
        return self._turned(self._warp.fast, x, params)

    def _turned(self, warp: Callable[[Array, Array], Array], x: Array, params: Sequence[Array]) -> Array:
        kinds, _, matrices = params
        for kind, matrix in zip(kinds, matrices, strict=True):
            x = warp(x, matrix) if kind == WARPED else x
        return x

    def dali(self, d: Any, x: Any, *params: Any) -> Any:
        kinds, _, matrices = params
        for layer in range(self.op.layers):
            x = where_dali(d, kinds[layer] == WARPED, x, [matrices[layer]], partial(self._warp.dali, d))
        return d.fn.reshape(x, layout="HWC")


def augmented(op: Policy, image: Any, fill: Any, seed: int | None) -> Any:
    """What a policy makes of an image, or of a Sample; `fill` is what the user gives."""
    if not isinstance(image, Sample):
        return apply(op, image, seed=seed)
    fills = fills_of(op.name, image, fill)

    def for_mask(policy: Any, mask: Any) -> PolicyMask:
        return PolicyMask(policy, fills[1], spec_of_operand(mask).dtype in WIDENED)

    return moved(op, image, seed, for_masks=for_mask)

"""mixup_or_cutmix: mix every batch by one of mixup and cutmix, chosen at random."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from gpupipe.classes import dataclass
from gpupipe.graph.op import Array, Case, check_number
from gpupipe.ops._shared.mixing import Mixing, checked_alpha, mixed
from gpupipe.ops.cutmix import Cutmix
from gpupipe.ops.mixup import Mixup
from gpupipe.random import BatchRng

__all__ = ["MixupOrCutmix", "mixup_or_cutmix"]


@dataclass(frozen=True, slots=True)
class MixupOrCutmix(Mixing):
    """Choose `Cutmix` for a batch with a probability, else `Mixup`. Both are drawn for every batch.

    Array code that runs after the executor. NumPy and CuPy agree within one float32 rounding.

    Attributes:
        mixup_alpha: of `Mixup`.
        cutmix_alpha: of `Cutmix`.
        switch_prob: probability of `Cutmix`, 0..1.

    Shapes: ``T[B,H,W,C]{NHWC}, float32[B,K] -> float32[B,H,W,C]{NHWC}, float32[B,K]``, or NCHW
    """

    parameters: ClassVar[tuple[str, ...]] = ("cuts", "share", "window", "kept")

    mixup_alpha: float = 0.2
    cutmix_alpha: float = 1.0
    switch_prob: float = 0.5

    def __post_init__(self) -> None:
        Mixing.__post_init__(self)
        for name in ("mixup_alpha", "cutmix_alpha"):
            object.__setattr__(self, name, checked_alpha(self.name, name, getattr(self, name)))
        check_number(self.name, "switch_prob", self.switch_prob, 0, 1)
        object.__setattr__(self, "switch_prob", float(self.switch_prob))

    def draw(self, rng: BatchRng, hw: Array) -> tuple[Array, ...]:
        cuts = rng.uniform() < self.switch_prob
        return cuts, *Mixup(self.mixup_alpha).draw(rng, hw), *Cutmix(self.cutmix_alpha).draw(rng, hw)

    def array(self, xp: Any, *args: Any) -> Any:
        images, labels, cuts, share, window, kept = args
        if cuts:
            return Cutmix(layout=self.layout).array(xp, images, labels, window, kept)
        return Mixup(layout=self.layout).array(xp, images, labels, share)

    @classmethod
    def cases(cls) -> Iterator[Case]:
        yield from (cls(switch_prob=share).case(f"{share}") for share in (0.0, 1.0))


def mixup_or_cutmix(
    images: Any,
    labels: Any,
    mixup_alpha: float = 0.2,
    cutmix_alpha: float = 1.0,
    switch_prob: float = 0.5,
    num_classes: int | None = None,
    *,
    layout: Literal["HWC", "CHW"] | None = None,
    seed: int | None = None,
) -> Any:
    """Mix every batch by `cutmix` with probability `switch_prob`, else by `mixup`: a `RandomChoice` in torchvision.

    For a map after `batch`. The choice is made once for the batch, with the key of its first element. The names of the
    parameters are those of timm's `Mixup`, which in its mode "batch" chooses alike, but mixes the first image with the
    last, the second with the last but one, and so on; this mixes each image with the one before it, as torchvision.

    Args:
        images: a batch of images, all of one size.
        labels: class numbers, or vectors of float32; for label smoothing, say ``one_hot(labels, n, 0.9 + 0.1 / n,
            0.1 / n)``. A number outside [0, num_classes) has no class, and is
            logged, as in `one_hot`.
        mixup_alpha: of `mixup`, above 0.
        cutmix_alpha: of `cutmix`, above 0.
        switch_prob: probability of `cutmix`, 0..1.
        num_classes: length of the vectors; needed for class numbers.
        layout: of one image, where it is not known; the default is HWC.
        seed: identifies the draw; by default the call's number does. Calls with equal seeds draw the same for one
            element, also after a `zip`, but not in different inputs of it.

    Returns:
        Images as float32, in their original units, and labels as float32 vectors.

    Shapes: ``T[B,H,W,C]{NHWC}, integer[B] -> float32[B,H,W,C]{NHWC}, float32[B,num_classes]``

    Raises:
        SpecError: called before `batch`, images or labels are of another kind, or a number is out of range.

    Example:
        >>> images, labels = mixup_or_cutmix(np.zeros((2, 4, 4, 3), np.uint8), np.array([0, 1]), num_classes=2, seed=1)
        >>> labels.sum(axis=1)
        array([1., 1.], dtype=float32)
    """
    op = MixupOrCutmix(mixup_alpha, cutmix_alpha, switch_prob)
    return mixed(op, images, labels, num_classes, layout, seed)

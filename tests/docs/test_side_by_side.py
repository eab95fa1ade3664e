"""Six recipes of the page beside their original code, on the same photographs and with the same draws.

Each function of the page is called on the bytes of a photograph, and what its ops draw is written down. Then the
original's transforms get these numbers in place of their own. Where the original only crops and flips, they run on
images of Pillow, as they do there: these are equal, but for kernels that overshoot, which Pillow may clip elsewhere, as
it resizes the height first. Images of the others are tensors here: torchvision resizes them with sums in another order
than Pillow, whose law gpupipe has, so a cropped value may differ by one level of 255, and by more where a later step
makes differences larger.
"""

from __future__ import annotations

import ast
import io
import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFilter

from gpupipe.comparison.photographs import encode, take
from gpupipe.graph import eager
from gpupipe.graph.op import Array, Op
from gpupipe.ops._shared.policy import OPS
from gpupipe.ops.trivial_augment_wide import TrivialAugmentWide
from tests.docs.test_pages import blocks
from tests.ops.originals import torchvision
from tests.ops.test_policies import THEIRS

PHOTOGRAPHS, DRAWS = 6, 2
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Draws:
    """What the ops of a function drew in one call, in order: for each kind of op a list of parameters."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._found: dict[str, list[Any]] = defaultdict(list)
        params, plan = eager._params, TrivialAugmentWide.plan

        def noted(op: Op, first: Any, *how: Any) -> list[Array]:
            drawn = params(op, first, *how)
            if op.random:
                self._found[type(op).__name__].append(drawn)
            return drawn

        def planned(op: Any, rng: Any, hw: Array) -> tuple[Array, Array]:
            chosen, strength = plan(op, rng, hw)
            self._found["plan"].append((THEIRS[OPS[int(chosen[0, 0])]], float(strength[0, 0])))
            return chosen, strength

        def seeded(name: str, seed: int | None, *row: Any) -> Any:
            return fresh(name, next(seeds) if seed is None else seed, *row)

        fresh, seeds = eager.eager_rng, itertools.count()
        monkeypatch.setattr(eager, "eager_rng", seeded)
        monkeypatch.setattr(eager, "_params", noted)
        monkeypatch.setattr(TrivialAugmentWide, "plan", planned)

    def next(self, kind: str) -> Any:
        return self._found[kind].pop(0)

    def left(self) -> list[str]:
        alone = ("TrivialAugmentWide", "RandomUniform")  # whose draws are noted as a plan; which nothing else draws
        return [kind for kind, found in self._found.items() if found and kind not in alone]

    def clear(self) -> None:
        self._found.clear()


def fed(transform: Any, draws: Draws) -> Any:
    """A transform of torchvision with what an op drew in place of its own numbers."""
    torch = pytest.importorskip("torch")
    match type(transform).__name__:
        case "RandomResizedCrop":
            (top, left), (height, width), _ = draws.next("RandomResizedCrop")
            params = {"top": int(top), "left": int(left), "height": int(height), "width": int(width)}
            transform.make_params = lambda _: params
            transform.get_params = lambda *_: tuple(params.values())  # of the transforms on Pillow's images
        case "RandomHorizontalFlip" | "RandomGrayscale" | "RandomSolarize" as kind:
            transform.p = float(draws.next({"RandomHorizontalFlip": "RandomFlipLeftRight"}.get(kind, kind))[0])
        case "ColorJitter":
            order, factors = draws.next("ColorJitter")
            names = ("brightness_factor", "contrast_factor", "saturation_factor", "hue_factor")
            jitter = {name: float(factor) for name, factor in zip(names, factors, strict=True)}
            jitter["fn_idx"] = torch.tensor([step for step in order.tolist() if step >= 0])
            transform.make_params = lambda _: jitter
        case "RandomChoice":
            every = [fed(part, draws) for part in transform.transforms]
            transform.transforms, transform.p = [every[int(draws.next("RandomChoice")[0])]], [1.0]
        case "RandomApply":
            (part,) = (fed(part, draws) for part in transform.transforms)
            blurs = type(part).__name__ == "GaussianBlur"
            transform.p = float(part.applied if blurs else draws.next("RandomApply")[0] == 0)
        case "GaussianBlur":
            flag, sigma = draws.next("RandomGaussianBlur")
            transform.applied = bool(flag)
            transform.make_params = lambda _: {"sigma": sigma[::-1].tolist()}
        case "BlurOfPillow":
            flag, sigma = draws.next("RandomGaussianBlur")
            transform.applied, transform.radius = bool(flag), float(sigma[0])
        case "TrivialAugmentWide":
            name, strength = draws.next("plan")
            transform._get_random_item = lambda _: (name, (lambda bins, *_: torch.full((bins,), strength), False))
        case "RandomErasing":
            (top, left), (height, width) = draws.next("RandomErasing")
            window = {"i": int(top), "j": int(left), "h": int(height), "w": int(width), "v": torch.zeros(3, 1, 1)}
            transform.p = float(height > 0)
            transform.make_params = lambda _: window
    return transform


class BlurOfPillow:
    """DINO's own blur: that of Pillow, of a random radius."""

    applied, radius = False, 0.0

    def __call__(self, x: Any) -> Any:
        torch = pytest.importorskip("torch")
        if not self.applied:
            return x
        image = Image.fromarray(x.numpy().transpose(1, 2, 0)).filter(ImageFilter.GaussianBlur(self.radius))
        return torch.from_numpy(np.asarray(image).transpose(2, 0, 1).copy())


def resnet(v1: Any, mode: Any, torch: Any) -> list[Any]:
    """The first `ClassificationPresetTrain` of torchvision's references, on Pillow's images."""
    return [v1.RandomResizedCrop(224), v1.RandomHorizontalFlip(0.5), v1.ToTensor(), v1.Normalize(MEAN, STD)]


def mae(v1: Any, mode: Any, torch: Any) -> list[Any]:
    """The transforms of MAE's `main_pretrain.py`, on Pillow's images."""
    return [
        v1.RandomResizedCrop(224, (0.2, 1.0), interpolation=mode.BICUBIC), v1.RandomHorizontalFlip(), v1.ToTensor(),
        v1.Normalize(MEAN, STD),
    ]  # fmt: skip


def deit_3(v2: Any, mode: Any, torch: Any) -> list[Any]:
    """DeiT's `new_data_aug_generator`, which is 3-Augment."""
    return [
        v2.RandomResizedCrop(224, interpolation=mode.BICUBIC), v2.RandomHorizontalFlip(),
        v2.RandomChoice([v2.RandomGrayscale(1.0), v2.Lambda(lambda x: v2.functional.solarize(x, 128)), BlurOfPillow()]),
        v2.ColorJitter(0.3, 0.3, 0.3), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD),
    ]  # fmt: skip


def resnet_v2(v2: Any, mode: Any, torch: Any) -> list[Any]:
    """`ClassificationPresetTrain` of torchvision's references, as its weights V2 were trained."""
    return [
        v2.RandomResizedCrop(176, interpolation=mode.BILINEAR, antialias=True), v2.RandomHorizontalFlip(0.5),
        v2.TrivialAugmentWide(interpolation=mode.BILINEAR), v2.ToDtype(torch.float32, scale=True),
        v2.Normalize(MEAN, STD), v2.RandomErasing(0.1),
    ]  # fmt: skip


def simclr(v2: Any, mode: Any, torch: Any) -> list[Any]:
    """SimCLR's augmentation as its ports to PyTorch write it, with a strength of 1."""
    return [
        v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(0.5),
        v2.RandomApply([v2.ColorJitter(0.8, 0.8, 0.8, 0.2)], 0.8), v2.RandomGrayscale(0.2),
        v2.RandomApply([v2.GaussianBlur(23, (0.1, 2.0))], 0.5),
        v2.ToDtype(torch.float32, scale=True),
    ]  # fmt: skip


def dino(v2: Any, mode: Any, torch: Any) -> list[Any]:
    """DINO's `DataAugmentationDINO`: a large crop; only the second one is solarized."""
    return [
        v2.RandomResizedCrop(224, (0.4, 1.0), interpolation=mode.BICUBIC), v2.RandomHorizontalFlip(0.5),
        v2.RandomApply([v2.ColorJitter(0.4, 0.4, 0.2, 0.1)], 0.8), v2.RandomGrayscale(0.2), BlurOfPillow(),
        v2.RandomSolarize(128, 0.2), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD),
    ]  # fmt: skip


ON_PILLOW = ("resnet", "mae")
"""Recipes whose original transforms images of Pillow here, as it does itself."""

# The original, how the page's function is called, and what may differ: the mean in levels of 255, and the share of
# values that differ by more than 2 levels.
RECIPES: dict[str, tuple[Any, Callable[[dict[str, Any], bytes], Any], float, float]] = {
    "resnet": (resnet, lambda names, data: names["resnet"](data, 0)[0], 1e-4, 0.0),
    "mae": (mae, lambda names, data: names["mae"](data, 0)[0], 0.1, 0.0001),
    "deit_3": (deit_3, lambda names, data: names["deit_3"](data, 0)[0], 0.5, 0.01),
    "resnet_v2": (resnet_v2, lambda names, data: names["resnet_v2"](data, 0)[0], 0.1, 0.005),
    "simclr": (simclr, lambda names, data: names["simclr_view"](data), 0.05, 0.0005),
    "dino, first": (dino, lambda names, data: names["dino_view"](data, 224, (0.4, 1.0), 1.0, 0.0), 0.5, 0.01),
    "dino, second": (dino, lambda names, data: names["dino_view"](data, 224, (0.4, 1.0), 0.1, 0.2), 0.05, 0.001),
}


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """What the functions of the page are; its chains are not made."""
    names: dict[str, Any] = {}
    for block in blocks("recipes"):
        kinds = (ast.Import, ast.ImportFrom, ast.FunctionDef)
        kept: list[ast.stmt] = [node for node in ast.parse(block).body if isinstance(node, kinds)]
        exec(compile(ast.Module(kept, []), "recipes.md", "exec"), names)
    return names


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_gives_what_its_original_gives(
    name: str, page: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = torchvision()
    torch = pytest.importorskip("torch")
    make, call, mean, share = RECIPES[name]
    transforms = of.v1 if name in ON_PILLOW else of.v2
    draws, means, shares = Draws(monkeypatch), [], []
    for number in range(PHOTOGRAPHS):
        data = encode(take(number)[1])
        opened = Image.open(io.BytesIO(data)).convert("RGB")
        decoded = np.asarray(opened).transpose(2, 0, 1)
        for _ in range(DRAWS):
            draws.clear()
            ours = np.asarray(call(page, data))
            x: Any = opened if name in ON_PILLOW else torch.from_numpy(decoded.copy())
            for transform in make(transforms, of.mode, torch):
                x = fed(transform, draws)(x)
            assert draws.left() == []
            theirs = x.numpy().transpose(1, 2, 0)
            difference = np.abs(ours - theirs) * (1 if name == "simclr" else STD) * 255
            means.append(difference.mean())
            shares.append((difference > 2.01).mean())

    assert np.mean(means) < mean
    assert np.mean(shares) <= share

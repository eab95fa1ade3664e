"""image_processors: what each class of Hugging Face's image processors does with its settings, as steps of a recipe.

Classes with code of their own have the same settings as plain ones, so a class that is not listed here is not known.
Names are without "ImageProcessor", "FeatureExtractor", "Fast" and "Pil".
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.ops._shared.fitting import fit
from gpupipe.ops._shared.recipe import Recipe, crop_to, method_of, refuse, resize_to
from gpupipe.ops.pad_to_bounding_box import pad_to_bounding_box
from gpupipe.ops.permute_channels import permute_channels
from gpupipe.ops.resize_shorter import resize_shorter
from gpupipe.ops.resize_with_crop_or_pad import resize_with_crop_or_pad

__all__ = ["KINDS", "PLAIN", "WHO", "Kind", "Settings"]

WHO = "from_hf"


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a processor.

    Attributes:
        given: by name.
        rounding: where the odd pixel goes if a crop is larger than the image: "front", "end", or "" where two
            classes of one name differ.
    """

    given: Mapping[str, Any]
    rounding: str = ""

    def __getitem__(self, name: str) -> Any:
        return self.given.get(name)

    def number(self, name: str, least: float = 1e-9) -> Any:
        return number(name, self[name], least)

    def sides(self, name: str = "size") -> dict[str, int]:
        """The lengths of a size that are set, in pixels."""
        value = self[name]
        if not hasattr(value, "keys"):
            return refuse(WHO, f"{name}={value!r}", f"write it as {SIZES.get(name, SIZES['crop_size'])}")
        return {
            key: int(number(f"{name}[{key!r}]" if "edge" not in key else key, side, 1))
            for key, side in dict(value).items()
            if side is not None
        }

    def pair(self, name: str) -> tuple[int, int]:
        """A size of {height, width}."""
        sides = self.sides(name)
        if set(sides) != {"height", "width"}:
            refuse(WHO, f"{name}={self[name]!r}", f"write it as {SIZES['crop_size']}")
        return sides["height"], sides["width"]

    def only(self, *names: str) -> tuple[int, ...]:
        """The lengths of a `size` that has just these."""
        sides = self.sides()
        if set(sides) != set(names):
            refuse(WHO, f"size={self['size']!r}", f"give it {' and '.join(names)} alone")
        return tuple(sides[name] for name in names)


LAWS_OF: dict[frozenset[str], tuple[str, ...]] = {
    frozenset(names): (law, *names)
    for law, *names in (
        ("shortest", "shortest_edge"),
        ("shortest and longest", "shortest_edge", "longest_edge"),
        ("within", "max_height", "max_width"),
    )
}
"""The law of a size with these lengths, and the order in which it takes them."""

SIZES = {"size": "{'shortest_edge': n} or {'height': h, 'width': w}", "crop_size": "{'height': h, 'width': w}"}
Stage = Callable[[Recipe, Settings], None]


def number(name: str, value: Any, least: float = 1e-9) -> Any:
    """A setting that is a number of at least `least`, and finite.

    Raises:
        PlanError: it is none.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not least <= float(value) < math.inf:
        refuse(WHO, f"{name}={value!r}", "set it to a finite number" + (" above 0" if least > 0 else ""))
    return value


def resize(
    recipe: Recipe,
    given: Settings,
    both: str = "shortest and longest",
    antialias: bool = True,
    multiple: int = 1,
    up: bool = False,
) -> None:
    """Resize to a size of one of four kinds.

    Args:
        recipe: the steps so far.
        given: the settings.
        both: the law of a shortest and a longest edge.
        antialias: whether tensors are resized with it.
        multiple: of which both sides become multiples.
        up: whether they grow to these.
    """
    sides, how = given.sides(), {"interpolation": method_of(WHO, given["resample"])}
    if not antialias and how["interpolation"] not in ("bilinear", "nearest"):
        refuse(WHO, f"resample={given['resample']!r} without antialias", "use 2, which is bilinear")
    plain = {**how, "antialias": False} if not antialias else how
    if set(sides) == {"height", "width"}:
        whole = math.ceil if up else math.floor
        size = tuple(whole(sides[name] / multiple) * multiple for name in ("height", "width"))
        recipe.add(resize_to, size=size, **plain)
    elif set(sides) == {"shortest_edge"} and multiple == 1:
        recipe.add(resize_shorter, size=sides["shortest_edge"], **plain)
    elif frozenset(sides) in LAWS_OF:
        law, *names = LAWS_OF[frozenset(sides)]
        law = both if law == "shortest and longest" else law
        rounding = {"multiple": multiple, "up": up} if multiple > 1 else {}
        recipe.add(fit, law=law, numbers=tuple(sides[name] for name in names), **plain, **rounding)
    else:
        refuse(WHO, f"size={given['size']!r}", f"write it as {SIZES['size']}")


def bare(recipe: Recipe, given: Settings) -> None:
    resize(recipe, given, antialias=False)


def crop(recipe: Recipe, given: Settings) -> None:
    """Crop the centre; what lies outside of the image is 0."""
    if not given["do_center_crop"]:
        return
    size, known, uneven = given.pair("crop_size"), given.sides() if given["do_resize"] else {}, []
    for name, wanted in zip(("height", "width"), size, strict=True):
        side = known.get(name) or known.get("shortest_edge") or 0  # of a shortest edge: at least
        if wanted > side and (name not in known or (wanted - side) % 2):
            uneven.append(f"crop_size={wanted} of a {name} of {side or 'any length'}")
    if uneven and not given.rounding:
        refuse(WHO, uneven[0], "hand in the processor, as its class puts an odd pixel on one side, or crop less")
    if uneven and given.rounding == "front":
        recipe.add(crop_to, size=size)
    else:
        recipe.add(resize_with_crop_or_pad, target_height=size[0], target_width=size[1])


def rescale(recipe: Recipe, given: Settings) -> None:
    if given["do_rescale"]:
        recipe.to_float(1 / given.number("rescale_factor"))


def normalize(recipe: Recipe, given: Settings) -> None:
    if given["do_normalize"]:
        recipe.normalize(*(per_channel(name, given[name]) for name in ("image_mean", "image_std")))


def pad(recipe: Recipe, given: Settings) -> None:
    """Pad with zeros on the right and below to a size; to the largest of a batch is nothing for one image."""
    if given["do_pad"]:
        pad_always(recipe, given)


def pad_always(recipe: Recipe, given: Settings) -> None:
    """The same, whatever `do_pad` is."""
    if given["pad_size"]:
        height, width = given.pair("pad_size")
        place = {"offset_height": 0, "offset_width": 0, "target_height": height, "target_width": width}
        recipe.add(pad_to_bounding_box, **place)


def pad_together(recipe: Recipe, given: Settings) -> None:
    """Pad to the largest of a batch, whatever `pad_size` is."""


def bgr(recipe: Recipe, given: Settings) -> None:
    recipe.add(permute_channels, permutation=(2, 1, 0))


def per_channel(name: str, value: Any) -> Any:
    """A setting that is a number or one for each channel."""
    values = value.tolist() if isinstance(value, np.ndarray) else value
    for one in values if isinstance(values, (list, tuple)) and values else [values]:
        number(name, one, -math.inf)
    return values


def _shorter(recipe: Recipe, given: Settings, side: int) -> None:
    recipe.add(resize_shorter, size=side, interpolation=method_of(WHO, given["resample"]))


def _levit(recipe: Recipe, given: Settings) -> None:
    """Resize to 256/224 of a shortest edge; the crop that follows has the edge itself."""
    if set(given.sides()) == {"shortest_edge"}:
        _shorter(recipe, given, int((256 / 224) * given.sides()["shortest_edge"]))
    else:
        resize(recipe, given)


def _pool_former(recipe: Recipe, given: Settings) -> None:
    """Resize to a side divided by `crop_pct`."""
    if given["crop_pct"] is None:
        return resize(recipe, given)
    sides = set(given.sides().values())
    if len(sides) != 1:
        refuse(WHO, f"size={given['size']!r} with crop_pct", "give it one length")
    return _shorter(recipe, given, int(sides.pop() / given.number("crop_pct")))


def _square(recipe: Recipe, given: Settings, side: int) -> None:
    """Crop a square."""
    size = {"height": side, "width": side}
    crop(recipe, Settings({**given.given, "do_center_crop": True, "crop_size": size}, given.rounding))


def _conv_next(recipe: Recipe, given: Settings) -> None:
    """Resize and crop by `crop_pct` below 384 pixels, squash from there on."""
    (side,) = given.only("shortest_edge")
    if side < 384:
        _shorter(recipe, given, int(side / given.number("crop_pct")))
        _square(recipe, given, side)
    else:
        recipe.add(resize_to, size=(side, side), interpolation=method_of(WHO, given["resample"]))


def _fitted(law: str, *names: str, divisor: str = "", up: bool = False) -> Stage:
    """A stage that resizes by a law of lengths in `size`, to multiples of what another setting says."""

    def stage(recipe: Recipe, given: Settings) -> None:
        multiple = given.number(divisor, 1) if divisor and given[divisor] is not None else 1
        how = {"interpolation": method_of(WHO, given["resample"]), "multiple": int(multiple), "up": up}
        recipe.add(fit, law=law, numbers=given.only(*names) if names else (), **how)

    return stage


def _divisible(recipe: Recipe, given: Settings) -> None:
    """Resize as others do, to sides that are multiples of `size_divisor`."""
    resize(recipe, given, multiple=int(given.number("size_divisor", 1)) if given["size_divisor"] else 1, up=True)


def _yolos(recipe: Recipe, given: Settings) -> None:
    """Multiples of 16, where an aspect ratio is kept."""
    edges = set(given.sides()) == {"shortest_edge", "longest_edge"}
    resize(recipe, given, "yolos", multiple=16 if edges else 1)


def _dpt(recipe: Recipe, given: Settings) -> None:
    multiple = given.number("ensure_multiple_of", 1) if given["ensure_multiple_of"] is not None else 1
    numbers = (given.pair("size"), bool(given["keep_aspect_ratio"]), int(multiple))
    recipe.add(fit, law="dpt", numbers=numbers, interpolation=method_of(WHO, given["resample"]))


def _pp_lcnet(recipe: Recipe, given: Settings) -> None:
    if given["resize_short"] is None:
        return resize(recipe, given)
    short, divisor = int(given.number("resize_short", 1)), int(given.number("size_divisor", 1))
    how = {"interpolation": method_of(WHO, given["resample"]), "multiple": divisor, "up": True}
    return recipe.add(fit, law="rounded", numbers=(short,), **how)


def _squares(recipe: Recipe, given: Settings) -> None:
    """Crop a square of one length, which a `crop_size` has as its shortest edge."""
    if given["do_center_crop"]:
        sides = given.sides("crop_size")
        if set(sides) != {"shortest_edge"}:
            refuse(WHO, f"crop_size={given['crop_size']!r}", "give it shortest_edge alone")
        _square(recipe, Settings({}, given.rounding), sides["shortest_edge"])


def _efficient_net(recipe: Recipe, given: Settings) -> None:
    """Subtract 1 after the rescaling, if so said; normalise; divide by the deviation once more for a classifier."""
    mean, std = (np.asarray(per_channel(name, given[name]), np.float64) for name in ("image_mean", "image_std"))
    twice = given["include_top"]
    offset = float(bool(given["do_rescale"] and given["rescale_offset"]))
    if given["do_normalize"]:
        recipe.normalize(mean + offset, std * std if twice else std)
    elif twice or offset:
        recipe.normalize(np.full_like(std, offset), std if twice else np.ones_like(std))


def _flipped(recipe: Recipe, given: Settings) -> None:
    if given["do_flip_channel_order"]:
        bgr(recipe, given)


@dataclass(frozen=True, slots=True)
class Kind:
    """What a class of processors does, in parts that others share.

    Attributes:
        resize: how it resizes, where `do_resize` is set.
        crop: how it crops, or None if it never does.
        normalize: how it normalises, or None.
        last: what it does at the end.
        order: of these parts.
        takes: settings of its own that the parts read.
        about: settings of its own that change no pixel.
    """

    resize: Stage = resize
    crop: Stage | None = crop
    normalize: Stage | None = normalize
    last: Stage | None = None
    order: str = "resize crop rescale normalize last"
    takes: str = ""
    about: str = ""

    def carry_out(self, recipe: Recipe, given: Settings) -> None:
        """Add the steps of a processor of this kind."""
        stages = {
            "resize": self.resize if given["do_resize"] else None,
            "crop": self.crop,
            "rescale": rescale,
            "normalize": self.normalize,
            "last": self.last,
        }
        for name in self.order.split():
            stage = stages[name]
            if stage is not None:
                stage(recipe, given)

    def unused(self) -> list[str]:
        """Switches that the class does not carry out."""
        pads = self.last if self.last in (pad, pad_always, pad_together) else None
        parts = {"do_center_crop": self.crop, "do_normalize": self.normalize, "do_pad": pads}
        return [switch for switch, part in parts.items() if part is None]


DETECTION = "do_convert_annotations format do_reduce_labels ignore_index num_labels class_info_file num_text repo_path"
PLAIN = Kind(about="do_reduce_labels")
DETR = Kind(crop=None, last=pad, about=DETECTION)
MASKS = Kind(_divisible, crop=None, last=pad_always, takes="size_divisor", about=DETECTION)
VILT = Kind(
    _fitted("vilt", "shortest_edge", divisor="size_divisor"), crop=None, last=pad_together, takes="size_divisor"
)
DPT = Kind(_dpt, takes="ensure_multiple_of keep_aspect_ratio", about="do_reduce_labels prompt_scale_to_meter")

KINDS: dict[str, Kind] = {
    **dict.fromkeys(
        "Beit Bit Blip CLIP Chameleon ChineseCLIP DeiT Gemma3 Llava MobileNetV1 MobileNetV2 OwlViT PPChart2Table Pvt "
        "SegGpt Segformer Siglip SuperPoint Tipsv2 Tipsv2Dpt ViT".split(),
        PLAIN,
    ),
    **dict.fromkeys("ConditionalDetr DeformableDetr Detr GroundingDino RTDetr".split(), DETR),
    "BridgeTower": Kind(VILT.resize, _squares, last=pad_together, takes="size_divisor"),
    "ConvNext": Kind(_conv_next, takes="crop_pct"),
    "DINOv3ViT": Kind(order="rescale resize normalize", crop=None),
    "DPT": DPT,
    "DepthPro": Kind(bare, crop=None, order="rescale normalize resize"),
    "EfficientNet": Kind(normalize=_efficient_net, takes="include_top rescale_offset"),
    "Eomt": Kind(crop=None, about=DETECTION),
    "GLPN": Kind(_fitted("own", divisor="size_divisor"), crop=None, takes="size_divisor"),
    "LayoutLMv2": Kind(crop=None, normalize=None, order="resize last", last=bgr, about="ocr_lang tesseract_config"),
    "LayoutLMv3": Kind(crop=None, about="ocr_lang tesseract_config"),
    "Levit": Kind(_levit),
    "Mask2Former": MASKS,
    "MaskFormer": MASKS,
    "MobileViT": Kind(normalize=None, last=_flipped, takes="do_flip_channel_order", about="do_reduce_labels"),
    "OneFormer": Kind(crop=None, last=pad_together, about=DETECTION),
    "PPLCNet": Kind(_pp_lcnet, last=bgr, takes="resize_short size_divisor"),
    "PoolFormer": Kind(_pool_former, last=pad, takes="crop_pct"),
    "PromptDepthAnything": DPT,
    "RfDetr": Kind(bare, crop=None, last=pad, about=DETECTION, order="rescale resize normalize last"),
    "Sam": Kind(_fitted("longest", "longest_edge"), last=pad, about="mask_size mask_pad_size"),
    "Sam2": Kind(about="mask_size mask_pad_size"),
    "Sam3": Kind(about="mask_size mask_pad_size"),
    "Sapiens2": Kind(about="do_reduce_labels keypoint_heatmap_downscale_factor keypoint_heatmap_sigma"),
    "TextNet": Kind(_divisible, takes="size_divisor"),
    "Vilt": VILT,
    "Yolos": Kind(_yolos, crop=None, last=pad, about=DETECTION),
}
"""The classes that ops equal; those of transformers 5 are built by a test, which compares each."""

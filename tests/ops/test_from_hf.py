"""from_hf gives the pixels of every image processor of transformers, or refuses it by name.

Differences are in levels of 0..255 of the image, on drawn ones. PyTorch rounds sums elsewhere, after each of two
passes, which a bicubic kernel enlarges; Pillow may resize the height first.
"""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe import ops
from gpupipe.errors import PlanTypeError
from gpupipe.graph.op import Array
from gpupipe.ops._shared.image_processors import KINDS
from gpupipe.ops._shared.samples import picture
from tests.ops.originals import original, torchvision
from tests.ops.refusals import refused

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
EXACT = (0.001, 0.001)  # of float32: (x / 255 - m) / s here is (x - 255 m) / (255 s)
ROUNDED = (4.001, 0.3)  # see above; EfficientNet squares the deviation, BEiT's Pillow has 0.27
SIZES = ((97, 300), (303, 211), (1130, 1510))  # broad, tall, and larger than most results


def names() -> list[str]:
    """The image processors that transformers has, without importing it."""
    spec = find_spec("transformers")
    if spec is None or not spec.submodule_search_locations:
        return ["none"]
    files = sorted(Path(spec.submodule_search_locations[0]).glob("models/*/image_processing_*.py"))
    classes = re.compile(r"^class (\w+ImageProcessor(?:Pil)?)\(", re.MULTILINE)
    return sorted({name for file in files for name in classes.findall(file.read_text("utf-8"))})


def transformers() -> Any:
    """The library, which looks for torchvision when it is imported."""
    pytest.importorskip("torch")
    torchvision()
    return original("transformers")


def built(name: str, **settings: Any) -> Any:
    """An image processor with settings; the test is skipped where there is none."""
    kind = getattr(transformers(), name, None) or pytest.skip(f"transformers does not export {name}")
    try:
        return kind(**settings)
    except (TypeError, AttributeError) as error:
        return pytest.skip(f"it cannot be built with its defaults: {error}")


def drawn(height: int, width: int) -> Array:
    """Smooth colours with noise, of any level."""
    y, x = np.mgrid[:height, :width]
    waves = np.stack([np.sin(x / (9 + 4 * c)) * np.cos(y / (7 + 3 * c)) for c in range(3)], axis=2)
    noise = np.random.default_rng(5).normal(0, 12, (height, width, 3))
    return np.clip(128 + 110 * waves + noise, 0, 255).astype(np.uint8)


def pixels(processor: Any, *images: Array) -> Any:
    from PIL import Image

    return processor([Image.fromarray(image) for image in images], return_tensors="np")["pixel_values"]


def assert_equal_pixels(fn: Any, processor: Any, most: float, mean: float) -> None:
    """Compare on images of `SIZES`."""
    flat = [np.asarray(fn(np.full((97, 300, 3), level, np.uint8)), np.float64) for level in (0, 255)]
    level = np.abs(flat[1] - flat[0]).max() / 255
    for size in SIZES:
        image = drawn(*size)
        ours, theirs = np.asarray(fn(image), np.float64), np.asarray(pixels(processor, image)[0], np.float64)
        assert ours.shape == theirs.shape
        off = np.abs(ours - theirs) / level
        assert off.max() <= most, (size, off.max(), off.mean())
        assert off.mean() <= mean, (size, off.max(), off.mean())


def tolerance(name: str, processor: Any) -> tuple[float, float]:
    """Exact where both resize with Pillow, which has an order of axes of its own where a side is fixed."""
    return EXACT if name.endswith("Pil") and "height" not in dict(getattr(processor, "size", None) or {}) else ROUNDED


def kind_of(name: str) -> str:
    return name.removesuffix("Pil").removesuffix("ImageProcessor")


PADS = ("BridgeTower", "MobileViT")
"""Classes whose crop may be larger than the image by an odd pixel, and a name alone does not say where that is."""

READS = ("LayoutLMv2", "LayoutLMv3")
"""Classes that are taken, but read text by default."""


@pytest.mark.parametrize("name", names())
def test_each_processor_of_transformers_gives_its_pixels_or_is_refused_by_name(name: str) -> None:
    processor = built(name)

    if kind_of(name) not in KINDS or kind_of(name) in READS:
        with pytest.raises(gp.PlanError, match=f"from_hf finds no op that equals ({name}|[a-z_]+=|settings without)"):
            ops.from_hf(processor)
    else:
        fn = ops.from_hf(processor)
        assert_equal_pixels(fn, processor, *tolerance(name, processor))
        if kind_of(name) not in PADS:
            assert repr(fn) == repr(ops.from_hf(processor.to_dict()))


def test_classes_that_are_taken_are_those_of_transformers() -> None:
    transformers()
    assert set(KINDS) <= {kind_of(name) for name in names()}


FITTED = {"shortest_edge": 160, "longest_edge": 200}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "a crop by crop_pct": ("ConvNextImageProcessor", {"size": {"shortest_edge": 211}, "crop_pct": 0.9}),
    "the same with Pillow": ("ConvNextImageProcessorPil", {"size": {"shortest_edge": 211}, "crop_pct": 0.9}),
    "no crop_pct": ("PoolFormerImageProcessor", {"crop_pct": None}),
    "crop_pct of a square": ("PoolFormerImageProcessorPil", {"size": {"height": 99, "width": 99}}),
    "no top": ("EfficientNetImageProcessor", {"include_top": False}),
    "an offset": ("EfficientNetImageProcessor", {"rescale_offset": True, "rescale_factor": 1 / 127.5}),
    "an offset with Pillow": ("EfficientNetImageProcessorPil", {"rescale_offset": True, "do_normalize": False}),
    "a crop by an odd pixel": ("MobileViTImageProcessor", {"size": {"shortest_edge": 91}, "crop_size": 128}),
    "the same in front": ("MobileViTImageProcessorPil", {"size": {"shortest_edge": 91}, "crop_size": 128}),
    "in RGB": ("MobileViTImageProcessor", {"do_flip_channel_order": False}),
    "no text": ("LayoutLMv2ImageProcessorPil", {"apply_ocr": False}),
    "no text, normalised": ("LayoutLMv3ImageProcessor", {"apply_ocr": False}),
    "an aspect ratio of DPT's": (
        "DPTImageProcessorPil",
        {"keep_aspect_ratio": True, "ensure_multiple_of": 14, "size": {"height": 154, "width": 210}},
    ),
    "a size that is padded": ("DetrImageProcessor", {"size": FITTED, "pad_size": {"height": 200, "width": 224}}),
    "a size that is always padded": (
        "MaskFormerImageProcessor", {"size": FITTED, "pad_size": {"height": 224, "width": 256}},
    ),
    "a size that nothing is padded to": ("ViltImageProcessorPil", {"pad_size": {"height": 999, "width": 999}}),
    "the same of OneFormer": ("OneFormerImageProcessor", {"size": FITTED, "pad_size": {"height": 999, "width": 999}}),
    "within two sides": ("DetrImageProcessorPil", {"size": {"max_height": 151, "max_width": 99}}),
    "a fixed size of multiples": ("Mask2FormerImageProcessor", {"size": {"height": 99, "width": 128}}),
    "no divisor": ("MaskFormerImageProcessorPil", {"size": FITTED, "size_divisor": 0}),
    "sixteens": ("YolosImageProcessorPil", {"size": FITTED}),
    "a size of YOLOS's": ("YolosImageProcessor", {"size": {"height": 99, "width": 77}}),
    "no antialias": ("RfDetrImageProcessor", {"size": FITTED}),
    "a longest edge": ("SamImageProcessorPil", {"size": {"longest_edge": 99}, "pad_size": {"height": 99, "width": 99}}),
    "no multiples": ("ViltImageProcessor", {"size": {"shortest_edge": 99}, "size_divisor": None}),
    "two sides of LeViT's": ("LevitImageProcessor", {"size": {"height": 250, "width": 240}}),
    "no short side": ("PPLCNetImageProcessor", {"resize_short": None}),
    "a short side": ("PPLCNetImageProcessor", {"resize_short": 235, "size_divisor": 32}),
    "nothing but a cast": ("ViTImageProcessor", {"do_resize": False, "do_normalize": False, "rescale_factor": 1.0}),
    "nearest, as of EfficientNet-B0": (
        "EfficientNetImageProcessor", {"resample": 0, "size": {"height": 224, "width": 224}},
    ),
    "nearest": ("SegformerImageProcessor", {"resample": 0, "size": {"height": 97, "width": 100}}),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_other_settings_of_a_class_give_its_pixels(case: str) -> None:
    name, settings = OTHERS[case]
    processor = built(name, **settings)

    assert_equal_pixels(ops.from_hf(processor), processor, *tolerance(name, processor))


def test_a_batch_is_padded_as_the_processor_pads_it() -> None:
    processor = built("DetrImageProcessorPil", size=FITTED)
    images = [drawn(97, 300), drawn(303, 211)]
    fn = ops.from_hf(processor)

    made = gp.Dataset.from_list(images).map(fn).padded_batch(2).with_options(gp.Options(backend="numpy"))

    np.testing.assert_allclose(next(iter(made)), pixels(processor, *images), atol=1e-5)  # float32


def test_boxes_of_a_sample_move_with_the_image() -> None:
    processor = built("DetrImageProcessorPil", size=FITTED, pad_size={"height": 200, "width": 200})
    sample = ops.Sample(drawn(100, 300), [[30, 10, 60, 100]], masks=np.ones((100, 300, 1), np.uint8))

    made = ops.from_hf(processor)(sample)  # of 67x200, then padded

    assert made.image.shape == (3, 200, 200)
    assert made.masks.shape == (1, 200, 200)
    np.testing.assert_allclose(made.boxes, [[20, 6.7, 40, 67]], atol=1e-4)  # rounding of float32


def test_a_processor_of_ones_own_is_compared() -> None:
    of = transformers()

    class Same(of.ViTImageProcessorPil):  # type: ignore[misc, name-defined]
        """Another name for ViT's."""

    class Brighter(of.ViTImageProcessorPil):  # type: ignore[misc, name-defined]
        def rescale(self, image: Any, scale: float, **others: Any) -> Any:
            return super().rescale(image, scale * 1.01, **others)

    class Failing(of.ViTImageProcessorPil):  # type: ignore[misc, name-defined]
        def resize(self, *args: Any, **others: Any) -> Any:
            raise ZeroDivisionError("of its own")

    assert repr(ops.from_hf(Same())) == repr(ops.from_hf(of.ViTImageProcessorPil()))
    with pytest.raises(gp.PlanError, match="Brighter, which makes other pixels of an image of 90x317 than"):
        ops.from_hf(Brighter())
    with pytest.raises(gp.PlanError, match=r"Failing, which makes no pixel_values of an image .*of its own"):
        ops.from_hf(Failing())


HF = {"do_resize": True, "size": {"shortest_edge": 12}, "resample": 2, "do_center_crop": True,
      "crop_size": {"height": 12, "width": 12}, "do_rescale": True, "rescale_factor": 1 / 255, "do_normalize": True,
      "image_mean": MEAN, "image_std": STD}  # fmt: skip


def named(name: str, **others: Any) -> dict[str, Any]:
    return {**HF, "image_processor_type": name, **others}


def test_a_crop_may_be_larger_than_the_image_by_an_even_number() -> None:
    fn = ops.from_hf({**HF, "size": {"height": 8, "width": 12}})
    assert np.asarray(fn(picture(30, 30))).shape == (3, 12, 12)
    assert repr(ops.from_hf({**HF, "image_mean": np.array(MEAN)})) == repr(ops.from_hf(HF))


def test_settings_may_come_from_a_file() -> None:
    fn = ops.from_hf({"do_resize": True, "size": {"shortest_edge": 32}, "resample": 3, "do_center_crop": True,
                      "crop_size": {"height": 24, "width": 20}, "do_rescale": True, "rescale_factor": 0.5,
                      "do_normalize": False, "do_pad": None, "image_processor_type": "CLIPImageProcessor"})  # fmt: skip
    image = ops.resize_shorter(picture(50, 40), 32, "bicubic")

    np.testing.assert_array_equal(fn(picture(50, 40)), image[8:32, 6:26].transpose(2, 0, 1) * np.float32(0.5))
    assert repr(fn) == (
        "from_hf: decode_image -> resize_shorter(size=32, interpolation='bicubic') -> resize_with_crop_or_pad("
        "target_height=24, target_width=20) -> normalize(std=2.0) -> transpose()"
    )


def test_a_file_has_the_law_of_the_class_that_it_names() -> None:
    assert "resize_shorter(size=13," in repr(ops.from_hf(named("LevitImageProcessor")))  # 12 * 256 / 224
    assert "resize_shorter(size=13," in repr(ops.from_hf({**HF, "feature_extractor_type": "LevitFeatureExtractor"}))
    assert "resize_shorter(size=12," in repr(ops.from_hf(named("ViTImageProcessorFast")))


test_settings_that_no_op_equals_are_refused = refused(
    (gp.PlanError, "size=224; write it as", lambda: ops.from_hf({"do_resize": True, "size": 224, "resample": 2})),
    (gp.PlanError, "longest", lambda: ops.from_hf({"do_resize": True, "size": {"longest_edge": 9}, "resample": 2})),
    (gp.PlanError, "tion 4", lambda: ops.from_hf({"do_resize": True, "size": {"shortest_edge": 9}, "resample": 4})),
    (gp.PlanError, "do_rescale", lambda: ops.from_hf({"do_normalize": True, "image_mean": MEAN, "image_std": STD})),
    (gp.PlanError, "do_pad=True", lambda: ops.from_hf({"do_resize": True, "do_pad": True})),
    (gp.PlanError, r"crop_pct=0\.8", lambda: ops.from_hf({"do_resize": False, "crop_pct": 0.8})),
    (gp.PlanError, "rescale_factor=None; set it to a finite", lambda: ops.from_hf({**HF, "rescale_factor": None})),
    (gp.PlanError, "rescale_factor=0; set it", lambda: ops.from_hf({**HF, "rescale_factor": 0})),
    (gp.PlanError, "image_mean=None; set it", lambda: ops.from_hf({**HF, "image_mean": None})),
    (gp.PlanError, "image_std='a'; set it", lambda: ops.from_hf({**HF, "image_std": [1, "a"]})),
    (gp.PlanError, "normalize needs std above 0", lambda: ops.from_hf({**HF, "image_std": [1, 0, 1]})),
    (gp.PlanError, "shortest_edge='9'; set it", lambda: ops.from_hf({**HF, "size": {"shortest_edge": "9"}})),
    (gp.PlanError, r"size\['width'\]=-1; set it", lambda: ops.from_hf({**HF, "size": {"height": 9, "width": -1}})),
    (gp.PlanError, "crop_size=12 of a width of 9", lambda: ops.from_hf({**HF, "size": {"height": 12, "width": 9}})),
    (gp.PlanError, "crop_size=12 of a height of 10", lambda: ops.from_hf({**HF, "size": {"shortest_edge": 10}})),
    (PlanTypeError, "settings of an image processor", lambda: ops.from_hf({})),
    (PlanTypeError, "got int", lambda: ops.from_hf(7)),
    (gp.PlanError, "VideoMAEImageProcessor; hand in", lambda: ops.from_hf(named("VideoMAEImageProcessor"))),
    (gp.PlanError, "PerceiverFeatureExtractor; hand", lambda: ops.from_hf(named("PerceiverFeatureExtractor"))),
    (gp.PlanError, "a height of any length", lambda: ops.from_hf(named("ViTImageProcessor", do_resize=False))),
    (gp.PlanError, "do_pad=True of ViTImageProcessor", lambda: ops.from_hf(named("ViTImageProcessor", do_pad=True))),
    (gp.PlanError, "do_center_crop=True of Detr", lambda: ops.from_hf(named("DetrImageProcessor"))),
    (gp.PlanError, "without antialias", lambda: ops.from_hf(
        named("DepthProImageProcessor", resample=3, do_center_crop=None))),
    (gp.PlanError, "size_divisor=32", lambda: ops.from_hf(named("ViTImageProcessor", size_divisor=32))),
    (gp.PlanError, "give it one length", lambda: ops.from_hf(
        named("PoolFormerImageProcessor", crop_pct=0.9, size={"height": 9, "width": 8}))),
    (gp.PlanError, "give it shortest_edge alone", lambda: ops.from_hf(
        named("ConvNextImageProcessor", crop_pct=0.9, size={"height": 9, "width": 8}))),
    (gp.PlanError, "pad_size=7; write it as", lambda: ops.from_hf(
        named("DetrImageProcessor", do_center_crop=None, do_pad=True, pad_size=7))),
    (gp.PlanError, "size=.*longest_edge.*alone", lambda: ops.from_hf(named("SamImageProcessor"))),
)  # fmt: skip

"""decoders: the calls that `decode` compares: a JPEG as a whole, or a window of it, to uint8[h,w,3], on one thread.

Each function imports its library and returns a `Decoder`. A library without windows decodes the whole image and cuts
the window out, as its users do. Colours are interpolated ("fancy upsampling"), and the transform is the exact one where
there is a choice.
"""

from __future__ import annotations

import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["DECODERS", "Decoder", "Window"]

Window = tuple[int, int, int, int]
"""Top, left, height and width in pixels."""
Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Decoder:
    """How a library decodes; it may take many images in one call, as DALI does.

    Attributes:
        whole: images to pixels.
        windows: images and their windows to pixels.
        region: whether it decodes less than the whole image for a window.
    """

    whole: Callable[[Sequence[bytes]], Sequence[Any]]
    windows: Callable[[Sequence[bytes], Sequence[Window]], Sequence[Any]]
    region: bool


def _each(whole: Callable[[bytes], Any], window: Callable[[bytes, Window], Any] | None = None) -> Decoder:
    """A decoder of single images; without `window`, cut out of the whole image."""

    def cut(data: bytes, at: Window) -> Any:
        top, left, height, width = at
        return whole(data)[top : top + height, left : left + width]

    one = window or cut
    return Decoder(
        lambda images: [whole(data) for data in images],
        lambda images, places: [one(data, at) for data, at in zip(images, places, strict=True)],
        window is not None,
    )


def _gpupipe(form: str) -> Decoder:
    from gpupipe.ops._shared.crop import Crop
    from gpupipe.ops._shared.decode_crop import DecodeCrop
    from gpupipe.ops.decode_jpeg import DecodeJpeg

    decode = DecodeJpeg(3)
    fused = DecodeCrop.of(decode, Crop())
    assert fused is not None
    crop = getattr(fused, form)

    def window(data: bytes, at: Window) -> Any:
        return crop(data, np.array(at[:2], np.int32), np.array(at[2:], np.int32))

    return _each(decode.reference, window)


def _simplejpeg() -> Decoder:
    simplejpeg: Any = importlib.import_module("simplejpeg")
    return _each(lambda data: simplejpeg.decode_jpeg(data, "RGB"))


def _pillow() -> Decoder:
    image: Any = importlib.import_module("PIL.Image")

    def opened(data: bytes) -> Any:
        found = image.open(io.BytesIO(data))
        return found if found.mode == "RGB" else found.convert("RGB")

    def window(data: bytes, at: Window) -> Any:
        top, left, height, width = at
        return np.asarray(opened(data).crop((left, top, left + width, top + height)))

    return Decoder(
        lambda images: [np.asarray(opened(data)) for data in images],
        lambda images, places: [window(data, at) for data, at in zip(images, places, strict=True)],
        False,
    )


def _opencv() -> Decoder:
    cv2: Any = importlib.import_module("cv2")
    cv2.setNumThreads(1)
    how = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    return _each(lambda data: cv2.imdecode(np.frombuffer(data, np.uint8), how))


def _nvimgcodec() -> Decoder:
    codec: Any = importlib.import_module("nvidia.nvimgcodec")
    own = codec.Decoder(  # -99999 is its name of "no GPU"
        device_id=-99999, max_num_cpu_threads=1, backends=[codec.Backend(codec.CPU_ONLY)],
        options=":fancy_upsampling=1",
    )  # fmt: skip
    params = codec.DecodeParams(color_spec=codec.ColorSpec.SRGB, apply_exif_orientation=False)

    def window(data: bytes, at: Window) -> Any:
        region = codec.Region(at[:2], (at[0] + at[2], at[1] + at[3]))
        return np.asarray(own.decode(codec.CodeStream(data).get_sub_code_stream(region=region), params=params))

    return _each(lambda data: np.asarray(own.decode(codec.CodeStream(data), params=params)), window)


def _tensorflow() -> Decoder:
    tf: Any = importlib.import_module("tensorflow")
    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    exact = {"channels": 3, "dct_method": "INTEGER_ACCURATE"}
    return _each(
        lambda data: tf.io.decode_jpeg(data, **exact).numpy(),
        lambda data, at: tf.image.decode_and_crop_jpeg(data, at, **exact).numpy(),
    )


def _turboloader() -> Decoder:
    turboloader: Any = importlib.import_module("turboloader")
    return _each(turboloader.decode_jpeg)  # its call for windows also decodes at a fraction of the size


def _dali() -> Decoder:
    dali, fn, types = (importlib.import_module(f"nvidia.dali{name}") for name in ("", ".fn", ".types"))
    built: dict[tuple[bool, int], Any] = {}

    def pipeline(windows: bool, rows: int) -> Any:
        pipe: Any = dali.Pipeline(batch_size=rows, num_threads=1, device_id=None, prefetch_queue_depth=1)
        how = {"device": "cpu", "adjust_orientation": False, "jpeg_fancy_upsampling": True}
        with pipe:
            data = fn.external_source(name="data", dtype=types.UINT8, ndim=1, no_copy=True)
            if windows:
                start, shape = (fn.external_source(name=name, dtype=types.INT32, ndim=1) for name in ("start", "shape"))
                pipe.set_outputs(fn.decoders.image_slice(data, start, shape, axis_names="HW", **how))
            else:
                pipe.set_outputs(fn.decoders.image(data, **how))
        pipe.build()
        return pipe

    def run(images: Sequence[bytes], places: Sequence[Window] | None) -> Sequence[Any]:
        key = places is not None, len(images)
        pipe = built[key] if key in built else built.setdefault(key, pipeline(*key))
        pipe.feed_input("data", [np.frombuffer(data, np.uint8) for data in images])
        if places is not None:
            pipe.feed_input("start", [np.array(at[:2], np.int32) for at in places])
            pipe.feed_input("shape", [np.array(at[2:], np.int32) for at in places])
        (pixels,) = pipe.run()
        return [pixels.at(i) for i in range(len(images))]

    return Decoder(lambda images: run(images, None), run, True)


DECODERS: Mapping[str, tuple[str, Callable[[], Decoder]]] = {
    "simplejpeg": ("simplejpeg (libjpeg-turbo)", _simplejpeg),
    "gpupipe-numpy": ("gpupipe, NumPy", lambda: _gpupipe("reference")),
    "gpupipe-fast": ("gpupipe, fast", lambda: _gpupipe("fast")),
    "dali": ("DALI, as gpupipe asks it", _dali),
    "nvimgcodec": ("nvImageCodec, CPU", _nvimgcodec),
    "pillow": ("Pillow", _pillow),
    "opencv": ("OpenCV", _opencv),
    "tensorflow": ("TensorFlow", _tensorflow),
    "turboloader": ("TurboLoader", _turboloader),
}
"""By name: a label, and what imports the library; simplejpeg is the reference."""

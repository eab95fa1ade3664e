"""region: decode a window of a JPEG, and nothing else of it, with nvImageCodec's decoder for the CPU.

DALI brings nvImageCodec along. Its pixels are those of the whole image: it decodes with libjpeg-turbo, which skips the
transform and the colours of blocks outside the window, and stops below it. Where nvImageCodec is not installed, and
for images that it refuses, other decoders do the work: no result depends on it.
"""

from __future__ import annotations

import os
import threading
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from gpupipe.errors import text_of
from gpupipe.log import logger

__all__ = ["decode_region", "region_decoder"]

_VERBOSITY = "PYNVIMGCODEC_VERBOSITY"
"""The variable from which nvImageCodec, when it is imported, reads how much it prints about images that it refuses."""


class _Own(threading.local):
    """A decoder of each thread, which decodes on that thread: one more thread would only hand images over."""

    def __init__(self) -> None:
        codec = region_decoder()
        backends = [codec.Backend(codec.CPU_ONLY)]
        # -99999 is nvImageCodec's name of "no GPU". Colours are interpolated, as everywhere in gpupipe.
        self.decode = codec.Decoder(
            device_id=-99999, max_num_cpu_threads=1, backends=backends, options=":fancy_upsampling=1"
        ).decode
        self.colours, self.gray = (
            codec.DecodeParams(color_spec=spec, apply_exif_orientation=False)
            for spec in (codec.ColorSpec.SRGB, codec.ColorSpec.GRAY)
        )
        self.stream, self.region = codec.CodeStream, codec.Region


@lru_cache(1)
def region_decoder() -> Any:
    """NvImageCodec's module; None where it is not installed, or cannot be imported, which is logged."""
    quiet = _VERBOSITY not in os.environ
    if quiet:
        os.environ[_VERBOSITY] = "0"
    try:
        from nvidia import nvimgcodec
    except ModuleNotFoundError:
        return None
    except Exception as error:
        logger.warning("nvImageCodec is installed, but importing it fails with %s; it is not used", text_of(error))
        return None
    finally:
        if quiet:
            del os.environ[_VERBOSITY]
    return nvimgcodec


@lru_cache(1)
def _own() -> _Own | None:
    """What the calling thread has of its own; None where nvImageCodec is not there."""
    return None if region_decoder() is None else _Own()


def decode_region(
    data: bytes | bytearray | memoryview, window: tuple[int, int, int, int], gray: bool
) -> npt.NDArray[Any] | None:
    """Decode a window of a JPEG.

    Args:
        data: the encoded image, one for which `is_ordinary` is true.
        window: (top, left, height, width) in pixels; inside the image, and not empty.
        gray: decode it to gray.

    Returns:
        uint8[height,width,1 or 3], or None if nvImageCodec refuses the image or is not there.
    """
    own = _own()
    if own is None:
        return None
    top, left, height, width = window
    region = own.region((top, left), (top + height, left + width))
    stream = own.stream(data).get_sub_code_stream(region=region)
    image = own.decode(stream, params=own.gray if gray else own.colours)
    return None if image is None else np.asarray(image)

"""decode_crop: decode only a window of an image; the optimizer fuses a decoder and a crop into it."""

from __future__ import annotations

from typing import Any, ClassVar

from gpupipe.classes import dataclass
from gpupipe.extract.images.decode import Window
from gpupipe.graph.op import Array, Op
from gpupipe.ops._shared.crop import Crop
from gpupipe.ops._shared.decoding import Decoding, FusedDecoding, decoder, native_channels
from gpupipe.ops._shared.libraries import turned
from gpupipe.spec import TensorSpec

__all__ = ["DecodeCrop"]


@dataclass(frozen=True, slots=True)
class DecodeCrop(FusedDecoding):
    """A decoder fused with a crop, equal to both on the CPU. Nothing but the window is decoded, or no rows below it.

    Attributes:
        crop: the crop, which does not pad.

    Shapes: ``bytes, int32[2], int32[2] -> uint8[h,w,C]{HWC}``
    """

    parameters: ClassVar[tuple[str, ...]] = ("start", "shape")

    crop: Crop

    @classmethod
    def of(cls, decode: Op, crop: Crop) -> DecodeCrop | None:
        """Fuse the two; None where `decode` is not a `Decoding`, or the window may reach beyond the image."""
        return cls(decode, crop) if isinstance(decode, Decoding) and decode.decodes and not crop.pad else None

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        return self.crop.infer(self.decoder.infer(*xs))

    def size(self, hw: Array, *params: Array) -> Array:
        return params[1]

    def reference(self, data: Any, start: Array, shape: Array) -> Array:
        return self.crop.reference(self.decoder.reference(data), start, shape)

    def fast(self, data: Any, start: Array, shape: Array) -> Array:
        return self.decoder.on_host(data, window=Window(*start.tolist(), *shape.tolist()), turned=turned)

    def dali(self, d: Any, data: Any, start: Any, shape: Any) -> Any:
        if not d.region_decode:
            return self.crop.dali(d, self.decoder.dali(d, data), start, shape)
        channels = self.decoder.channels
        options = decoder(d, channels, self.exif_orientation)
        image = d.fn.decoders.image_slice(data, start, shape, axis_names="HW", **options)
        d.note_decoded(image, region=True)
        return native_channels(d, data, image) if channels == 0 else image

"""tf_crop: torchvision's RandomResizedCrop in TensorFlow's own ops.

`tf.image.sample_distorted_bounding_box` has another distribution: of an ImageNet-size image it keeps 37 % of the area
on average, torchvision's 43 %, so using it would be less work.
"""

from __future__ import annotations

import importlib
import math
from typing import Any

__all__ = ["window"]


def window(shape: Any) -> Any:
    """Draw int32 [y, x, height, width] for an image of `shape` int32 [height, width, channels]."""
    tf: Any = importlib.import_module("tensorflow")
    size = tf.cast(shape[:2], tf.float32)
    height, width = size[0], size[1]
    draws = tf.random.uniform([2, 10])  # all ten attempts at once
    area = height * width * (0.08 + 0.92 * draws[0])
    ratio = tf.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * draws[1])
    widths, heights = tf.round(tf.sqrt(area * ratio)), tf.round(tf.sqrt(area / ratio))
    fits = (widths > 0) & (widths <= width) & (heights > 0) & (heights <= height)
    found, first = tf.reduce_any(fits), tf.argmax(fits)
    w = tf.where(found, widths[first], tf.minimum(width, tf.round(height * 4 / 3)))
    h = tf.where(found, heights[first], tf.minimum(height, tf.round(width * 4 / 3)))
    room = size - tf.stack([h, w])
    place = tf.where(found, tf.floor(tf.random.uniform([2]) * (room + 1)), tf.floor(room / 2))
    return tf.cast(tf.concat([place, [h, w]], 0), tf.int32)

"""scene: draw a landscape that resembles a photograph, from random numbers alone.

A photograph costs a JPEG decoder as much as its detail does, and natural detail falls with frequency as 1/f. So every
surface has 1/f noise, cropped from a few large fields that are made once per process: new noise for each photograph
would take longer than everything else. The scene has a top and a bottom (sky over ground, upright shapes), a sun on one
side and shadows that fall away from it, so that a flip or a crop is visible at a glance.

The pixels are made by NumPy alone: they depend on the random generator, never on an image library.
"""

from __future__ import annotations

from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from gpupipe.comparison.shapes import KINDS, Colour, Field, Spot

__all__ = ["KINDS", "photograph"]

Pixels: TypeAlias = npt.NDArray[np.uint8]

FIELD_SIDE = 1024  # the fields are periodic, and larger than any photograph of the demo
FIELD_SEED = 20_000  # the fields do not depend on the caller's seed
DETAIL_SLOPES = (0.95, 1.05, 1.15)  # amplitude falls as f**-slope; natural images lie near 1
SMOOTH_SLOPE = 1.9  # clouds and colour casts

# (zenith, horizon, ground) per time of day, 0..255
LIGHTS: tuple[tuple[Colour, Colour, Colour], ...] = (
    ((62, 112, 190), (190, 212, 232), (92, 118, 58)),  # noon, grass
    ((70, 96, 160), (236, 190, 140), (122, 104, 66)),  # evening, steppe
    ((120, 136, 152), (202, 206, 208), (84, 96, 72)),  # overcast
    ((44, 120, 188), (206, 222, 224), (196, 174, 128)),  # beach
    ((58, 66, 120), (224, 142, 116), (74, 72, 82)),  # dusk
)


def photograph(rng: np.random.Generator, height: int, width: int, kind: int | None = None) -> Pixels:
    """Draw one landscape: sky, sun, hills, ground and a few shaded shapes.

    Args:
        rng: the only source of randomness; an equally seeded generator gives the same pixels.
        height: pixels, 16..1024.
        width: pixels, 16..1024.
        kind: which of `KINDS` is in the foreground; None lets `rng` choose.

    Returns:
        uint8[height, width, 3]{HWC}, RGB.

    Raises:
        ValueError: a side outside 16..1024, or a `kind` that is not an index of `KINDS`.
    """
    if not (16 <= height <= FIELD_SIDE and 16 <= width <= FIELD_SIDE):
        raise ValueError(f"photograph needs sides of 16..{FIELD_SIDE} pixels, got {height}x{width}")
    chosen = int(rng.integers(len(KINDS)))  # drawn even if unused, so that `kind` changes nothing else
    if kind is not None:
        if not 0 <= kind < len(KINDS):
            raise ValueError(f"photograph needs a kind of 0..{len(KINDS) - 1}, got {kind}; see KINDS")
        chosen = kind

    zenith, haze, ground = LIGHTS[int(rng.integers(len(LIGHTS)))]
    horizon = int(height * rng.uniform(0.35, 0.6))
    sun = (rng.uniform(0.1, 0.55) * horizon, rng.uniform(0.08, 0.92) * width)
    image = np.empty((height, width, 3), np.float32)
    _paint_sky(image[:horizon], rng, zenith, haze, sun)
    _paint_ground(image[horizon:], haze, ground)
    _paint_hills(image, rng, horizon, haze, ground)
    for depth in np.sort(rng.uniform(0.15, 0.85, int(rng.integers(3, 8)))):  # far ones first: near ones cover them
        foot = horizon + depth * (height - horizon)
        centre = rng.uniform(0.05, 0.95) * width
        size = (0.12 + 0.42 * depth) * min(height, width) * rng.uniform(0.7, 1.2)
        spot = Spot(image, foot, centre, size, light=1 if centre < sun[1] else -1)
        spot.paint_shadow()
        KINDS[chosen][1](spot, rng)
    _add_texture(image, rng, horizon)
    return np.clip(image, 0, 255, out=image).astype(np.uint8)


@cache
def _noise(slope: float, number: int) -> Field:
    """A periodic field of 1/f**slope noise: float32[1024,1024], mean 0, variance 1."""
    rng = np.random.default_rng((FIELD_SEED, number))
    rows, columns = np.fft.fftfreq(FIELD_SIDE)[:, None], np.fft.rfftfreq(FIELD_SIDE)[None]
    frequency = np.hypot(rows, columns)
    frequency[0, 0] = np.inf  # no mean
    phases = rng.standard_normal((*frequency.shape, 2)).view(np.complex128)[..., 0]
    field = np.fft.irfft2(phases * frequency**-slope, (FIELD_SIDE, FIELD_SIDE))
    normal: Field = ((field - field.mean()) / field.std()).astype(np.float32)
    return normal


def _cut(rng: np.random.Generator, height: int, width: int, slope: float, number: int) -> Field:
    """Crop a random window of a noise field, in one of its eight orientations; a view."""
    field = _noise(slope, number)
    if rng.random() < 0.5:
        field = field.T
    top, left = rng.integers(FIELD_SIDE - height + 1), rng.integers(FIELD_SIDE - width + 1)
    window = field[top : top + height, left : left + width]
    return window[:: 1 if rng.random() < 0.5 else -1, :: 1 if rng.random() < 0.5 else -1]


def _paint_sky(image: Field, rng: np.random.Generator, zenith: Colour, haze: Colour, sun: tuple[float, float]) -> None:
    height, width, _ = image.shape
    down = np.linspace(0, 1, height, dtype=np.float32)[:, None, None]
    image[:] = np.array(zenith, np.float32) * (1 - down) + np.array(haze, np.float32) * down
    cover = _cut(rng, height, width, SMOOTH_SLOPE, 0)
    image += np.clip(cover * 45 - rng.uniform(-10, 50), 0, 90)[:, :, None]
    y, x = np.ogrid[:height, :width]
    far = np.hypot((y - sun[0]).astype(np.float32), (x - sun[1]).astype(np.float32))
    radius = max(3.0, 0.035 * (height + width))
    glow = np.clip(1 - far / (5 * radius), 0, 1) ** 2 * 90 + np.clip(radius - far, 0, 1.5) * 120
    image += glow[:, :, None] * np.array((1, 0.92, 0.7), np.float32)


def _paint_ground(image: Field, haze: Colour, ground: Colour) -> None:
    near = np.sqrt(np.linspace(0.02, 1, len(image), dtype=np.float32))[:, None, None]
    image[:] = np.array(haze, np.float32) * 0.8 * (1 - near) + np.array(ground, np.float32) * near


def _paint_hills(image: Field, rng: np.random.Generator, horizon: int, haze: Colour, ground: Colour) -> None:
    """Paint two ridges before the sky, the nearer one darker and less hazy."""
    width = image.shape[1]
    rows = np.arange(horizon, dtype=np.float32)[:, None]
    for share, rise in ((0.35, 0.28), (0.75, 0.14)):
        ridge = _cut(rng, 1, width, SMOOTH_SLOPE, 1)[0]
        top = horizon * (1 - rise * (1 + 0.6 * ridge))
        cover = np.clip(rows - top, 0, 1)[:, :, None]  # one pixel of antialiasing along the ridge
        colour = np.array(haze, np.float32) * (1 - share) + np.array(ground, np.float32) * 0.7 * share
        image[:horizon] += cover * (colour - image[:horizon])


def _add_texture(image: Field, rng: np.random.Generator, horizon: int) -> None:
    """Add grain to every surface, strong on the ground and weak in the sky, and a slowly varying colour cast."""
    height, width, _ = image.shape
    number = int(rng.integers(len(DETAIL_SLOPES)))
    strength = np.full(height, rng.uniform(20, 44), np.float32)
    strength[:horizon] *= rng.uniform(0.25, 0.9)
    luma = _cut(rng, height, width, DETAIL_SLOPES[number], 2 + number) * strength[:, None]
    warm = _cut(rng, height, width, DETAIL_SLOPES[-1], 5) * np.float32(rng.uniform(3, 9))
    cool = _cut(rng, height, width, SMOOTH_SLOPE, 6) * np.float32(12)
    image[..., 0] += luma + warm + cool
    image[..., 1] += luma - 0.4 * warm
    image[..., 2] += luma - 0.6 * warm - cool

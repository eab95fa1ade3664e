"""shapes: the foreground of a drawn photograph: balls, houses, trees, towers, and their shadows.

A shape is a function of (y, x) that is above 0 inside; the unit is the shape's height, the origin the middle of its
foot, and y points down.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from ..classes import dataclass

__all__ = ["KINDS", "Colour", "Field", "Spot"]

Field: TypeAlias = npt.NDArray[np.floating[Any]]
Colour: TypeAlias = tuple[float, float, float]
Span: TypeAlias = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Spot:
    """A position for a shape.

    Attributes:
        image: float32[H,W,3]{HWC}, painted in place.
        foot: row of the shape's foot, pixels.
        centre: its middle column, pixels.
        size: its height, pixels.
        light: the side the light comes from: 1 right, -1 left.
    """

    image: Field
    foot: float
    centre: float
    size: float
    light: int

    def paint_shadow(self) -> None:
        """Paint an ellipse at the shape's foot, away from the light."""
        away = -0.5 * self.light
        self.paint(
            (-0.1, 0.1),
            (-1.1, 1.1),
            lambda y, x: 1 - np.square(y / 0.09) - np.square((x - away) / 0.6),
            (24, 24, 30),
            opacity=0.45,
            slope=0,
        )

    def paint(
        self,
        rows: Span,
        columns: Span,
        inside: Callable[[Field, Field], Field],
        colour: Colour,
        opacity: float = 1,
        slope: float = 0.7,
    ) -> None:
        """Paint a shape, brighter towards the light; its edge is about a pixel wide.

        Args:
            rows: its bounds, in units of its height.
            columns: its bounds, in units of its height.
            inside: a function of (y, x) that is above 0 inside the shape.
            colour: RGB, 0..255.
            opacity: 0..1.
            slope: how much brightness grows towards the light, per unit.
        """
        height, width, _ = self.image.shape
        top, bottom = (min(max(int(self.foot + row * self.size), 0), height) for row in rows)
        left, right = (min(max(int(self.centre + column * self.size), 0), width) for column in columns)
        if top >= bottom or left >= right:
            return
        y = ((np.arange(top, bottom) - self.foot) / self.size).astype(np.float32)[:, None]
        x = ((np.arange(left, right) - self.centre) / self.size).astype(np.float32)[None]
        cover = (np.clip(inside(y, x) * (0.5 * self.size), 0, 1) * opacity)[:, :, None]
        shade = (1 + slope * self.light * x - 0.15 * (y + 0.5))[:, :, None]
        box = self.image[top:bottom, left:right]
        box += cover * (np.array(colour, np.float32) * shade - box)


def _ball(spot: Spot, rng: np.random.Generator) -> None:
    spot.paint((-1, 0.05), (-0.5, 0.5), lambda y, x: 0.25 - np.square(y + 0.48) - np.square(x), _colour(rng))


def _house(spot: Spot, rng: np.random.Generator) -> None:
    spot.paint((-0.62, 0.02), (-0.5, 0.5), lambda y, x: _rectangle(y, x, (-0.6, 0), (-0.45, 0.45)), _colour(rng, 140))
    spot.paint(
        (-1.02, -0.5),
        (-0.62, 0.62),
        lambda y, x: np.minimum((y + 1) * 1.4 - np.abs(x), -0.58 - y) * 4,
        (142, 58, 44),
    )
    spot.paint((-0.36, 0.02), (-0.3, -0.1), lambda y, x: _rectangle(y, x, (-0.34, 0), (-0.28, -0.12)), (62, 44, 34))
    spot.paint(
        (-0.45, -0.22), (0.04, 0.28), lambda y, x: _rectangle(y, x, (-0.43, -0.25), (0.06, 0.26)), (204, 222, 236)
    )


def _tree(spot: Spot, rng: np.random.Generator) -> None:
    phase = np.float32(rng.uniform(0, 6))  # of the bumps along the edge of the crown
    green: Colour = (rng.uniform(40, 110), rng.uniform(90, 140), rng.uniform(30, 60))
    spot.paint((-0.62, 0.02), (-0.12, 0.12), lambda y, x: _column(y, x, 0.6, 0.09, 0.05), (84, 62, 44))
    spot.paint(
        (-1.35, -0.35),
        (-0.48, 0.48),
        lambda y, x: (
            1
            - np.square((y + 0.85) / 0.45)
            - np.square(x / 0.4)
            + 0.16 * np.sin(23 * x + phase) * np.sin(19 * y + 2 * phase)
        ),
        green,
    )


def _tower(spot: Spot, rng: np.random.Generator) -> None:
    box: tuple[Span, Span] = ((-1.35, 0.02), (-0.25, 0.25))
    spot.paint(*box, lambda y, x: _column(y, x, 1.3, 0.2, 0.07), (226, 224, 218))
    spot.paint(*box, lambda y, x: np.minimum(_column(y, x, 1.3, 0.2, 0.07), 2 * np.sin(12 * y)), _colour(rng))  # bands


#: The shapes of the foreground: name and painter. The index is the class label of a photograph.
KINDS: tuple[tuple[str, Callable[[Spot, np.random.Generator], None]], ...] = (
    ("ball", _ball),
    ("house", _house),
    ("tree", _tree),
    ("tower", _tower),
)


def _rectangle(y: Field, x: Field, rows: Span, columns: Span) -> Field:
    inside: Field = np.minimum(np.minimum(y - rows[0], rows[1] - y), np.minimum(x - columns[0], columns[1] - x))
    return np.multiply(inside, 4)


def _column(y: Field, x: Field, height: float, foot: float, taper: float) -> Field:
    """Inside of an upright column `height` high and 2 * `foot` wide, narrower at the top."""
    inside: Field = np.minimum(foot + taper * y - np.abs(x), np.minimum(y + height, -y))
    return np.multiply(inside, 6)


def _colour(rng: np.random.Generator, least: float = 30) -> Colour:
    red, green, blue = rng.uniform(least, 235, 3)
    return float(red), float(green), float(blue)

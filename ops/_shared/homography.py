"""homography: maps of the plane that keep lines straight, and the primitive that resamples an image by one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from gpupipe.classes import dataclass
from gpupipe.errors import SpecError
from gpupipe.graph.op import Array
from gpupipe.ops._shared.sometimes import where_dali
from gpupipe.ops._shared.turn import WIDENED
from gpupipe.ops._shared.warp import DTYPES, Warp
from gpupipe.spec import TensorSpec

__all__ = ["Homography", "homographies"]

NEAR = 0.001

NARROW = 1e-7
"""Twice the area of a triangle of points, as a share of the rectangle around all, below which they are on a line."""


@dataclass(frozen=True, slots=True)
class Homography(Warp):
    """Resample the image at the positions (x / w, y / w), ``(x, y, w) = matrix @ (x', y', 1)``.

    "nearest" takes the pixel 0.001 to the right and below: maps of whole pixels have many positions right between two
    pixels, where rounding would decide.

    DALI and OpenCV compute positions in float32: "bilinear" differs by 0.02 levels at 500 pixels, 1 where integers are
    rounded, and "nearest" may choose the other one of two pixels as near.

    Shapes: ``T[H,W,C]{HWC}, float32[3,3] -> T[H,W,C]{HWC}`` for 1, 3 or 4 channels
    """

    widens: ClassVar[tuple[np.dtype[Any], ...]] = (*WIDENED, np.dtype(np.int16))  # interpolated by weights of 5 bits

    def infer(self, *xs: TensorSpec) -> TensorSpec:
        x = Warp.infer(self, *xs)
        if x.dtype not in DTYPES:
            raise SpecError(f"{self.stage} needs an image of up to 16 bits or float32, got {x}; use ops.cast")
        assert x.shape is not None  # an image {HWC} has a rank
        if x.shape[2] not in (1, 3, 4, None):
            raise SpecError(f"{self.stage} needs an image of 1, 3 or 4 channels, got {x}")
        return x

    def positions(self, matrix: Array, size: Sequence[int] | Array) -> tuple[Array, Array]:
        across, down = np.arange(int(size[1])) + 0.5, np.arange(int(size[0]))[:, None] + 0.5
        x, y, w = (a * across + (b * down + c) for a, b, c in matrix.astype(np.float64))
        w[w == 0] = np.inf
        aside = NEAR if self.interpolation == "nearest" else 0.0
        return (x / w + aside).astype(np.float32), (y / w + aside).astype(np.float32)

    def reference(self, x: Array, matrix: Array, size: Array | None = None) -> Array:
        return self.resampled(x, *self.positions(matrix, x.shape if size is None else size))

    def pixels(self, matrix: Array, size: Sequence[int] | Array) -> tuple[Array, Array]:
        columns, rows = self.positions(matrix, size)
        return np.floor(columns, out=columns), np.floor(rows, out=rows)

    def _by_opencv(self, cv2: Any, x: Array, m: Array, size: tuple[int, int], how: dict[str, Any]) -> Any:
        to_corner = np.array([[1, 0, 0.5], [0, 1, 0.5], [0, 0, 1]])
        to_centre = np.array([[1, 0, -0.5], [0, 1, -0.5], [0, 0, 1]])
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        return cv2.warpPerspective(x, to_centre @ m @ to_corner, size, flags=flags, **how)

    def dali(self, d: Any, x: Any, matrix: Any, size: Any = None) -> Any:
        return self._by_channels(d, x, matrix, (0, 1, 2, 3)) if d.unknown_channels else self._warped(d, x, matrix)

    def _by_channels(self, d: Any, x: Any, matrix: Any, counts: tuple[int, ...]) -> Any:
        """Images of each number of channels apart: DALI writes beyond its memory for a batch of several, or of 0."""
        if not counts:
            return self._warped(d, x, matrix)
        first, *others = counts
        return where_dali(
            d,
            x.shape()[2] == first,
            x,
            (matrix,),
            lambda x, matrix: self._warped(d, x, matrix) if first else x,
            lambda x, matrix: self._by_channels(d, x, matrix, tuple(others)),
        )

    def _warped(self, d: Any, x: Any, matrix: Any) -> Any:
        if self.interpolation == "nearest":
            aside = matrix[2] * NEAR
            matrix = d.fn.stack(matrix[0] + aside, matrix[1] + aside, matrix[2])
        warped = d.fn.experimental.warp_perspective(
            d.fn.cast(x, dtype=d.dtype(np.float32)) if self.widened else x,
            matrix=matrix,
            interp_type=d.types.INTERP_NN if self.interpolation == "nearest" else d.types.INTERP_LINEAR,
            inverse_map=True,
            pixel_origin="corner",
            border_mode="constant",
            fill_value=list(self.fill),
        )
        return d.fn.cast_like(warped, x) if self.widened else warped


def homographies(start: Array, end: Array) -> tuple[Array, Array]:
    """The maps that lead from four points of a result to four of an image, as torchvision computes them.

    Args:
        start: float64[B,4,2], points (x, y) of the images.
        end: the same points in the results.

    Returns:
        float32[B,3,3], and for each row whether there is such a map, which can be inverted: three points on a line
        have none, and their row is the map that moves nothing.
    """
    count = len(start)
    x, y = end[:, :, 0], end[:, :, 1]
    system = np.zeros((count, 4, 2, 8))
    system[:, :, 0, 0], system[:, :, 0, 1], system[:, :, 0, 2] = x, y, 1
    system[:, :, 1, 3], system[:, :, 1, 4], system[:, :, 1, 5] = x, y, 1
    system[:, :, :, 6], system[:, :, :, 7] = -x[:, :, None] * start, -y[:, :, None] * start
    equations, given = system.reshape(count, 8, 8), start.reshape(count, 8, 1)
    found = _spread(start) & _spread(end) & (np.linalg.matrix_rank(equations) == 8)
    solved = np.ones((count, 9))
    solved[:, :8] = np.eye(3).reshape(9)[:8]
    solved[found, :8] = np.linalg.solve(equations[found], given[found])[:, :, 0]
    return solved.reshape(count, 3, 3).astype(np.float32), found


def _spread(points: Array) -> Array:
    """Whether no three of four points, float64[B,4,2], are on a line: bool[B]."""
    triples = points[:, [(0, 1, 2), (0, 1, 3), (0, 2, 3), (1, 2, 3)]]
    (ax, ay), (bx, by) = ((triples[:, :, n] - triples[:, :, 0]).transpose(2, 0, 1) for n in (1, 2))
    least: Array = NARROW * np.ptp(points, axis=1).prod(axis=1)
    found: Array = np.abs(ax * by - ay * bx).min(axis=1) > least
    return found

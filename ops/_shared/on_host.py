"""on_host: ops that the host computes inside of a graph of DALI on the CPU, where that is cheaper than DALI's nodes.

One call of Python for a whole batch, whose rows are divided among as many threads as DALI has: NumPy releases the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gpupipe.graph.op import Array
from gpupipe.threads import DaemonPool

__all__ = ["on_host"]


def on_host(d: Any, function: Callable[..., Array], x: Any, params: Sequence[Any]) -> Any:
    """``function(x, *params)`` for each image, as a DALI node of the CPU.

    Args:
        d: what `Op.dali` gets, of the CPU.
        function: of the image and the parameters of one row; a reference.
        x: the images.
        params: nodes of the host.
    """

    def computed(*columns: list[Array]) -> list[Array]:
        rows = list(zip(*columns, strict=True))
        threads = min(d.threads, len(rows))
        if threads == 1:
            return _each(function, rows)
        pool = DaemonPool(threads, "gpupipe-op")
        try:
            parts = [pool.submit(_each, function, rows[first::threads]) for first in range(threads)]
            made: list[Any] = [None] * len(rows)
            for first, part in enumerate(parts):
                made[first::threads] = part.result()
            return made
        finally:
            pool.close()

    return d.fn.python_function(x, *params, function=computed, batch_processing=True, output_layouts="HWC")


def _each(function: Callable[..., Array], rows: Sequence[tuple[Array, ...]]) -> list[Array]:
    return [np.ascontiguousarray(function(*row)) for row in rows]

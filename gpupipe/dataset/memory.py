"""memory: giving back what ended iterators left for the next ones."""

from __future__ import annotations

import sys

__all__ = ["release_memory"]


def release_memory() -> None:
    """End idle worker processes, destroy idle pipelines and return DALI's unused memory, of the host and of GPUs.

    An iterator that has ended leaves its pipeline for the next one of the same chain: one is kept for each graph, batch
    size and device, 8 in all. It leaves its worker processes, too (see `map`). Iterators that run are not touched.
    """
    if "gpupipe.flow.kept" in sys.modules:
        from ..flow.kept import HOMES

        for home in list(HOMES):
            home.empty()
    if "gpupipe.transform.dali.library" in sys.modules:
        from ..transform.dali.library import release_memory as release

        release()

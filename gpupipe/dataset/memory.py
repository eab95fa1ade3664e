"""memory: giving back what ended iterators left for the next ones."""

from __future__ import annotations

import sys

__all__ = ["release_memory"]


def release_memory() -> None:
    """Destroy idle pipelines and return DALI's unused memory, of the host and of GPUs, to the system.

    An iterator that has ended leaves its pipeline for the next one of the same chain: one is kept for each graph, batch
    size and device, 8 in all. Iterators that run are not touched. Where nothing ran on DALI there is nothing to do.
    """
    if "gpupipe.transform.dali" in sys.modules:
        from ..transform.dali import release_memory as release

        release()

"""memory: release what iterators left for the next ones when they ended."""

from __future__ import annotations

import sys

__all__ = ["release_memory"]


def release_memory() -> None:
    """End idle worker processes, close files, destroy idle pipelines, return DALI's unused host and GPU memory.

    Local files stay open as long as a dataset that read them. An iterator that has ended leaves its pipeline for the
    next one of the same chain: one for each graph, batch size and device, 8 in total. It also leaves its worker
    processes (see `map`), and access by index the last blocks of tables. Running iterators are not affected.
    """
    if "gpupipe.flow.sources.rows" in sys.modules:
        from ..flow.sources.rows import BLOCKS

        BLOCKS.clear()
    if "gpupipe.extract.storage.files" in sys.modules:
        from ..extract.storage.files import LOCAL

        LOCAL.close()
    if "gpupipe.extract.storage.without_size" in sys.modules:
        from ..extract.storage.without_size import WITHOUT_SIZE

        WITHOUT_SIZE.clear()
    if "gpupipe.flow.idle_workers" in sys.modules:
        from ..flow.idle_workers import all_idle

        for home in all_idle():
            home.empty()
    if "gpupipe.transform.dali.library" in sys.modules:
        from ..transform.dali.library import release_memory as release

        release()

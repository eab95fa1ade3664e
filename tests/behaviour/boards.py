"""Ranks as threads that meet on a board in memory, as those of torch.distributed meet in its store."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from gpupipe.load import agreement


class Memory:
    """The board of one rank."""

    name = "memory"

    def __init__(self, rank: int, world: int, texts: dict[str, str]) -> None:
        self.rank, self.world, self.texts, self.identity = rank, world, texts, self

    def put(self, key: str, text: str) -> None:
        assert key not in self.texts
        self.texts[key] = text

    def get(self, key: str) -> str | None:
        return self.texts.get(key)


class Ranks:
    """Runs a function once for each rank, all at the same time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._own = threading.local()
        monkeypatch.setattr(agreement, "board", lambda: getattr(self._own, "board", None))

    def __call__(self, world: int, rank_of: Callable[[int], Any], texts: dict[str, str] | None = None) -> list[Any]:
        """What the function returned for each rank, or the exception that it raised.

        Args:
            world: number of ranks.
            rank_of: the function.
            texts: a store, which may have texts of an earlier call.
        """
        texts = {} if texts is None else texts
        results: list[Any] = [None] * world

        def run(rank: int) -> None:
            self._own.board = Memory(rank, world, texts)
            try:
                results[rank] = rank_of(rank)
            except Exception as error:
                results[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(world)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        return results

"""agree: ranks compare what they are about to do, and each of them raises if they differ.

A rank puts the digest of its part up before it starts an epoch, and starts once every other rank has put up the same,
now or before: a rank that looks at the first batch twice waits for nobody the second time. Another rank that has put up
something that this one never did is in another chain, epoch or place, as no rank starts without the others.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from ..errors import RanksDisagreeError
from ..log import logger
from .board import Board

__all__ = ["Meeting", "Part", "agree"]

WAIT = 600.0
"""Seconds after which a rank that has not come is an error: it may be loading a model meanwhile."""

SAY_AFTER = 15.0
"""Seconds after which the log says for whom a rank waits."""

GRACE = 0.5
"""Seconds for which a rank that has found a difference looks for others, so that all ranks name the same ones."""

SLOWEST = 0.05
"""Seconds between two looks at most."""

Part = Mapping[str, Any]
"""What a rank is about to do, by part: JSON. Equal parts have equal values."""


class Meeting:
    """What the ranks have put up on one board since the engine was initialised, as far as this one has seen it.

    A store may outlive the engine: each time a rank meets the others anew it leaves a mark, and the number of marks is
    the same on all ranks, as none gets on without the others. What was put up before is under other keys.
    """

    def __init__(self, board: Board) -> None:
        self.board = board
        number = 0
        while board.get(f"{board.rank}/{number}/met") is not None:
            number += 1
        board.put(f"{board.rank}/{number}/met", "")
        self._prefix = f"{number}/"
        self.own: list[str] = []
        self.seen: list[list[str]] = [[] for _ in range(board.world)]

    def put(self, part: Part) -> str:
        """Put up what this rank is about to do, once; return its digest."""
        text = json.dumps(part, sort_keys=True, separators=(",", ":"))
        digest = hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()
        if digest not in self.own:
            mine = f"{self._prefix}{self.board.rank}/"
            self.board.put(f"{mine}{digest}/part", text)  # before the digest: whoever sees that reads it
            self.board.put(f"{mine}{len(self.own)}/digest", digest)
            self.own.append(digest)
        return digest

    def look(self, rank: int) -> list[str]:
        """The digests that a rank has put up so far."""
        seen = self.seen[rank]
        while (digest := self.board.get(f"{self._prefix}{rank}/{len(seen)}/digest")) is not None:
            seen.append(digest)
        return seen

    def strange(self, rank: int) -> bool:
        """Whether a rank is about to do something that this one never was."""
        return bool(self.seen[rank]) and self.seen[rank][-1] not in self.own

    def part(self, rank: int, digest: str) -> dict[str, Any]:
        """What a rank put up under a digest."""
        text = self.board.get(f"{self._prefix}{rank}/{digest}/part")
        return {} if text is None else dict(json.loads(text))


_MEETINGS: dict[int, Meeting] = {}
"""By the identity of the board, which a meeting keeps."""

_LOCK = threading.Lock()


def meeting_of(board: Board) -> Meeting:
    """The meeting on a board; a new one where the engine was initialised again."""
    with _LOCK:
        found = _MEETINGS.get(id(board.identity))
        if found is None:
            found = _MEETINGS[id(board.identity)] = Meeting(board)
        return found


def agree(board: Board, part: Part, explain: Callable[[Part, Part, int], str], wait: float | None = None) -> None:
    """Wait until every rank is about to do the same.

    Args:
        board: of this process.
        part: what this rank is about to do.
        explain: says in words how the first of two parts differs from the second, that of a rank.
        wait: seconds; default `WAIT`.

    Raises:
        RanksDisagreeError: a rank is about to do something else, or did not come in time.
    """
    meeting = meeting_of(board)
    digest = meeting.put(part)
    start, pause, said, limit = time.monotonic(), 0.001, False, WAIT if wait is None else wait
    missing = [rank for rank in range(board.world) if rank != board.rank and digest not in meeting.seen[rank]]
    while True:
        missing = [rank for rank in missing if digest not in meeting.look(rank)]
        if any(map(meeting.strange, missing)):
            raise _disagreement(meeting, digest, explain)
        if not missing:
            return
        waited = time.monotonic() - start
        if waited > limit:
            raise RanksDisagreeError(
                f"by_rank needs all ranks to start the same epoch, got nothing from {_names(missing)} in {limit:g} s "
                f"on rank {board.rank}; start the loop on every rank, and use ds.first() to look at a batch on one"
            )
        if waited > SAY_AFTER and not said:
            said = True
            logger.warning("rank %d waits for %s to start the same epoch", board.rank, _names(missing))
        time.sleep(pause)
        pause = min(SLOWEST, pause * 1.5)


def _names(ranks: list[int]) -> str:
    """Ranks in words; the first eight of many."""
    shown = ", ".join(map(str, ranks[:8]))
    return f"rank{'s' * (len(ranks) > 1)} {shown}{f' and {len(ranks) - 8} more' if len(ranks) > 8 else ''}"


def _disagreement(meeting: Meeting, digest: str, explain: Callable[[Part, Part, int], str]) -> RanksDisagreeError:
    """The error that names each rank that differs from most of them; of as many, from the one with the lowest rank."""
    board, until = meeting.board, time.monotonic() + GRACE
    now = {board.rank: digest}
    while len(now) < board.world:
        for rank in range(board.world):
            if rank not in now and meeting.look(rank) and (digest in meeting.seen[rank] or meeting.strange(rank)):
                now[rank] = digest if digest in meeting.seen[rank] else meeting.seen[rank][-1]
        if time.monotonic() > until:
            break
        time.sleep(0.01)
    counts = Counter(now.values())
    model = min(now, key=lambda rank: (-counts[now[rank]], rank))
    normal = meeting.part(model, now[model])
    wrong = [rank for rank in sorted(now) if now[rank] != now[model]]
    texts = [f"rank {rank} {explain(meeting.part(rank, now[rank]), normal, model)}" for rank in wrong[:8]]
    more = f"; and {len(wrong) - 8} more ranks" if len(wrong) > 8 else ""
    return RanksDisagreeError(
        f"by_rank needs ranks that agree, got {'; '.join(texts)}{more} (said on rank {board.rank}); give every rank "
        "the same chain, options, files and epoch"
    )

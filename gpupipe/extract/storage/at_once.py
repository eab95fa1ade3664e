"""at_once: questions about many files, those to a server asked side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from gpupipe.errors import GpupipeError
from gpupipe.extract.storage.glob import is_url
from gpupipe.extract.storage.remote import storage_of
from gpupipe.threads import DaemonPool

__all__ = ["at_once", "versions"]

_T = TypeVar("_T")

MOST = 32
"""Questions at a time."""


def at_once(ask: Callable[[str], _T], names: Sequence[str]) -> list[_T | GpupipeError]:
    """Return what `ask` answers for each name, or the error that it raises.

    An answer from a server takes a round trip, 50 ms or more: where several names are URLs, threads ask.

    Args:
        ask: takes a path, a pattern or a URL, in any thread.
        names: what it is called with.
    """

    def answer(name: str) -> _T | GpupipeError:
        try:
            return ask(name)
        except GpupipeError as error:
            return error

    urls = sum(map(is_url, names))
    if urls < 2:
        return list(map(answer, names))
    pool, done = DaemonPool(min(urls, MOST), "gpupipe-ask"), False
    try:
        found: list[Any] = [pool.submit(answer, name) if is_url(name) else answer(name) for name in names]
        answers: list[_T | GpupipeError] = [one.result() if isinstance(one, Future) else one for one in found]
        done = True
        return answers
    finally:
        pool.close(wait=done)  # Ctrl-C waits for no server


def versions(paths: Sequence[str]) -> list[tuple[int, str] | GpupipeError]:
    """Return the size in bytes and the tag of each file, or why it has none."""
    return at_once(lambda path: storage_of(path).size(path), paths)

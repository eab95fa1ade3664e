"""Chains whose state is taken and loaded, shared by the tests of `state_dict`."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

import gpupipe as gp
from gpupipe.spec import flatten

Build = Callable[[], Any]

PATIENCE = 30.0
"""Seconds until something counts as hanging: a deadline, never what it should take."""


def plain(element: Any) -> Any:
    """An element as something that `==` compares."""
    leaves, structure = flatten(element)
    return str(structure), [leaf_of(leaf) for leaf in leaves]


def leaf_of(leaf: Any) -> Any:
    if isinstance(leaf, gp.Dataset):
        return [plain(element) for element in leaf]
    if isinstance(leaf, gp.Ragged):
        return "ragged", leaf.to_list()
    if isinstance(leaf, (bytes, str)):
        return leaf
    array = np.asarray(leaf)
    return array.dtype.str, array.shape, array.tolist() if array.dtype == object else array.tobytes()


def taken(items: Iterator[Any], count: int | None = None) -> list[Any]:
    """The next elements; an error that is raised is one of them, by its text."""
    out: list[Any] = []
    while count is None or len(out) < count:
        try:
            element = next(items)
        except StopIteration:
            break
        except gp.DataError as error:
            out.append(("error", str(error)))
            continue
        out.append(plain(element))
    return out


def through_json(state: Any) -> Any:
    """A state as another process gets it."""
    return json.loads(json.dumps(state))


def goes_on(build: Build, counts: Iterable[int] | None = None) -> list[Any]:
    """All elements; a state behind each of them, or behind so many, goes on with the next one."""
    with iter(build()) as items:
        whole = taken(items)
    for count in range(len(whole) + 1) if counts is None else counts:
        assert resumed_after(build, count)[0] == whole[count:], count
    return whole


def state_after(source: Any, count: int | None = None) -> Any:
    """The state of a dataset's iterator, or of this one, behind so many elements, as another process gets it."""
    with iter(source) as items:
        taken(items, count)
        return through_json(items.state_dict())


def behind(source: Any, state: Any, limit: int | None = None) -> list[Any]:
    """What the iterator of a dataset, or this one, gives that goes on from a state."""
    with iter(source) as items:
        items.load_state_dict(state)
        return taken(items, limit)


def refused(source: Any, state: Any, match: str) -> None:
    """The iterator of a dataset, or this one, does not take a state."""
    with iter(source) as items, pytest.raises(gp.StateError, match=match):
        items.load_state_dict(state)


def resumed_after(
    build: Build, count: int, again: Build | None = None, limit: int | None = None
) -> tuple[list[Any], Any]:
    """What follows behind `count` elements, by a state that was taken there; and the state."""
    state = state_after(build(), count)
    return behind((again or build)(), state, limit), state


def in_time(work: Callable[[], Any]) -> Any:
    """What `work` gives; it fails where that hangs, instead of hanging too."""
    got: Future[Any] = Future()

    def run() -> None:
        try:
            got.set_result(work())
        except BaseException as error:
            got.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return got.result(PATIENCE)

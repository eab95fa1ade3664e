"""state: the text of where an iterator stands, and whether it belongs to a chain."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import DataError, GpupipeError, PlanError, StateError
from ..extract.element_json import Malformed
from ..extract.storage import storage_of
from ..flow.disk import element_from_json, element_to_json
from ..flow.state import MOST, State, damaged
from ..log import logger
from ..options import Settings
from ..plan.node import Element, Node
from ..plan.outline import Outline, outline
from ..plan.portable import portable
from ..random import LAW

__all__ = [
    "FORMAT",
    "NOTED",
    "Chain",
    "keys_from_json",
    "packed",
    "sealed",
    "types_from_json",
    "types_to_json",
    "unpacked",
]

FORMAT = 2
"""Version of the text. Another one is refused: what a step writes down is its own business."""

NOTED = 128
"""Bad elements whose keys a state holds: those behind it that were read ahead are noted once."""

_PLAIN = 2000
"""Letters of the flow's part of a state that is left as it is, to be read by people."""

_LISTED = 64
"""Steps that are listed in the text, and files whose names are: longer lists are told apart by one digest."""


@dataclass(slots=True)
class Chain:
    """What a state is compared with: the steps, the files and the options that decide which elements there are.

    Attributes:
        plan: the chain.
        settings: its options.
    """

    plan: Node
    settings: Settings
    _head: dict[str, Any] = field(default_factory=dict)
    _outline: Outline | None = None

    def head(self) -> dict[str, Any]:
        """The part of a state that says what it belongs to. Files are looked at once."""
        if not self._head:
            found = self.outlined()
            code = portable(self.plan)
            self._head = {
                "gpupipe_state": FORMAT,
                "law": LAW,
                "steps": _short([[text, digest] for text, digest in found.steps]),
                "code": None if code.private is not None else code.digest.hex(),
                "files": files_of(found.files),
                "options": self._options(),
            }
        return self._head

    def outlined(self) -> Outline:
        """The steps of the chain."""
        if self._outline is None:
            self._outline = outline(self.plan)
        return self._outline

    def _options(self) -> dict[str, Any]:
        s = self.settings
        return {
            "seed": s.seed,
            "on_error": s.on_error,
            "max_pixels": s.max_pixels,
            "deterministic": s.deterministic,
            "disabled_rules": sorted(s.disabled_rules),
        }

    def check(self, state: Any, other_shards: bool = False) -> dict[str, Any]:
        """Whether a state belongs to this chain, its data and this version.

        Args:
            state: what the user gave.
            other_shards: its steps were compared already, and differ in their shard only.

        Raises:
            StateError: it does not; says what is another.
        """
        if not isinstance(state, dict) or "gpupipe_state" not in state:
            raise StateError(f"load_state_dict needs what state_dict returned, got {type(state).__name__}")
        mine = self.head()
        for name, what in (("gpupipe_state", "version of the format"), ("law", "law of random numbers")):
            if state.get(name) != mine[name]:
                raise StateError(
                    f"load_state_dict needs a state with {what} {mine[name]}, got {state.get(name)!r}: it was made by "
                    f"another version of gpupipe; begin the epoch anew"
                )
        try:
            whole = sealed(state)["digest"] == state.get("digest")
        except (TypeError, ValueError, RecursionError):  # what is no JSON never was a state
            whole = False
        if not whole:
            raise damaged()
        self._check_files(state.get("files"), mine["files"])
        if not other_shards:
            self._check_steps(state.get("steps"), mine["steps"])
        theirs = state.get("options")
        for name, value in mine["options"].items():
            other = theirs.get(name) if isinstance(theirs, dict) else None
            if other != value:
                raise StateError(
                    f"load_state_dict needs a state made with {name}={value!r}, got one made with {name}={other!r}; "
                    f"use the same options"
                )
        code = state.get("code")
        if not other_shards and code is not None and mine["code"] is not None and code != mine["code"]:
            logger.warning(
                "load_state_dict: a Python function of the chain, or data that it uses, is not what it was when the "
                "state was made; the elements that follow are made by the present one"
            )
        return state

    def _check_steps(self, theirs: Any, mine: Any) -> None:
        if theirs == mine:
            return
        lines = self.outlined().lines
        if isinstance(theirs, list) and isinstance(mine, list):
            for i, (other, own) in enumerate(zip(theirs, mine, strict=False)):
                if other == own:
                    continue
                was = str(other[0])[:80] if isinstance(other, list) and other else "another"
                same = " with other parameters or another function" if was == own[0] else ""
                raise StateError(
                    f"load_state_dict needs a state of this chain, got one whose step {i + 1} was {was}{same}, where "
                    f"this one has {own[0]} (at {lines[i]})"
                )
            raise StateError(
                f"load_state_dict needs a state of this chain of {len(mine)} steps, got one of {len(theirs)} steps"
            )
        raise StateError("load_state_dict needs a state of this chain, got one of another")

    def _check_files(self, theirs: Any, mine: Any) -> None:
        if theirs == mine:
            return
        if not isinstance(theirs, dict):
            raise StateError("load_state_dict needs a state over the same files, got one that names none")
        count, other = mine["count"], theirs.get("count")
        if count != other:
            raise StateError(f"load_state_dict needs a state over the same {count} files, got one over {other} files")
        named, known = mine.get("sizes"), theirs.get("sizes")
        if isinstance(named, list) and isinstance(known, list):
            for (name, size), (was, before) in zip(named, known, strict=False):
                if (name, size) != (was, before):
                    now = f"{name!r} of {size} bytes" if size is not None else f"{name!r}, which is not there"
                    raise StateError(
                        f"load_state_dict needs a state over the same files, got one over {was!r} of {before} bytes "
                        f"where there is {now} now"
                    )
        raise StateError(
            f"load_state_dict needs a state over the same files, got one over {theirs.get('bytes')} bytes where there "
            f"are {mine['bytes']} bytes now, or files of other names"
        )


def types_to_json(types: Mapping[int, Element]) -> State:
    """The types that only first elements told; those that cannot be written down are told by one again."""
    found = []
    for number, element in sorted(types.items()):
        try:
            found.append([number, element_to_json(element)])
        except PlanError:
            continue
    return found


def types_from_json(given: Any) -> dict[int, Element]:
    """Read them back.

    Raises:
        StateError: there are none.
    """
    found: dict[int, Element] = {}
    for entry in given if isinstance(given, list) else [None]:
        match entry:
            case [int(number), dict(element)]:
                try:
                    found[number] = element_from_json(element)
                except Malformed as error:
                    raise damaged() from error
            case _:
                raise damaged()
    return found


def sealed(state: dict[str, Any]) -> dict[str, Any]:
    """A state with a digest of itself: damage is noticed before anything is made of it."""
    rest = {name: value for name, value in state.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return {**rest, "digest": hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}


def packed(flow: State) -> State:
    """A part of a state; a long text of many steps, files or leaves says the same things often, and is compressed."""
    text = json.dumps(flow, separators=(",", ":"))
    if len(text) <= _PLAIN:
        return flow
    return {"zlib": base64.b64encode(zlib.compress(text.encode(), 3)).decode(), "letters": len(text)}


def unpacked(flow: State) -> State:
    """Read it back.

    Raises:
        StateError: it is damaged.
    """
    if not isinstance(flow, dict) or "zlib" not in flow:
        return flow
    match flow:
        case {"zlib": str(text), "letters": int(letters)} if 0 <= letters <= MOST and len(text) <= MOST:
            pass
        case _:
            raise damaged()
    try:
        inflater = zlib.decompressobj()
        data = inflater.decompress(base64.b64decode(text.encode("ascii"), validate=True), letters + 1)
        if len(data) != letters or not inflater.eof:
            raise damaged()
        return json.loads(data)
    except (ValueError, zlib.error, RecursionError) as error:
        raise damaged() from error


def keys_from_json(given: Any) -> Counter[int]:
    """The keys of bad elements out of a state, and how often each was there.

    Raises:
        StateError: there are none.
    """
    if not isinstance(given, list) or not all(type(key) is int for key in given):
        raise damaged()
    return Counter(given)


def files_of(paths: Sequence[str]) -> dict[str, Any]:
    """The names and sizes of files; of many of them a digest."""
    sizes: list[list[Any]] = []
    for path in paths:
        try:
            size: int | None = storage_of(path).size(path)[0]
        except (DataError, GpupipeError):  # not there, or no file at all: any text may stand in a chain
            size = None
        sizes.append([path, size])
    whole = "\n".join(f"{name} {size}" for name, size in sizes).encode(errors="surrogateescape")
    found: dict[str, Any] = {
        "count": len(sizes),
        "bytes": sum(size or 0 for _, size in sizes),
        "digest": hashlib.blake2b(whole, digest_size=16).hexdigest(),
    }
    if sum(len(name) for name, _ in sizes) <= 40 * _LISTED:
        found["sizes"] = sizes
    return found


def _short(steps: list[Any]) -> State:
    """The steps, or of a long chain a digest of them."""
    if len(steps) <= _LISTED:
        return steps
    return hashlib.blake2b(repr(steps).encode(), digest_size=16).hexdigest()

"""state: what a state says of its chain, files and options, and the comparison with those of an iterator."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from ..classes import dataclass
from ..errors import GpupipeError, PlanError, StateError, shown_name
from ..extract.storage.at_once import versions
from ..extract.storage.remote import storage_of
from ..flow.state.snapshot import MOST, State, as_int, corrupt_state
from ..log import logger
from ..options import Settings
from ..plan.cache import element_from_json, element_to_json
from ..plan.index import redraws
from ..plan.node import ElementType, Node
from ..plan.outline import Outline, outline
from ..plan.portable import portable
from ..plan.ranks import ranks_of
from ..random import LAW, REDRAWN
from ..transform.choose import executor_of
from ..urls import cleaned
from .by_place import Engine, engine_of

__all__ = [
    "FORMAT",
    "NOTED",
    "READ",
    "StateHeader",
    "as_text",
    "check_seal",
    "from_text",
    "packed",
    "sealed",
    "types_from_json",
    "types_to_json",
    "unpacked",
]

FORMAT = 8
"""Version of the format. States of versions that are not in `READ` are refused: each step defines its own part."""

READ = (7, FORMAT)
"""Versions that are read. In version 7 `by_rank` was a step, and nothing told who had made the elements."""

NOTED = 128
"""Bad elements whose keys a state holds, so that those read ahead of the state are noted only once."""

OTHER = -1
"""In the place of the size of a file that has changed and kept its size."""

_DECODING = {"hw_decoder_load": 1.0, "jpeg_fancy_upsampling": True, "approximate_decode": False, "strict_images": False}
"""Decoder options that change pixels, with their defaults; a state holds those that differ."""

_PLAIN = 2000
"""Characters up to which the flow's part of a state is not compressed, so that people can read it."""

_READ = 4 << 20
"""Bytes of a file that are read at a time."""

_LISTED = 64
"""Steps that a state lists; for a longer chain it holds a digest. File names: up to 40 times as many characters."""


@dataclass(slots=True)
class StateHeader:
    """The part of a state that says what it belongs to: the steps, files and options that determine the elements.

    Attributes:
        plan: the chain.
        settings: its options.
        ranks: whether `by_rank` counts as a step, as in version 7.
        opened: size and tag of the files that the epoch has opened.
    """

    plan: Node
    settings: Settings
    ranks: bool = False
    opened: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    _head: dict[str, Any] = field(default_factory=dict)
    _outline: Outline | None = None
    _engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        """Who makes the elements."""
        if self._engine is None:
            self._engine = engine_of(self.plan)
        return self._engine

    @property
    def law(self) -> int:
        """The version of the law of random numbers that the chain follows."""
        return REDRAWN if redraws(self.plan) else LAW

    def of_version(self, version: int) -> StateHeader:
        """Return this header as states of a version in `READ` have it."""
        if version == FORMAT or ranks_of(self.plan) is None:
            return self
        return StateHeader(self.plan, self.settings, ranks=True)

    def head(self) -> dict[str, Any]:
        """Return this part of a state. Files are looked up once."""
        if not self._head:
            found = self.outlined()
            code = portable(self.plan, paths=False, ranks=self.ranks, signing=self.settings.signing_parameters)
            self._head = {
                "gpupipe_state": FORMAT,
                "law": self.law,
                "steps": _short([[text, digest] for text, digest in found.steps]),
                "code": None if code.private is not None else code.digest.hex(),
                "files": files_of(found.files, self.settings.file_digests, found.sizes, self.opened),
                "options": self._options(),
                "executor": executor_of(self.plan, self.settings),
            }
        return self._head

    def outlined(self) -> Outline:
        """Return the outline of the chain."""
        if self._outline is None:
            self._outline = outline(self.plan, self.ranks, self.settings.signing_parameters)
        return self._outline

    def numbered(self, flow: State) -> State:
        """Replace the names of this chain's files in a state by their numbers, as they may move to another folder."""
        return renamed(flow, {path: i for i, (path, _) in enumerate(self.outlined().files)})

    def named(self, flow: State) -> State:
        """Replace the numbers of files in a state by the names of this chain's files."""
        return renamed(flow, {i: path for i, (path, _) in enumerate(self.outlined().files)})

    def _options(self) -> dict[str, Any]:
        s = self.settings
        return {
            "seed": s.seed,
            "on_error": s.on_error,
            "max_pixels": s.max_pixels,
            "deterministic": s.deterministic,
            "disabled_rules": sorted(s.disabled_rules),
            **{
                name: getattr(s.decoding, name)
                for name, default in _DECODING.items()
                if getattr(s.decoding, name) != default
            },
        }

    def check(self, state: dict[str, Any], other_shards: bool = False) -> None:
        """Check that a state belongs to this chain and its data.

        Args:
            state: as `check_seal` accepts it.
            other_shards: whether its steps were compared already, and differ only in the shard.

        Raises:
            StateError: the state does not belong here; says what differs.
        """
        mine = self.head()
        self._check_files(state["files"], mine["files"])
        if not other_shards:
            self._check_steps(state["steps"], mine["steps"])
        for name in {**mine["options"], **_DECODING}:
            default = _DECODING.get(name)
            value, other = mine["options"].get(name, default), state["options"].get(name, default)
            if other != value:
                raise StateError(
                    f"load_state_dict needs a state made with {name}={value!r}, got one made with {name}={other!r}; "
                    f"use the same options"
                )
        mine_is, other_is = mine["executor"], state["executor"]
        if other_is != mine_is and mine_is and other_is:
            logger.warning(
                "load_state_dict: the state was made where images were computed by the executor %s, here by %s; pixels "
                "may differ by a few levels, crops and flips do not",
                _cut(other_is),
                _cut(mine_is),
            )
        code = state["code"]
        if not other_shards and code is not None and mine["code"] is not None and code != mine["code"]:
            logger.warning(
                "load_state_dict: a Python function of the chain, or data that it uses, has changed since the state "
                "was made; the elements that follow are made by the current one"
            )

    def _check_steps(self, theirs: Any, mine: Any) -> None:
        if theirs == mine:
            return
        lines = self.outlined().lines
        if isinstance(theirs, list) and isinstance(mine, list):
            for i, (other, own) in enumerate(zip(theirs, mine, strict=False)):
                if other == own:
                    continue
                step = _cut(str(other[0])[:80])[1:-1]
                same = " with other parameters or another function" if other[0] == own[0] else ""
                raise StateError(
                    f"load_state_dict needs a state of this chain, got one whose step {i + 1} was "
                    f"{step}{same}, where this one has {own[0]} (at {lines[i]}){self._renamed()}"
                )
            raise StateError(
                f"load_state_dict needs a state of this chain of {len(mine)} steps, got one of {len(theirs)} steps"
            )
        raise StateError("load_state_dict needs a state of this chain, got one of another")

    def _renamed(self) -> str:
        """What to do about states in which the query of a URL was part of a file's name, and so of its draws."""
        return (
            "; states that an earlier version of gpupipe made over URLs with a query or a user are not continued, as "
            "other numbers would be drawn: start the epoch again"
            if self.outlined().queries
            else ""
        )

    def _check_files(self, theirs: Any, mine: Any) -> None:
        if theirs == mine:
            return
        count, others = mine["count"], theirs["count"]
        if count != others:
            raise StateError(
                f"load_state_dict needs a state over the same {count} files, got one over {_cut(others)} files"
            )
        asked, contents = mine.get("contents"), theirs.get("contents")
        if asked is not None and contents is None:
            raise StateError(
                "load_state_dict needs a state made with Options(file_digests=True), got one without digests of its "
                "files; set it to False to compare their names and sizes only"
            )
        pairs = zip(self.outlined().files, mine.get("sizes", ()), theirs.get("sizes", ()), strict=False)
        for (path, _), own, other in pairs:
            if own == other:
                continue
            was, size = other
            shown = repr(shown_name(path))
            now = f"{shown} of {own[1]} bytes" if own[1] is not None else f"{shown}, which is not there"
            raise StateError(
                f"load_state_dict needs a state over the same files, got one over {_file(was)} "
                f"{'as it was before it changed' if size == OTHER else f'of {_cut(size)} bytes'} "
                f"where there is {now} now{self._renamed()}"
            )
        if mine["digest"] != theirs["digest"]:
            raise StateError(
                f"load_state_dict needs a state over the same files, got one over {_cut(theirs['bytes'])} bytes "
                f"where there are {mine['bytes']} bytes now, or files of other names{self._renamed()}"
            )
        if asked is not None and asked != contents:
            pairs = zip(self.outlined().files, asked["each"], contents["each"], strict=False)
            found = next((path for (path, _), own, other in pairs if own != other), None)
            raise StateError(
                "load_state_dict needs a state over the same files, got one over files of the same names and sizes "
                f"with other contents{'' if found is None else f', {shown_name(found)!r} for one'}"
            )


def types_to_json(types: Mapping[int, ElementType]) -> State:
    """Write the types learned from first elements; those that JSON cannot hold are learned again."""
    found = []
    for number, element in sorted(types.items()):
        try:
            found.append([number, element_to_json(element)])
        except PlanError:
            continue
    return found


def types_from_json(given: Any) -> dict[int, ElementType]:
    """Read the types learned from first elements."""
    return {as_int(number, "types"): element_from_json(element) for number, element in given}


def sealed(state: dict[str, Any]) -> dict[str, Any]:
    """Add a digest to a state, so that damage is noticed before the state is used."""
    rest = {name: value for name, value in state.items() if name != "digest"}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    return {**rest, "digest": hashlib.blake2b(text.encode(), digest_size=16).hexdigest()}


_TEXT = "gpupipe_loader"
"""The key of a state that is written as one text."""


def as_text(state: dict[str, Any]) -> dict[str, Any]:
    """A state as one text under one key."""
    return {_TEXT: json.dumps(state, separators=(",", ":"))}


def from_text(state: Any) -> Any:
    """The state that `as_text` wrote; anything else as it is.

    Raises:
        StateError: the text is damaged.
    """
    if not (isinstance(state, dict) and len(state) == 1 and isinstance(text := state.get(_TEXT), str)):
        return state
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise corrupt_state() from error


def check_seal(state: Any, law: int) -> None:
    """Check that a user's object is a state of this version, as `state_dict` made it.

    Args:
        state: the object.
        law: the version of the law of random numbers that the chain follows.

    Raises:
        StateError: it is another object, of another version, or damaged.
    """
    if not isinstance(state, dict) or "gpupipe_state" not in state:
        raise StateError(f"load_state_dict needs what state_dict returned, got {type(state).__name__}")
    known = (("gpupipe_state", "version of the format", READ), ("law", "law of random numbers", (law,)))
    for name, what, own in known:
        if state.get(name) not in own:
            if (name, law, state.get(name)) == ("law", REDRAWN, LAW):
                raise StateError(
                    "load_state_dict needs a state of a chain in which a place that comes again is another draw, got "
                    "one of a version of gpupipe in which it had the same random numbers: continue it with "
                    "pick(..., redraw=False), or start the epoch again"
                )
            raise StateError(
                f"load_state_dict needs a state with {what} {own[-1]}, got {_cut(state.get(name))}: it was made by "
                "another version of gpupipe; start the epoch again"
            )
    try:
        whole = sealed(state)["digest"] == state.get("digest")
    except (TypeError, ValueError, RecursionError):  # not JSON
        whole = False
    if not whole:
        raise corrupt_state()


def packed(flow: State) -> State:
    """Compress a part of a state if it is long: many steps, files or leaves repeat the same text."""
    text = json.dumps(flow, separators=(",", ":"))
    if len(text) <= _PLAIN:
        return flow
    return {"zlib": base64.b64encode(zlib.compress(text.encode(), 3)).decode(), "letters": len(text)}


def unpacked(flow: State) -> State:
    """Decompress a part of a state; its length is bounded, as the state is not trusted.

    Raises:
        StateError: the part is damaged.
    """
    if not isinstance(flow, dict) or "zlib" not in flow:
        return flow
    letters = as_int(flow["letters"], "letters")
    if max(letters, len(flow["zlib"])) > MOST:
        raise corrupt_state()
    inflater = zlib.decompressobj()
    data = inflater.decompress(base64.b64decode(flow["zlib"], validate=True), letters + 1)
    if len(data) != letters or not inflater.eof:
        raise corrupt_state()
    return json.loads(data)


def files_of(
    files: Sequence[tuple[str, str]],
    digests: bool,
    known: Mapping[str, int] | None = None,
    opened: Mapping[str, tuple[int, str]] | None = None,
) -> dict[str, Any]:
    """Describe files for comparison: names and sizes, or for many files a digest of them.

    Args:
        files: paths, and the names of the files that do not depend on their folder.
        digests: whether to add digests of their contents.
        known: sizes in bytes, by path, that need not be asked for.
        opened: size and tag of those that were opened. Of one that has changed since this is the size, or `OTHER`.

    Raises:
        DataError: a file that exists cannot be read, for its digest.
    """
    sizes: list[list[Any]] = []
    contents: list[str | None] = []
    told = known if known and not digests else {}
    asked = [path for path, _ in files if path not in told]
    found_of: dict[str, Any] = dict(zip(asked, versions(asked), strict=True))
    for path, name in files:
        found = (told[path], "") if path in told else found_of[path]
        was = (opened or {}).get(path, found)
        if not isinstance(found, GpupipeError) and found[1] and was[1] != found[1]:
            sizes.append([name, OTHER if was[0] == found[0] else was[0]])
            contents.append("changed")
            logger.warning(
                "state_dict: %s has changed since this epoch opened it: the state is refused with the file as it is",
                shown_name(path),
            )
        elif isinstance(found, GpupipeError):  # the file is missing; or the text names no file, as any text may
            sizes.append([name, None])
            contents.append(None)
        else:
            sizes.append([name, found[0]])
            contents.append(_digest(path, *found) if digests else None)
    listed = sum(len(name) for name, _ in sizes) <= 40 * _LISTED
    described: dict[str, Any] = {
        "count": len(sizes),
        "bytes": sum(max(size or 0, 0) for _, size in sizes),
        "digest": _of_text("\n".join(f"{name} {size}" for name, size in sizes)),
    }
    if listed:
        described["sizes"] = sizes
    if digests:
        described["contents"] = {"digest": _of_text("\n".join(map(str, contents))), "each": contents if listed else []}
    return described


def _of_text(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=16).hexdigest()


@functools.lru_cache(maxsize=1 << 16)
def _digest(path: str, size: int, tag: str) -> str:
    """Hash the contents of a file, which are read once per process unless the tag changes."""
    storage, digest = storage_of(path), hashlib.blake2b(digest_size=16)
    for start in range(0, size, _READ):
        digest.update(storage.read(path, start, min(_READ, size - start), tag))
    return digest.hexdigest()


def _cut(value: Any) -> str:
    """Format a value of a state, which may be anything, for messages."""
    return cleaned(repr(value))[:200]


def _file(name: Any) -> str:
    """Format the name of a file in a state, of which an earlier version may have written the query."""
    path, mark, _ = str(name).partition("?")
    return _cut(f"{path}?…" if mark else name)


def renamed(flow: State, names: Mapping[Any, Any]) -> State:
    """Rename files in a part of a state, where buffers hold records of them; see `flow.state.buffer`."""
    if isinstance(flow, list):
        return [renamed(part, names) for part in flow]
    if not isinstance(flow, dict):
        return flow
    if set(flow) >= {"folder", "names", "keys", "which"} and isinstance(flow["names"], list):
        folder = flow["folder"] if isinstance(flow["folder"], str) else ""
        whole = [folder + name if isinstance(name, str) else name for name in flow["names"]]
        return {**flow, "folder": "", "names": [names.get(x, x) if isinstance(x, (int, str)) else x for x in whole]}
    return {key: renamed(part, names) for key, part in flow.items()}


def _short(steps: list[Any]) -> State:
    """Return the steps, or for a long chain a digest of them."""
    if len(steps) <= _LISTED:
        return steps
    return hashlib.blake2b(repr(steps).encode(), digest_size=16).hexdigest()

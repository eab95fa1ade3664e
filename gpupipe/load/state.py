"""state: what a state says of its chain, files and options, and the comparison with those of an iterator."""

from __future__ import annotations

import hashlib
import json
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import Any

from ..classes import dataclass
from ..errors import PlanError, StateError
from ..flow.state.snapshot import State, as_int, corrupt_state
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
from .by_place import Engine, engine_of
from .compared_files import ComparedFiles, cut

__all__ = [
    "FORMAT",
    "NOTED",
    "READ",
    "WAY_OUT",
    "StateHeader",
    "as_text",
    "check_seal",
    "from_text",
    "sealed",
    "types_from_json",
    "types_to_json",
]

FORMAT = 9
"""Version of the format. States of versions that are not in `READ` are refused: each step defines its own part."""

READ = (7, 8, FORMAT)
"""Versions that are read. Those before 9 have the size of every text that may name a file. In version 7 `by_rank` was a
step, and nothing told who had made the elements."""

NOTED = 128
"""Bad elements whose keys a state holds, so that those read ahead of the state are noted only once."""

_DECODING = {"hw_decoder_load": 1.0, "jpeg_fancy_upsampling": True, "approximate_decode": False, "strict_images": False}
"""Decoder options that change pixels, with their defaults; a state holds those that differ."""

_LISTED = 64
"""Steps that a state lists; for a longer chain it holds a digest."""


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
    _fixed: dict[str, Any] = field(default_factory=dict)
    _engine: Engine | None = None

    @property
    def engine(self) -> Engine:
        """Who makes the elements."""
        if self._engine is None:
            self._engine = engine_of(self.plan, self.settings.on_error)
        return self._engine

    @property
    def law(self) -> int:
        """The version of the law of random numbers that the chain follows."""
        return REDRAWN if redraws(self.plan) else LAW

    def of_version(self, version: int) -> StateHeader:
        """Return this header as states of a version in `READ` have it."""
        if version > 7 or ranks_of(self.plan) is None:
            return self
        return StateHeader(self.plan, self.settings, ranks=True)

    def head(self) -> dict[str, Any]:
        """Return this part of a state."""
        return {**self.fixed(), "files": self._described()[1].part(self.settings.compare_files, self.opened)}

    def fixed(self) -> dict[str, Any]:
        """Return what does not depend on files."""
        if not self._fixed:
            found = self._outlined()
            code = portable(self.plan, paths=False, ranks=self.ranks, signing=self.settings.signing_parameters)
            self._fixed = {
                "gpupipe_state": FORMAT,
                "law": self.law,
                "steps": _short([[text, digest] for text, digest in found.steps]),
                "code": None if code.private is not None else code.digest.hex(),
                "options": self._options(),
                "executor": executor_of(self.plan, self.settings),
            }
        return self._fixed

    def _described(self) -> tuple[Outline, ComparedFiles]:
        return _described(self.plan, self.ranks, self.settings.signing_parameters)

    def _outlined(self) -> Outline:
        return self._described()[0]

    def numbered(self, flow: State) -> State:
        """Replace the names of this chain's files in a state by their numbers, as they may move to another folder."""
        files = self._outlined().files

        def numbered(name: Any) -> Any:
            number = files.number(name) if isinstance(name, str) else None
            return name if number is None else number

        return renamed(flow, numbered)

    def named(self, flow: State) -> State:
        """Replace the numbers of files in a state by the names of this chain's files."""
        files = self._outlined().files
        return renamed(flow, lambda x: files.path(x) if isinstance(x, int) and 0 <= x < len(files) else x)

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

    def differences(self, state: dict[str, Any], other_shards: bool = False) -> Iterator[str]:
        """Say in what a state does not belong to this chain and its data; what may differ is logged.

        Args:
            state: as `check_seal` accepts it.
            other_shards: whether its steps were compared already, and differ only in the shard.

        Raises:
            DataError: a file that exists cannot be read, for its digest.
        """
        mine = self.fixed()
        files = self._described()[1].difference(state["files"], self.settings.compare_files, self._renamed())
        steps = None if other_shards else self._other_steps(state["steps"], mine["steps"])
        yield from filter(None, (files, steps))
        for name in {**mine["options"], **_DECODING}:
            default = _DECODING.get(name)
            value, other = mine["options"].get(name, default), state["options"].get(name, default)
            if other != value:
                yield (
                    f"load_state_dict needs a state made with {name}={value!r}, got one made with {name}={other!r}; "
                    "use the same options"
                )
        mine_is, other_is = mine["executor"], state["executor"]
        if other_is != mine_is and mine_is and other_is:
            logger.warning(
                "load_state_dict: the state was made where images were computed by the executor %s, here by %s; pixels "
                "may differ by a few levels, crops and flips do not",
                cut(other_is),
                cut(mine_is),
            )
        code = state["code"]
        if not other_shards and code is not None and mine["code"] is not None and code != mine["code"]:
            logger.warning(
                "load_state_dict: a Python function of the chain, or data that it uses, has changed since the state "
                "was made; the elements that follow are made by the current one"
            )

    def _other_steps(self, theirs: Any, mine: Any) -> str | None:
        if theirs == mine:
            return None
        lines = self._outlined().lines
        if isinstance(theirs, list) and isinstance(mine, list):
            for i, (other, own) in enumerate(zip(theirs, mine, strict=False)):
                if other == own:
                    continue
                step = cut(str(other[0])[:80])[1:-1]
                same = " with other parameters or another function" if other[0] == own[0] else ""
                return (
                    f"load_state_dict needs a state of this chain, got one whose step {i + 1} was "
                    f"{step}{same}, where this one has {own[0]} (at {lines[i]}){self._renamed()}"
                )
            return f"load_state_dict needs a state of this chain of {len(mine)} steps, got one of {len(theirs)} steps"
        return "load_state_dict needs a state of this chain, got one of another"

    def _renamed(self) -> str:
        """What to do about states in which the query of a URL was part of a file's name, and so of its draws."""
        return (
            "; states that an earlier version of gpupipe made over URLs with a query or a user are not continued, as "
            "other numbers would be drawn: start the epoch again"
            if self._outlined().queries
            else ""
        )


_DESCRIBED: dict[int, tuple[weakref.ref[Node], dict[Any, tuple[Outline, ComparedFiles]]]] = {}
"""Of the chains that there are, by id: equal ones may be over files that have changed since."""


def _described(plan: Node, ranks: bool, signing: tuple[str, ...]) -> tuple[Outline, ComparedFiles]:
    """The outline of a chain and its files, once for all of its iterators."""
    kept = _DESCRIBED.get(id(plan))
    if kept is None:
        key = id(plan)
        kept = _DESCRIBED[key] = weakref.ref(plan, lambda _: _DESCRIBED.pop(key, None)), {}
    if (ranks, signing) not in kept[1]:
        found = outline(plan, ranks, signing)
        kept[1][ranks, signing] = found, ComparedFiles(found.files)
    return kept[1][ranks, signing]


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


WAY_OUT = "; load_state_dict(state, strict=False) or Options(strict_states=False) goes on by number of elements"
"""What to do about a state that does not fit."""

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


def check_seal(state: Any, law: int, strict: bool = True) -> str | None:
    """Check that a user's object is a state, as `state_dict` made it.

    Args:
        state: the object.
        law: the version of the law of random numbers that the chain follows.
        strict: whether one of another version is refused, before its digest is compared.

    Returns:
        Of which other version it is, in words; None if it is of this one.

    Raises:
        StateError: it is another object, of another version, or damaged.
    """
    if not isinstance(state, dict) or "gpupipe_state" not in state:
        raise StateError(f"load_state_dict needs what state_dict returned, got {type(state).__name__}")
    other = None
    known = (("gpupipe_state", "version of the format", READ), ("law", "law of random numbers", (law,)))
    for name, what, own in known:
        if state.get(name) not in own:
            if (name, law, state.get(name)) == ("law", REDRAWN, LAW):
                other = (
                    "load_state_dict needs a state of a chain in which a place that comes again is another draw, got "
                    "one of a version of gpupipe in which it had the same random numbers: continue it with "
                    "pick(..., redraw=False), or start the epoch again"
                )
            else:
                other = (
                    f"load_state_dict needs a state with {what} {own[-1]}, got {cut(state.get(name))}: it was made by "
                    "another version of gpupipe; start the epoch again"
                )
            if strict:
                raise StateError(f"{other}{WAY_OUT}")
            break
    try:
        whole = sealed(state)["digest"] == state.get("digest")
    except (TypeError, ValueError, RecursionError):  # not JSON
        whole = False
    if not whole:
        raise corrupt_state()
    return other


def renamed(flow: State, new: Callable[[Any], Any]) -> State:
    """Rename files in a part of a state, where buffers hold records of them; see `flow.state.buffer`."""
    if isinstance(flow, list):
        return [renamed(part, new) for part in flow]
    if not isinstance(flow, dict):
        return flow
    if set(flow) >= {"folder", "names", "keys", "which"} and isinstance(flow["names"], list):
        folder = flow["folder"] if isinstance(flow["folder"], str) else ""
        whole = [folder + name if isinstance(name, str) else name for name in flow["names"]]
        return {**flow, "folder": "", "names": list(map(new, whole))}
    return {key: renamed(part, new) for key, part in flow.items()}


def _short(steps: list[Any]) -> State:
    """Return the steps, or for a long chain a digest of them."""
    if len(steps) <= _LISTED:
        return steps
    return hashlib.blake2b(repr(steps).encode(), digest_size=16).hexdigest()

"""agreement: what a rank is about to do, for the comparison with the other ranks before an epoch starts."""

from __future__ import annotations

from typing import Any

from ..log import logger
from ..plan.node import Node
from ..plan.ranks import ByRank, ranks_of
from ..ranks.agree import Part, agree
from ..ranks.board import board
from .progress import Progress
from .reshard import sharding
from .state import StateHeader

__all__ = ["check_ranks", "difference", "differences", "part_of"]


def check_ranks(chain: StateHeader, progress: Progress, epoch: int) -> None:
    """Compare with the other ranks, if the chain has a `by_rank` that checks.

    Args:
        chain: the chain of the iterator.
        progress: its counts.
        epoch: the epoch that is about to start.

    Raises:
        RanksDisagreeError: a rank is about to do something else, or did not come.
    """
    node = ranks_of(chain.plan)
    if node is None or not node.check or node.shards == 1:
        return
    found = board()
    if found is not None:
        agree(found, part_of(chain, node, progress, epoch), difference)
    else:
        logger.warning_once(
            "by_rank compares nothing: this process has no store of torch.distributed or jax.distributed, so it would "
            "not be noticed if one of %d ranks had another seed, epoch or file; initialise one of them first, or "
            "pass check=False",
            node.shards,
            about=check_ranks,
        )


def part_of(chain: StateHeader, node: ByRank, progress: Progress, epoch: int) -> dict[str, Any]:
    """What a rank is about to do, as JSON: what the chain is, as in a state, the epoch and the place."""
    head = chain.head()
    return {
        "format": [head["gpupipe_state"], head["law"]],
        "world": node.shards,
        "batch": node.batch.size,
        "remainder": node.remainder,
        "steps": head["steps"],
        "functions": head["code"],
        "files": head["files"],
        "options": head["options"],
        "epoch": epoch,
        "elements": _given(chain.plan, progress),
    }


def _given(plan: Node, progress: Progress) -> int:
    found = sharding(plan)
    return progress.in_epoch if found is None else progress.of_all(found)


_NAMES = {
    "format": "version of gpupipe",
    "world": "number of ranks",
    "batch": "batch",
    "remainder": "remainder",
    "epoch": "epoch",
    "elements": "position in the epoch",
}
"""Parts that are one number or word."""


def difference(other: Part, normal: Part, model: int) -> str:
    """Say how the part of a rank differs from that of another one, number `model`: "has another seed: 9, ..."."""
    if not other:
        return f"is about to do something else than rank {model}"
    return differences(other, normal, f"rank {model}")


def differences(other: Part, normal: Part, model: str) -> str:
    """Say how one part differs from another, that of `model`."""
    names = [name for name in normal if other[name] != normal[name]]
    said = {"batch": ("steps", "functions"), "steps": ("functions",)}  # what another batch makes different as well
    known = {less for name in names for less in said.get(name, ())}
    found = [text for name in names if name not in known for text in _differ(name, other[name], normal[name], model)]
    return " and ".join(found)


def _differ(name: str, other: Any, normal: Any, model: str) -> list[str]:
    if name in _NAMES:
        return [f"has another {_NAMES[name]}: {other}, where {model} has {normal}"]
    if name == "functions":
        return [f"has another code of a function, or other data that it uses, than {model}"]
    if name == "options" and isinstance(other, dict):
        return [
            f"has another {key}: {other.get(key)!r}, where {model} has {normal.get(key)!r}"
            for key in {**normal, **other}
            if other.get(key) != normal.get(key)
        ]
    if name == "files" and isinstance(other, dict):
        return [_of_files(other, normal, model)]
    if name == "steps" and isinstance(other, list) and isinstance(normal, list):
        for number, (one, own) in enumerate(zip(other, normal, strict=False), 1):
            if one != own:
                same = ", with other parameters or another function" if one[0] == own[0] else ""
                return [f"has another step {number}: {one[0]}, where {model} has {own[0]}{same}"]
        return [f"has {len(other)} steps, where {model} has {len(normal)}"]
    return [f"has other {name} than {model}"]


def _of_files(other: dict[str, Any], normal: dict[str, Any], model: str) -> str:
    if other["count"] != normal["count"]:
        return f"has other files: {other['count']}, where {model} has {normal['count']}"
    for one, own in zip(other.get("sizes", ()), normal.get("sizes", ()), strict=False):
        if one[0] != own[0]:
            return f"has other files: {one[0]!r}, where {model} has {own[0]!r}"
        if one != own:
            return f"has files of other sizes: {one[0]!r} of {one[1]} bytes, where {model} has {own[1]}"
    if other["bytes"] != normal["bytes"]:
        return f"has files of other sizes: {other['bytes']} bytes, where {model} has {normal['bytes']}"
    if other["digest"] == normal["digest"]:
        return f"has files of other contents than {model}"
    return f"has files of other names or sizes than {model}"

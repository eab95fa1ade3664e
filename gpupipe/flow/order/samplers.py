"""samplers: the places of a pass from what `pick` was given: an iterable, a function, a sampler of PyTorch."""

from __future__ import annotations

import copy
import inspect
import sys
from collections.abc import Iterator
from typing import Any

from ...random import hash64, mix64

__all__ = ["places_of", "takes_epoch"]

_SEEDS = (1 << 63) - 1
"""What a generator of PyTorch takes as its seed."""


def places_of(given: Any, epoch: int, seed: int) -> Iterator[Any]:
    """The places of a pass, from their start; equal for equal arguments, if the user's code is.

    A function is called, with the epoch if it takes one argument. A sampler with `set_epoch` is told the epoch. One of
    PyTorch that has a generator is copied with another one, whose seed depends on that of its generator, or on the
    chain's where it has none, and on the epoch: the first epoch of a generator is PyTorch's own.

    Args:
        given: by the user.
        epoch: of the pass.
        seed: of the chain.
    """
    if not hasattr(given, "__iter__"):
        return iter(given(epoch) if takes_epoch(given) else given())
    return iter(_in_epoch(given, epoch, seed))


def takes_epoch(function: Any) -> bool:
    """Whether a function has a parameter for the epoch: one without a default, or one of that name."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some builtins have none
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    return bool(positional) and (positional[0].default is inspect.Parameter.empty or positional[0].name == "epoch")


def _in_epoch(sampler: Any, epoch: int, seed: int) -> Any:
    """A sampler, and those inside it, in an epoch."""
    data = sys.modules.get("torch.utils.data")
    own = getattr(sampler, "__dict__", {})
    if data is not None and isinstance(sampler, data.Sampler) and "generator" in own:
        sampler = copy.copy(sampler)
        sampler.generator = _generator(sys.modules["torch"], own["generator"], epoch, seed)
    inner = own.get("sampler")
    if hasattr(inner, "__iter__"):  # of a batch sampler
        sampler = copy.copy(sampler)
        sampler.sampler = _in_epoch(inner, epoch, seed)
    set_epoch = getattr(sampler, "set_epoch", None)
    if callable(set_epoch):
        set_epoch(epoch)
    return sampler


def _generator(torch: Any, given: Any, epoch: int, seed: int) -> Any:
    if given is None:
        return torch.Generator().manual_seed(mix64(mix64(seed, hash64("sampler")), epoch) & _SEEDS)
    first = given.initial_seed()
    return torch.Generator(given.device).manual_seed((mix64(first, epoch) if epoch else first) & _SEEDS)

"""tuned: numbers for the steps with AUTOTUNE, as `Options.tuned` holds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .brief import brief, digits
from .errors import PlanError, PlanTypeError
from .integers import is_integer, plain

__all__ = ["MOST_AHEAD", "MOST_TUNED", "Numbers", "name_of_step", "start_of", "tuned_numbers"]

MOST_TUNED = 64
"""Threads of a step with AUTOTUNE where `Options.threads` is not set: those that wait need no CPU."""

MOST_AHEAD = 256
"""Elements that a `prefetch(AUTOTUNE)` holds at most."""

_LARGEST = 1 << 16

Numbers = tuple[tuple[str, int], ...]
"""Steps by name, and their numbers."""


def tuned_numbers(who: str, given: Any) -> Numbers:
    """Check numbers of steps.

    Args:
        who: the argument, for messages.
        given: a mapping, or what this function returned.

    Raises:
        PlanTypeError: something else.
        PlanError: a number is less than 1 or more than 65,536.
    """
    pairs = tuple(given.items()) if isinstance(given, Mapping) else given
    whole = isinstance(pairs, tuple) and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs)
    if not whole or not all(isinstance(name, str) for name, _ in pairs):
        raise PlanTypeError(f"{who} needs a dict of steps' names and numbers, got {brief(given)}")
    found = []
    for name, value in pairs:
        number = plain(value)
        if not is_integer(number):
            raise PlanTypeError(f"{who} needs an integer for {brief(name)}, got {brief(number)}")
        if not 1 <= number <= _LARGEST:
            raise PlanError(f"{who} needs an integer from 1 to {_LARGEST} for {brief(name)}, got {digits(number)}")
        found.append((name, int(number)))
    return tuple(found)


def name_of_step(step: str, line: str) -> str:
    """The name of a step whose text stands on several lines."""
    return f"{step} at {line}"


def start_of(numbers: Numbers, step: str, line: str, default: int) -> int:
    """The number that a step with AUTOTUNE starts with."""
    found = dict(numbers)
    return found.get(name_of_step(step, line), found.get(step, default))

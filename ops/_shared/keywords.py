"""keywords: functions whose further arguments need their names, since other libraries have others in their places."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from typing import Any, TypeVar

from gpupipe.errors import PlanTypeError

__all__ = ["keywords_after"]

F = TypeVar("F", bound=Callable[..., Any])


def keywords_after(hint: str) -> Callable[[F], F]:
    """Let a function say what to write where it gets more arguments by position than it takes.

    Args:
        hint: what to write, and what stands there in the library whose function has the same name.
    """

    def checked(function: F) -> F:
        kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
        taken = [one.name for one in signature(function).parameters.values() if one.kind in kinds]
        name, most = function.__name__, len(taken)

        @wraps(function)
        def called(*args: Any, **settings: Any) -> Any:
            if len(args) > most:
                raise PlanTypeError(f"{name} takes only {' and '.join(taken)} by position, got {args[most]!r}; {hint}")
            return function(*args, **settings)

        return called  # type: ignore[return-value]

    return checked

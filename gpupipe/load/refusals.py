"""refusals: the errors of calls that an iterator refuses."""

from __future__ import annotations

from ..errors import ClosedError, PlanError

__all__ = ["closed", "from_inside"]


def from_inside(method: str = "next") -> PlanError:
    """The error of a call from within the iterator's own work."""
    return PlanError(
        f"{method}() needs to be called from outside, between two elements, got a call while the iterator works, by a "
        "function of the chain or a handler (of a signal, of the log); use another iterator in a function, or window, "
        "scan or zip, and let a handler set a flag to check after next()"
    )


def closed(method: str, because: str) -> ClosedError:
    """The error of a call after `close`; `because` says what closed the iterator."""
    return ClosedError(f"{method} needs an open iterator, got one that {because}; make a new one: iter(ds)")

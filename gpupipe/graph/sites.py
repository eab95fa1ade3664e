"""sites: the lines of the user's code that errors name."""

from __future__ import annotations

import dis
import functools
import os
import re
import sys
import types
from collections.abc import Sequence
from pathlib import Path

from ..errors import PlanError, PlanTypeError

__all__ = ["at_line", "call_site", "in_gpupipe", "mistake_of", "place", "site_of", "user_site", "users_frames"]


def in_gpupipe(module: str | None) -> bool:
    """Whether a module is part of gpupipe, by its name."""
    return module is not None and (module == "gpupipe" or module.startswith("gpupipe."))


_WRONG_CALL = re.compile(r"([\w.<>]+)\(\) (?:missing|got|takes) ")


def mistake_of(error: Exception, who: str) -> PlanError | None:
    """The plan error for an exception with one possible cause: a gpupipe name that does not exist, or a wrong call.

    Args:
        error: the exception of the user's function.
        who: the method that called it, for the message.

    Returns:
        The error to raise instead; None for any other exception, and for one raised outside the user's code.
    """
    trail = error.__traceback__
    if trail is None:
        return None
    while trail.tb_next is not None and trail.tb_next.tb_frame.f_globals.get("__name__") != "gpupipe.classes":
        trail = trail.tb_next  # an `__init__` that is not compiled yet calls one that is
    frame = trail.tb_frame
    if in_gpupipe(frame.f_globals.get("__name__")) and frame.f_code.co_name != "__getattr__":
        return None
    where = site_of(error)
    if isinstance(error, AttributeError):
        module = error.obj
        if not isinstance(module, types.ModuleType) or not in_gpupipe(module.__name__):
            return None
        way = "".join(str(error).partition("; ")[1:])
        return PlanError(f"{who} needs names that exist, got {module.__name__}.{error.name}{at_line(where)}{way}")
    found = _WRONG_CALL.match(str(error)) if type(error) is TypeError else None
    if found is None or not _calls_gpupipe(frame, found[1]):
        return None
    return PlanTypeError(f"{who} needs a function that passes the right arguments, got: {error}{at_line(where)}")


def _calls_gpupipe(frame: types.FrameType, name: str) -> bool:
    """Whether a function called `name` that a frame's code reaches as a name or an attribute is gpupipe's."""
    loaded: dict[bool, set[str]] = {True: set(), False: set()}  # global names, and attributes
    for instruction in dis.get_instructions(frame.f_code):
        if instruction.opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_ATTR", "LOAD_METHOD")):
            loaded[instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME")].add(instruction.argval)
    reached = [frame.f_globals[n] for n in loaded[True] if n in frame.f_globals] + list(frame.f_locals.values())
    for value in reached.copy():
        if isinstance(value, types.ModuleType) and in_gpupipe(value.__name__):
            reached += [getattr(value, n) for n in loaded[False] if hasattr(value, n)]
    functions = [value.func if isinstance(value, functools.partial) else value for value in reached]
    functions += [value.__init__ for value in functions if isinstance(value, type)]  # type: ignore[misc]
    called = [value for value in functions if getattr(value, "__qualname__", None) == name]
    return bool(called) and all(in_gpupipe(value.__module__) for value in called)


def call_site() -> str:
    """``file:line`` of the first frame outside gpupipe."""
    frame = sys._getframe(1)
    while frame.f_back is not None and in_gpupipe(frame.f_globals.get("__name__")):
        frame = frame.f_back
    return place(frame.f_code.co_filename, frame.f_lineno)


def place(file: str, line: int) -> str:
    """``file:line``; in a cell of a notebook ``In[3]:line``, as its file has a name that nobody knows."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    named = getattr(getattr(shell, "compile", None), "format_code_name", lambda file: None)(file)  # of IPython 8
    return f"{named[1] if named else file}:{line}"  # of ("Cell", "In[3]")


def user_site() -> str:
    """``file:line`` of the innermost frame that is the user's own: neither gpupipe's nor an installed package's."""
    frames: list[tuple[types.FrameType, int]] = []
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and not _calls_users(frame):
        frames.append((frame, frame.f_lineno))
        frame = frame.f_back
    return _users(frames)


def at_line(site: str) -> str:
    """What a message says of a line of the user's code; nothing where no line is the user's."""
    return f", at {site}" if site else ""


def site_of(error: BaseException) -> str:
    """``file:line`` of the innermost user frame of an exception's traceback; "" if there is none."""
    frames: list[tuple[types.FrameType, int]] = []
    trail = error.__traceback__
    while trail is not None:
        if _calls_users(trail.tb_frame):
            frames.clear()  # of nested functions, the innermost counts
        else:
            frames.append((trail.tb_frame, trail.tb_lineno))
        trail = trail.tb_next
    return _users(frames[::-1])


def users_frames(error: BaseException) -> types.TracebackType | None:
    """The traceback of an exception without gpupipe's own frames, so that it ends on the user's line."""
    trail, frames = error.__traceback__, []
    while trail is not None:
        if not in_gpupipe(trail.tb_frame.f_globals.get("__name__")):
            frames.append(trail)
        trail = trail.tb_next
    for frame in reversed(frames):
        trail = types.TracebackType(trail, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    return trail


def _calls_users(frame: types.FrameType) -> bool:
    """Whether a frame is gpupipe's call of a user's function."""
    return frame.f_code.co_name == "call_with" and frame.f_globals.get("__name__") == "gpupipe.graph.trace"


def _users(frames: Sequence[tuple[types.FrameType, int]]) -> str:
    """``file:line`` of the first of some frames, innermost first, that is the user's own.

    The last frame outside gpupipe is the function that the user passed. If it belongs to an installed package, that
    package's frames count as the user's.
    """
    outside = [(frame, line) for frame, line in frames if not in_gpupipe(frame.f_globals.get("__name__"))]
    if not outside:
        return ""
    home = str(outside[-1][0].f_globals.get("__name__")).partition(".")[0]
    for frame, line in outside:
        file = frame.f_code.co_filename
        if not _installed(file) or str(frame.f_globals.get("__name__")).partition(".")[0] == home:
            return place(file, line)
    return ""


@functools.lru_cache(1024)
def _installed(file: str) -> bool:
    """Whether a file belongs to an installed package or to Python itself."""
    of_python = file.startswith(("<frozen ", os.path.dirname(os.__file__) + os.sep))
    return of_python or not {"site-packages", "dist-packages"}.isdisjoint(Path(file).parts)

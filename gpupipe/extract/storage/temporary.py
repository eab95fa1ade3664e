"""temporary: new files beside those that they become, their commit, and the removal of those whose writer died.

Whatever is written as a whole goes this way: a file that did not exist, under a name that nobody can guess, is written,
synced, and renamed. The rename is the commit: nothing that runs after it, or when it fails, knows another name than the
temporary one. What a killed process leaves is found by its name, never by what a file says.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import secrets
import sys
from typing import BinaryIO

from gpupipe.errors import shown_name
from gpupipe.log import logger

__all__ = ["TEMPORARY", "commit", "create", "remove_stale", "temporary"]

TEMPORARY = re.compile(r"\.([0-9a-f]{8})-(\d+)-(?:[0-9a-f]{8}){1,2}\.(?:tmp|private)$")


def temporary(path: str, kind: str = "tmp") -> str:
    """Return a new name beside `path` that names the process it belongs to."""
    return f"{path}.{_here()}-{os.getpid()}-{secrets.token_hex(8)}.{kind}"


def create(path: str) -> BinaryIO:
    """Make a file that is not there, to write and read. An interrupt at any time leaves no descriptor open.

    Raises:
        FileExistsError: something is there, be it a link.
        OSError: it cannot be made.
    """
    return open(path, "x+b", buffering=1 << 20)


def commit(part: str, path: str) -> None:
    """Give a file that is complete and synced its name, in place of an older one.

    Raises:
        OSError: it has not got it, or, after that, the folder cannot be synced.
    """
    os.replace(part, path)
    if sys.platform != "win32":  # which writes the names of a folder by itself
        number = os.open(os.path.dirname(path) or ".", os.O_RDONLY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


def _here() -> str:
    """Hash the name of this machine and, on Linux, of this container: a process id means nothing elsewhere."""
    names = platform.node()
    with contextlib.suppress(OSError):
        names += os.readlink("/proc/self/ns/pid")
    return hashlib.blake2b(names.encode(), digest_size=4).hexdigest()


def remove_stale(folder: str | os.PathLike[str], prefix: str, own: re.Pattern[str] | None = None) -> None:
    """Remove the temporary files that dead processes of this machine left in a folder.

    Args:
        folder: the folder.
        prefix: of the names of the files.
        own: matches whole names that no other process on any machine writes now: such files are removed, too.
    """
    here = _here()
    for name in os.listdir(folder):
        found = TEMPORARY.search(name) if name.startswith(prefix) else None
        if found is not None and (
            (own is not None and own.fullmatch(name)) or (found[1] == here and not _alive(int(found[2])))
        ):
            with contextlib.suppress(FileNotFoundError):  # another process removed it first
                os.remove(os.path.join(folder, name))
                logger.info("removed %s, which a process that died had left", shown_name(os.path.join(folder, name)))


def _alive(pid: int) -> bool:
    if pid == os.getpid() or os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # PermissionError: the process is alive, and belongs to another user
        return True
    return True

"""temporary: names of files that are being written, and the removal of those whose writer died."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import secrets

from ...log import logger

__all__ = ["TEMPORARY", "remove_stale", "temporary"]

TEMPORARY = re.compile(r"\.([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.(?:tmp|private)$")


def temporary(path: str, kind: str = "tmp") -> str:
    """Return a new name beside `path` that names the process it belongs to."""
    return f"{path}.{_here()}-{os.getpid()}-{secrets.token_hex(4)}.{kind}"


def _here() -> str:
    """Hash the name of this machine and, on Linux, of this container: a process id means nothing elsewhere."""
    names = platform.node()
    with contextlib.suppress(OSError):
        names += os.readlink("/proc/self/ns/pid")
    return hashlib.blake2b(names.encode(), digest_size=4).hexdigest()


def remove_stale(folder: str, prefix: str) -> None:
    """Remove the temporary files that dead processes of this machine left in a folder."""
    here = _here()
    for name in os.listdir(folder):
        found = TEMPORARY.search(name) if name.startswith(prefix) else None
        if found is not None and found[1] == here and not _alive(int(found[2])):
            with contextlib.suppress(FileNotFoundError):  # another process removed it first
                os.remove(os.path.join(folder, name))
                logger.info("removed %s, which a process that died had left", os.path.join(folder, name))


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

"""temporary: files that are being written, and what is left of those whose writer died."""

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
    """A name beside `path` that says which process it belongs to."""
    return f"{path}.{_here()}-{os.getpid()}-{secrets.token_hex(4)}.{kind}"


def _here() -> str:
    """This machine, and on Linux this container: a process number means nothing elsewhere."""
    names = platform.node()
    with contextlib.suppress(OSError):
        names += os.readlink("/proc/self/ns/pid")
    return hashlib.blake2b(names.encode(), digest_size=4).hexdigest()


def remove_stale(folder: str, begin: str) -> None:
    """Remove what processes of this machine that are gone have left behind."""
    here = _here()
    for name in os.listdir(folder):
        found = TEMPORARY.search(name) if name.startswith(begin) else None
        if found is not None and found[1] == here and not _alive(int(found[2])):
            with contextlib.suppress(FileNotFoundError):  # somebody else was quicker
                os.remove(os.path.join(folder, name))
                logger.info("removed %s, which a process that is gone has left", os.path.join(folder, name))


def _alive(pid: int) -> bool:
    if pid == os.getpid() or os.name != "posix":
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is somebody else's, so it is there
        return True
    return True

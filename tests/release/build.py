"""build: the wheel and the source archive of a commit, with the same bytes whenever and wherever they are built."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["ROOT", "build", "build_twice", "changed", "epoch_of_commit", "export"]

ROOT = Path(__file__).resolve().parents[2]


def _git(*arguments: str) -> bytes:
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, timeout=60).stdout


def epoch_of_commit() -> int:
    """When HEAD was committed, in seconds since 1970: the time of everything in its archives."""
    return int(_git("log", "-1", "--format=%ct"))


def changed() -> list[str]:
    """Files that differ from HEAD or are not in it; they are not released."""
    return _git("status", "--porcelain").decode().splitlines()


def export(folder: Path) -> Path:
    """Write the files of HEAD, and nothing else that lies in the checkout, into a folder."""
    folder.mkdir(parents=True)
    subprocess.run(["tar", "-x", "-C", str(folder)], input=_git("archive", "HEAD"), check=True, timeout=60)
    return folder


def build(source: Path, out: Path, **environment: str) -> tuple[Path, Path]:
    """Build the source archive of a folder, and the wheel from that archive; answer the wheel first."""
    given = os.environ | {"SOURCE_DATE_EPOCH": str(epoch_of_commit())} | environment
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)]
    done = subprocess.run(command, env=given, cwd=source, capture_output=True, text=True, check=False, timeout=100)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    (wheel,), (archive,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return wheel, archive


def build_twice(folder: Path) -> tuple[Path, Path]:
    """Build HEAD in two places, under two names, time zones and file modes, and require the same bytes."""
    first = build(export(folder / "a" / "gpupipe"), folder / "dist")
    before = os.umask(0o077)
    try:
        again = build(export(folder / "elsewhere" / "b"), folder / "again", TZ="Pacific/Auckland", LC_ALL="C")
    finally:
        os.umask(before)
    for one, other in zip(first, again, strict=True):
        if one.name != other.name or one.read_bytes() != other.read_bytes():
            raise SystemExit(f"{one.name} and {other.name}, built from one commit, differ")
    return first

"""pythons: the interpreters of this machine, and what an archive does in an empty environment of each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import readme_chain

__all__ = ["MINORS", "find", "try_in"]

MINORS = range(10, 15)
"""Of Python 3: from the first that gpupipe supports to the newest that its dependencies have wheels for."""

ASK = "import sys, venv; print(*sys.version_info[:2], sys.implementation.name)"


def find() -> dict[int, str]:
    """The interpreters in PATH and among pyenv's, by their minor version; only those that run count."""
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep) if folder]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found: dict[int, str] = {}
    for minor in MINORS:
        places = [folder / f"python3.{minor}" for folder in folders]
        places += sorted(pyenv.glob(f"versions/3.{minor}.*/bin/python"), reverse=True)
        if sys.version_info.minor == minor:
            places.insert(0, Path(sys.executable))
        works = next((place for place in places if place.exists() and _is(place, minor)), None)
        if works is not None:
            found[minor] = str(works)
    return found


def _is(place: Path, minor: int) -> bool:
    """Whether an interpreter runs and is what its name says: pyenv has shims of versions that nobody chose, too."""
    try:
        asked = subprocess.run([str(place), "-c", ASK], capture_output=True, text=True, check=False, timeout=30)
    except OSError:
        return False
    return asked.stdout.split() == ["3", str(minor), "cpython"]


def try_in(python: str, archive: Path, shards: Path, folder: Path) -> str:
    """Install an archive into an empty environment and run the README's chain; answer what went wrong, or ""."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "GPUPIPE"))}
    own = folder / "env" / "bin" / "python"
    program = "import gpupipe, sys; assert gpupipe.__file__.startswith(sys.prefix)\n" + readme_chain.program(shards)
    folder.mkdir(parents=True)
    for command in (
        [python, "-m", "venv", "--without-pip", str(folder / "env")],
        [sys.executable, "-m", "pip", "--python", str(own), "install", "--quiet", "--no-compile", str(archive)],
        [str(own), "-W", "error", "-c", program],
        [str(folder / "env" / "bin" / "gpupipe"), "doctor"],
    ):
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=200
        )
        if done.returncode:
            return f"{command[:3]}: {done.returncode}\n{done.stdout}{done.stderr}"
    return ""

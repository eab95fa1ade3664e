"""image: a Dockerfile carried out without Docker, in a folder that stands for the file system of the image.

`COPY` copies what .dockerignore lets through, `ENV` and `ARG` set variables, and each line of `RUN` runs in /bin/sh
with an environment that holds nothing else. Absolute paths of the image become paths below the folder. What a base
image brings is simulated by commands that come first in PATH: `python3` is the interpreter that runs the tests,
`apt-get` and `useradd` note what they are asked for and make a folder. All stages share the folder, so `COPY --from`
has nothing to do.
"""

from __future__ import annotations

import fnmatch
import io
import json
import os
import re
import shlex
import shutil
import string
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).resolve().parents[2]
OF_THE_INDEX = re.compile(r"(?i)PIP_(?!CONSTRAINT|REQUIRE)\w+|SSL_CERT_\w+|\w+_PROXY")
"""Variables that tell pip where this machine's package index is: the network of an image that is built has its own."""

FOLDERS = re.compile(r"(?<![\w./}])/(src|opt|home|var|root)\b")
"""Paths of an image that its Dockerfile writes to."""

STAND_INS = {
    "python3": 'exec "{python}" "$@"\n',
    "apt-get": 'echo "apt-get $*" >> "{log}"\nmkdir -p "{root}/var/lib/apt/lists/archive"\n',
    "useradd": 'echo "useradd $*" >> "{log}"\nfor name; do :; done\nmkdir -p "{root}/home/$name"\n',
}


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """The instructions of a file in `docker/` with what follows each, continued lines joined."""
    text = (ROOT / "docker" / dockerfile).read_bytes()
    parser: Any = DockerfileParser  # its annotations want a file of text, its code one of bytes
    structure: list[dict[str, Any]] = parser(fileobj=io.BytesIO(text)).structure
    return [(each["instruction"], each["value"]) for each in structure if each["instruction"] != "COMMENT"]


def let_through(path: str, ignore: str | None = None) -> bool:
    """Whether a file of the repository, or what it lies in, reaches the build: .dockerignore's last match decides."""
    text = (ROOT / ".dockerignore").read_text(encoding="utf-8") if ignore is None else ignore
    kept = True
    for line in filter(None, text.splitlines()):
        pattern = line.removeprefix("!").removeprefix("**/")
        parents = ["/".join(path.split("/")[: n + 1]) for n in range(path.count("/") + 1)]
        names = parents if "**/" not in line else path.split("/")
        if any(fnmatch.fnmatchcase(name, pattern) for name in names):
            kept = line.startswith("!")
    return kept


@dataclass
class Image:
    """What a Dockerfile made, in a folder.

    Attributes:
        root: the folder that stands for `/`.
        environment: the variables that a command in the image finds.
        folder: the directory that it starts in, as the image names it.
        user: who it runs as.
        health: the command of HEALTHCHECK.
        command: the command of CMD.
        asked: lines of commands that were simulated.
    """

    root: Path
    environment: dict[str, str] = field(default_factory=dict)
    folder: str = "/"
    user: str = "root"
    health: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    @property
    def asked(self) -> list[str]:
        log = self.root / "asked"
        return log.read_text(encoding="utf-8").splitlines() if log.exists() else []

    def here(self, text: str) -> str:
        """A text with paths of the image, as paths below the folder."""
        return FOLDERS.sub(lambda found: f"{self.root}{found[0]}", text)

    def run(self, *command: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
        """Run a command in the image, with its variables and nothing of this process."""
        path = self.here(self.environment.get("PATH", ""))
        index = {name: value for name, value in os.environ.items() if OF_THE_INDEX.fullmatch(name)}
        environment = {name: self.here(value) for name, value in self.environment.items()} | index
        environment |= {"PATH": f"{self.root}/stand-ins:{path}", "HOME": f"{self.root}/home/gpupipe"}
        folder = Path(self.here(self.folder)) if self.folder != "/" else self.root
        streams: dict[str, Any] = {"capture_output": True, "text": True, "check": False, "timeout": timeout}
        done = subprocess.run(command, cwd=folder, env=environment, **streams)
        assert done.returncode == 0, f"{shlex.join(command)}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done


def carry_out(
    dockerfile: str, root: Path, arguments: Mapping[str, str] | None = None, instead: Mapping[str, str] | None = None
) -> Image:
    """Carry a Dockerfile out in an empty folder, with build arguments, and with other words in lines of RUN."""
    image = Image(root)
    _simulate(root)
    base, given = {"PATH": "/usr/local/bin:/usr/bin:/bin"}, dict(arguments or {})
    variables, stages = dict(base), dict[str, dict[str, str]]()
    for instruction, value in instructions(dockerfile):
        if instruction == "FROM":
            came_from, _, name = value.partition(" AS ")
            variables = dict(stages.get(came_from, base))
            if name:
                stages[name] = variables
            image.folder, image.user = "/", "root"
        elif instruction == "ARG":
            name, _, default = value.partition("=")
            variables[name] = given.get(name, default.strip('"'))
        elif instruction == "ENV":
            for pair in shlex.split(value):
                name, _, text = pair.partition("=")
                variables[name] = string.Template(text).substitute(variables)
        elif instruction == "COPY":
            _copy(value, root)
        elif instruction == "RUN":
            image.environment = variables
            for words, others in (instead or {}).items():
                value = value.replace(words, others)
            image.run("/bin/sh", "-c", image.here(value), timeout=280)
        elif instruction == "WORKDIR":
            image.folder = value
        elif instruction == "USER":
            image.user = value
        elif instruction == "CMD":
            image.command = json.loads(value)
        elif instruction == "HEALTHCHECK":
            image.health = json.loads(value.partition(" CMD ")[2])
        else:
            raise AssertionError(f"this Dockerfile has {instruction}, which carry_out does not know")
    image.environment = variables
    return image


def _simulate(root: Path) -> None:
    (root / "stand-ins").mkdir()
    for name, lines in STAND_INS.items():
        path = root / "stand-ins" / name
        python = Path(getattr(sys, "_base_executable", sys.executable)).resolve()
        path.write_text("#!/bin/sh -eu\n" + lines.format(python=python, root=root, log=root / "asked"))
        path.chmod(0o755)


def _copy(value: str, root: Path) -> None:
    words = shlex.split(value)
    options, (*sources, target) = [w for w in words if w.startswith("--")], [w for w in words if w[:2] != "--"]
    if any(option.startswith("--from=") for option in options):
        return
    for source in sources:
        assert let_through(source), f"COPY {source}: .dockerignore leaves it out"
        place = root / target.strip("/") / (Path(source).name if target.endswith("/") else "")
        place.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / source).is_dir():
            shutil.copytree(ROOT / source, place, symlinks=True, ignore=_left_out, dirs_exist_ok=True)
        else:
            shutil.copy(ROOT / source, place)


def _left_out(folder: str, names: list[str]) -> list[str]:
    below = Path(folder).relative_to(ROOT)
    return [name for name in names if not let_through((below / name).as_posix())]

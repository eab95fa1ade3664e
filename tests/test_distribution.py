"""The name that pip knows gpupipe by: `gpupipe` is another project, which no extra and no text may install."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from gpupipe.missing import DISTRIBUTION, LIBRARIES
from tests.project import PROJECT, requirements

ROOT = Path(__file__).resolve().parent.parent
FETCHES = re.compile(r"""gpupipe\\?\[|\b(?:pipx?|uv) (?:install|add) (?:[^\s`]+ )*\W{0,2}gpupipe(?:-dali)?(?![\w/-])""")
"""A line that asks an index for `gpupipe`, or for `gpupipe-dali`, which is on none."""


def test_the_distribution_is_named_in_one_way() -> None:
    assert PROJECT["name"] == DISTRIBUTION == "gpupipe-dali"
    assert list(PROJECT["scripts"]) == ["gpupipe"]


@pytest.mark.parametrize("extra", PROJECT["optional-dependencies"])
def test_an_extra_brings_no_other_project_of_this_name(extra: str) -> None:
    names = {canonicalize_name(needed.name) for needed in requirements(extra)}

    assert len(names) > len(PROJECT["dependencies"])
    assert not names & {"gpupipe", DISTRIBUTION}


@pytest.mark.parametrize("extra", LIBRARIES)
def test_the_libraries_that_messages_name_are_those_of_the_extra(extra: str) -> None:
    needed = [Requirement(line) for line in PROJECT["optional-dependencies"][extra]]
    own = [one for one in needed if one.name != DISTRIBUTION]

    # pip takes the newest version: only a bound that the newest one breaks has to be named.
    assert shlex.split(LIBRARIES[extra]) == [re.sub(r">=[\d.]+", "", str(one).partition(";")[0]) for one in own]


@pytest.mark.skipif(not (shutil.which("git") and (ROOT / ".git").exists()), reason="not a git checkout, or no git")
def test_no_text_installs_what_is_called_gpupipe_on_an_index() -> None:
    command = ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"]
    listed = subprocess.run(command, capture_output=True, check=True, timeout=60).stdout.decode()

    found = []
    for name in listed.split("\0")[:-1]:
        path = ROOT / name
        data = path.read_bytes() if path.is_file() else b""
        if b"\0" not in data:
            lines = data.decode(errors="replace").splitlines()
            found += [f"{name}:{n}: {line.strip()}" for n, line in enumerate(lines, 1) if FETCHES.search(line)]
    assert found == []

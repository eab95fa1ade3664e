"""The files in docker/: what a linter says of them, what an image must have, and whether the pinned packages fit."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.utils import canonicalize_name

from tests.docker.image import ROOT, instructions, let_through
from tests.docker.pins import pins
from tests.project import requirements

DOCKER = ROOT / "docker"
FILES = ["Dockerfile.cpu", "Dockerfile.gpu"]
PYTHONS = ["3.10", "3.11", "3.12", "3.13"]


@pytest.mark.parametrize("name", FILES)
def test_hadolint_has_nothing_to_say(name: str) -> None:
    program = shutil.which("hadolint", path=f"{Path(sys.executable).parent}:/usr/bin:/bin")
    if program is None:
        pytest.skip("hadolint is not installed; the extra `dev` brings it on x86_64 Linux")
    command = [program, "--no-color", str(DOCKER / name)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize("name", FILES)
def test_an_image_has_a_user_of_its_own_and_asks_the_doctor_how_it_is(name: str) -> None:
    last = dict(instructions(name))
    assert last["USER"].isdigit() and last["USER"] != "0"
    assert last["HEALTHCHECK"].endswith('CMD ["gpupipe", "doctor"]')


def test_the_image_for_gpus_asks_for_what_decoding_on_a_gpu_needs() -> None:
    last = dict(instructions("Dockerfile.gpu"))["ENV"]
    settings = dict(pair.split("=", 1) for pair in last.split())
    assert set(settings["NVIDIA_DRIVER_CAPABILITIES"].split(",")) == {"compute", "utility", "video"}


@pytest.mark.parametrize("name", FILES)
def test_what_a_dockerfile_copies_is_there_and_is_let_through(name: str) -> None:
    for instruction, value in instructions(name):
        if instruction == "COPY" and "--from=" not in value:
            *sources, _target = [word for word in value.split() if not word.startswith("--")]
            assert [each for each in sources if not (ROOT / each).exists() or not let_through(each)] == []


def test_little_but_the_package_is_sent_to_the_build() -> None:
    assert all(map(let_through, ["gpupipe/dataset/core.py", "docker/constraints-cpu.txt"]))
    for path in ("docker/compose.yaml", "tests/conftest.py", ".git/config", "gpupipe/dataset/__pycache__/core.pyc",
                 "notebooks/data/photos-0.tfrecord"):  # fmt: skip
        assert not let_through(path), path


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_the_notebook_server_is_for_this_machine_alone_and_has_a_token(name: str) -> None:
    service: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text(encoding="utf-8"))["services"][name]

    assert [port.rsplit(":", 2)[0] for port in service["ports"]] == ["127.0.0.1"]
    assert service["environment"]["JUPYTER_TOKEN"].startswith("${JUPYTER_TOKEN:?")  # neither missing nor empty
    assert not [word for word in service["command"] if "token" in word or "password" in word]
    assert "privileged" not in service and service["cap_drop"] == ["ALL"]
    assert (DOCKER / service["build"]["context"] / service["build"]["dockerfile"]).is_file()
    (argument, value), *others = service["build"]["args"].items()
    assert not others and value == ",jupyter"
    assert ("ARG", f'{argument}=""') in instructions(f"Dockerfile.{name}")


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("kind", ["cpu", "cuda12", "cuda13"])
def test_what_is_pinned_satisfies_pyproject(kind: str, python: str) -> None:
    """`make constraints` writes the files again."""
    machine = {"python_version": python, "python_full_version": f"{python}.9", "sys_platform": "linux",
               "platform_machine": "x86_64", "implementation_name": "cpython"}  # fmt: skip
    found: dict[str, set[str]] = {}
    for pin in pins(kind):
        (specifier,) = pin.specifier
        assert specifier.operator == "==", pin
        if pin.marker is None or pin.marker.evaluate(machine):
            found.setdefault(canonicalize_name(pin.name), set()).add(specifier.version)

    assert {name: versions for name, versions in found.items() if len(versions) > 1} == {}
    for wanted in requirements(kind, "jupyter", "dev"):
        if wanted.marker is None or wanted.marker.evaluate(machine):
            (version,) = found.get(canonicalize_name(wanted.name), {"not pinned"})
            assert version != "not pinned" and version in wanted.specifier, f"{wanted}: {version}"


def test_make_and_ci_install_what_the_image_installs() -> None:
    makefile, constraints = ((ROOT / name).read_text(encoding="utf-8") for name in ("Makefile", ".ci/constraints.txt"))
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    assert "--constraint docker/constraints-$(EXTRA).txt" in makefile
    assert re.search(r"^-c ../docker/constraints-cpu\.txt$", constraints, re.MULTILINE)
    assert "EXTRA=cpu" in script and "--constraint .ci/constraints.txt" in script

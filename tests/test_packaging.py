"""What a person installs: the wheel and the source archive hold the ops, which the repository reaches by a symlink."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.test_imports import HOMES, imports

ROOT = Path(__file__).resolve().parent.parent

# Distributions whose import name differs.
IMPORT_NAMES = {"pillow": "PIL"}


def _run(*command: str, cwd: Path, **environment: str) -> str:
    env = os.environ | environment
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source archive; tests/release/ looks at what both hold."""
    for tool in ("build", "hatchling"):
        if importlib.util.find_spec(tool) is None:
            pytest.skip(f"{tool} is not installed; the extra `dev` brings it")
    folder = tmp_path_factory.mktemp("dist")
    # Without isolation: the build uses what is installed, and needs no network.
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    (path,) = folder.glob("*.whl")
    return path


def test_gpupipe_ops_is_a_relative_symlink() -> None:
    assert os.readlink(ROOT / "gpupipe" / "ops") == "../ops"


def test_the_installed_wheel_imports_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    installed, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    words = "-m pip install --quiet --no-deps --no-index --disable-pip-version-check --target".split()
    _run(sys.executable, *words, str(installed), str(wheel), cwd=elsewhere)

    code = "import gpupipe.ops; print(gpupipe.__version__); print(gpupipe.ops.__file__)"
    version, file = _run(sys.executable, "-c", code, cwd=elsewhere, PYTHONPATH=str(installed)).split()

    assert wheel.name.startswith(f"gpupipe_dali-{version}-")
    assert Path(file) == installed / "gpupipe" / "ops" / "__init__.py"


@pytest.mark.parametrize("generation", ["12", "13"])
def test_an_extra_for_a_gpu_brings_all_that_is_not_the_driver(generation: str, wheel: Path) -> None:
    required = re.findall(rf"^Requires-Dist: ([^;\n]+);.*extra == 'cuda{generation}'$", _metadata(wheel), re.MULTILINE)

    # CuPy compiles its kernels when they are first used: with NVRTC and the runtime's headers, of its own generation.
    # From 14 on it finds those that come as wheels.
    toolkit, cupy, decoder = sorted(required)
    assert toolkit == f"cuda-toolkit[cudart,nvrtc]=={generation}.*"
    assert cupy == f"cupy-cuda{generation}x>=14"
    assert decoder.startswith(f"nvidia-dali-cuda{generation}0>=")


def _metadata(wheel: Path) -> str:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
    return metadata


def test_core_dependencies_are_what_the_package_imports(wheel: Path) -> None:
    archive, metadata = zipfile.ZipFile(wheel), _metadata(wheel)
    required = re.findall(r"^Requires-Dist: ([\w.-]+)[^;\n]*$", metadata, flags=re.MULTILINE)
    optional = {*HOMES, "packaging"}  # which comes with DALI

    sources = [archive.read(name).decode() for name in archive.namelist() if name.endswith(".py")]
    imported = {found.module.split(".")[0] for source in sources for found in imports(source, ("gpupipe",) * 9)}

    third_party = imported - set(sys.stdlib_module_names) - {"gpupipe"} - optional
    assert third_party == {IMPORT_NAMES.get(name, name) for name in required}

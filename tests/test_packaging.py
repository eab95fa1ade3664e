"""What a person installs: the wheel and the source archive hold the ops, which the repository reaches by a symlink."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.test_imports import HOMES

ROOT = Path(__file__).resolve().parent.parent
OPS = sorted(path.relative_to(ROOT / "ops").as_posix() for path in (ROOT / "ops").rglob("*.py"))

# Distributions whose import name differs.
IMPORT_NAMES = {"pillow": "PIL"}


def _run(*command: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=os.environ | environment, capture_output=True, text=True, check=False, timeout=100
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that was built from it."""
    for tool in ("build", "hatchling"):
        if importlib.util.find_spec(tool) is None:
            pytest.skip(f"{tool} is not installed; the extra `dev` brings it")
    folder = tmp_path_factory.mktemp("dist")
    # Without isolation: the build uses what is installed, and needs no network.
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT), cwd=folder)
    return folder


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel."""
    (path,) = built.glob("*.whl")
    return path


def test_gpupipe_ops_is_a_relative_symlink() -> None:
    link = ROOT / "gpupipe" / "ops"

    assert link.is_symlink()
    assert os.readlink(link) == "../ops"


def test_the_wheel_holds_every_op_once_the_type_marker_and_the_page(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    found = [name for name in names if name.startswith("gpupipe/ops/") and name.endswith(".py")]
    assert sorted(name.removeprefix("gpupipe/ops/") for name in found) == OPS
    assert {"gpupipe/py.typed", *(f"gpupipe/comparison/page/page.{kind}" for kind in ("html", "css"))} <= set(names)
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"gpupipe"}


def test_the_source_archive_holds_every_op(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.split("/", 1)[1] for name in archive.getnames() if "/" in name}

    # As plain files where the symlink stands: hatchling follows it, and then passes the folder behind it by.
    assert {f"gpupipe/ops/{name}" for name in OPS} <= names
    assert {"LICENSE", "README.md", "pyproject.toml"} <= names
    assert not any(name.startswith((".venv", ".ci-venv", ".gpu")) for name in names)


def test_the_installed_wheel_imports_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "site"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    _run(
        sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--disable-pip-version-check",
        "--target", str(installed), str(wheel), cwd=elsewhere,
    )  # fmt: skip

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

    imported = {
        module.split(".")[0]
        for name in archive.namelist()
        if name.endswith(".py")
        for node in ast.walk(ast.parse(archive.read(name)))
        for module in _modules(node)
    }

    third_party = imported - set(sys.stdlib_module_names) - {"gpupipe"} - optional
    assert third_party == {IMPORT_NAMES.get(name, name) for name in required}


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module and not node.level:
        return [node.module]
    return []

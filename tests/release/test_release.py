"""What `make release` relies on: archives are reproducible, a wrong file in them is found, and so are interpreters."""

from __future__ import annotations

import importlib.util
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest

from tests.release.build import ROOT, build_twice, export
from tests.release.contents import names_in, wrong
from tests.release.pythons import find

pytestmark = pytest.mark.skipif(
    shutil.which("git") is None or not (ROOT / ".git").exists() or importlib.util.find_spec("build") is None,
    reason="archives are those of a commit: this needs git, a checkout, and build, which the extra `dev` brings",
)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source archive of HEAD, of which two builds were compared."""
    return build_twice(tmp_path_factory.mktemp("release"))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of HEAD."""
    return export(tmp_path_factory.mktemp("tree") / "gpupipe")


def test_two_builds_of_a_commit_have_the_same_bytes_and_what_they_should_have(
    archives: tuple[Path, Path], tree: Path
) -> None:
    for archive in archives:
        assert wrong(archive, tree) == []
        assert "gpupipe/py.typed" in names_in(archive)


def test_times_in_an_archive_are_not_those_of_the_build(archives: tuple[Path, Path]) -> None:
    times = {entry.date_time for entry in zipfile.ZipFile(archives[0]).infolist()}
    assert len(times) == 1


@pytest.mark.parametrize(
    ("removed", "added", "found"),
    [
        ("gpupipe/py.typed", "", "lacks gpupipe/py.typed"),
        ("gpupipe/ops/resize.py", "", "lacks gpupipe/ops/resize.py"),
        ("", "tests/conftest.py", "holds tests/conftest.py"),
        ("", "gpupipe/shards/train-0.tfrecord", "holds gpupipe/shards/train-0.tfrecord"),
        ("", "gpupipe/dataset/.core.py.swp", r"holds gpupipe/dataset/.core.py.swp"),
        ("", "notebooks/01-quickstart.ipynb", "holds notebooks/01-quickstart.ipynb"),
    ],
)
def test_what_is_missing_and_what_does_not_belong_is_found(
    removed: str, added: str, found: str, archives: tuple[Path, Path], tree: Path, tmp_path: Path
) -> None:
    changed = tmp_path / archives[0].name
    with zipfile.ZipFile(archives[0]) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            if name != removed:
                new.writestr(name, old.read(name))
        if added:
            new.writestr(added, b"")

    (problem,) = wrong(changed, tree)
    assert problem.endswith(found)


def test_builds_that_differ_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(source: Path, out: Path, **_: str) -> tuple[Path, Path]:
        out.mkdir()
        for name in ("gpupipe_dali-1.whl", "gpupipe_dali-1.tar.gz"):
            (out / name).write_text(str(source), encoding="utf-8")
        return out / "gpupipe_dali-1.whl", out / "gpupipe_dali-1.tar.gz"

    monkeypatch.setattr("tests.release.build.build", build)
    with pytest.raises(
        SystemExit, match=re.escape("gpupipe_dali-1.whl and gpupipe_dali-1.whl, built from one commit, differ")
    ):
        build_twice(tmp_path)


def test_interpreters_that_only_seem_to_be_there_are_not_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    lies = tmp_path / "python3.10"
    lies.write_text("#!/bin/sh\necho 'python3.10: command not found' >&2\nexit 127\n", encoding="utf-8")
    lies.chmod(0o755)
    true = tmp_path / f"python3.{sys.version_info.minor}"
    if not true.exists():
        true.symlink_to(sys.executable)

    assert list(find(str(tmp_path), home=tmp_path)) == [sys.version_info.minor]

"""What `make release` relies on: archives are reproducible, a wrong file in them is found, and so are interpreters."""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from pathlib import Path

import pytest

from tests.release.build import ROOT, build_twice, export
from tests.release.contents import names_in, wrong

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
    times = {entry.date_time for entry in zipfile.ZipFile(archives[0]).infolist()}
    assert len(times) == 1  # that of the commit


@pytest.mark.parametrize(
    ("removed", "added"),
    [
        ("gpupipe/ops/resize.py", ""),
        ("", "tests/conftest.py"),
        ("", "gpupipe/dataset/.core.py.swp"),
        ("", "notebooks/01-quickstart.ipynb"),
    ],
)
def test_what_is_missing_and_what_does_not_belong_is_found(
    removed: str, added: str, archives: tuple[Path, Path], tree: Path, tmp_path: Path
) -> None:
    changed = tmp_path / archives[0].name
    with zipfile.ZipFile(archives[0]) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            if name != removed:
                new.writestr(name, old.read(name))
        if added:
            new.writestr(added, b"")

    (problem,) = wrong(changed, tree)
    assert problem.endswith(f"lacks {removed}" if removed else f"holds {added}")

"""contents: what a wheel and a source archive may hold, and what they must."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Iterable
from pathlib import Path

__all__ = ["names_in", "wrong"]

CODE = r"gpupipe/([a-z_0-9]+/)*[a-z_0-9]+\.py|gpupipe/py\.typed|gpupipe/comparison/page/page\.(html|css)"
WHEEL = rf"{CODE}|gpupipe_dali-[\w.]+\.dist-info/(METADATA|WHEEL|RECORD|entry_points\.txt|licenses/LICENSE)"
SOURCES = (
    rf"{CODE}|gpupipe/([a-z_]+/)*[A-Z]+\.md|gpupipe/guide/[a-z-]+\.md|gpupipe/guide/pictures/[a-z-]+\.(svg|webp)"
    r"|pyproject\.toml|PKG-INFO|LICENSE|\.gitignore"
    r"|(README|ARCHITECTURE|CHANGELOG|CONTRIBUTING|SECURITY)\.md"
)
"""No tests and what they read, no notebooks and their outputs, no benchmarks and their results."""

NEEDED = {"gpupipe/__init__.py", "gpupipe/py.typed", "gpupipe/comparison/page/page.html", "gpupipe/ops/resize.py"}


def names_in(archive: Path) -> list[str]:
    """The files of an archive, those of a source archive without its top folder."""
    if archive.suffix == ".whl":
        return zipfile.ZipFile(archive).namelist()
    with tarfile.open(archive) as files:
        return [member.name.split("/", 1)[1] for member in files if not member.isdir()]


def wrong(archive: Path, tree: Path) -> list[str]:
    """What an archive holds that it may not, and lacks that it must; `tree` holds the files it was built from."""
    names = names_in(archive)
    wheel = archive.suffix == ".whl"
    code = {path.relative_to(tree).as_posix() for path in _python(tree / "gpupipe")}
    if wheel:
        code = {name for name in code if not name.startswith("gpupipe/guide/")}
    code |= {f"gpupipe/ops/{path.relative_to(tree / 'ops').as_posix()}" for path in _python(tree / "ops")}
    allowed = WHEEL if wheel else SOURCES
    guide = "gpupipe/guide/" if wheel else "none in a source archive"
    found = [f"holds {name}" for name in names if not re.fullmatch(allowed, name) or name.startswith(guide)]
    found += [f"holds {name} more than once" for name in sorted({name for name in names if names.count(name) > 1})]
    found += [f"lacks {name}" for name in sorted((code | NEEDED) - set(names))]
    return [f"{archive.name} {what}" for what in found]


def _python(folder: Path) -> Iterable[Path]:
    # `rglob` of some Python versions follows the symlink gpupipe/ops and of others does not
    return (path for path in folder.rglob("*.py") if "ops" not in path.relative_to(folder).parts)

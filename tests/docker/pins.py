"""pins: the versions that images and CI install."""

from __future__ import annotations

from packaging.requirements import Requirement

from tests.docker.image import ROOT

__all__ = ["pins"]


def pins(kind: str) -> list[Requirement]:
    """The pinned versions of one of the files `docker/constraints-*.txt`, with their markers."""
    text = (ROOT / "docker" / f"constraints-{kind}.txt").read_text(encoding="utf-8")
    return [Requirement(line) for line in text.splitlines() if line and not line.lstrip().startswith("#")]

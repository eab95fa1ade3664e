from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpupipe.comparison.photographs import write_shards
from gpupipe.transform.machine import has_dali
from tests.chains.data import BACKENDS, Spy, records, sample_folder


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "dali" and not has_dali():
        pytest.skip("DALI is not installed")
    return str(request.param)


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """44 procedural photographs: gray, portrait, 4:2:0 and progressive ones among them."""
    return write_shards(tmp_path_factory.mktemp("photographs"), count=44, shards=8)


@pytest.fixture(params=["procedural", "sample"])
def shards(request: pytest.FixtureRequest, photographs: list[Path]) -> list[Path]:
    """Shards of JPEG images: eight procedural ones, or the first three of the real sample."""
    if request.param == "procedural":
        return photographs
    folder = sample_folder()
    if folder is None:
        pytest.skip("no sample of photographs at hand (GPUPIPE_SAMPLE)")
    return sorted(folder.glob("*.tfrecord"))[:3]


@pytest.fixture
def class_folder(shards: list[Path], tmp_path: Path) -> Path:
    """The same images as files, one folder per class."""
    for number, (data, _) in enumerate(records(shards)):
        folder = tmp_path / "classes" / f"{number * 7 % 4}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number:04d}.jpg").write_bytes(data)
    return tmp_path / "classes"


@pytest.fixture
def spy(monkeypatch: Any) -> Spy:
    return Spy().install(monkeypatch)

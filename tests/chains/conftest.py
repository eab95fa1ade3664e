from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gpupipe.comparison.photographs import write_shards
from gpupipe.transform.machine import has_dali
from tests.chains.data import BACKENDS, Spy


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    if request.param == "dali" and not has_dali():
        pytest.skip("DALI is not installed")
    return str(request.param)


@pytest.fixture(scope="session")
def photographs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """44 procedural photographs: gray, portrait, 4:2:0 and progressive ones among them."""
    return write_shards(tmp_path_factory.mktemp("photographs"), count=44, shards=8)


@pytest.fixture
def spy(monkeypatch: Any) -> Spy:
    return Spy().install(monkeypatch)

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.tensors.launch import Launcher


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Runs a program of this folder in processes of its own."""
    launcher = Launcher(tmp_path_factory.mktemp("compiled"))
    yield launcher
    launcher.close()

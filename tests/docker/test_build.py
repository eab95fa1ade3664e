"""The Dockerfiles carried out: what they install works, in an environment that holds nothing else.

Docker itself is not there: base images, apt and the users are simulated (`image.py`). The image for the CPU is
installed for real. Of that for GPUs, whose wheels are gigabytes, pip resolves and downloads nothing but descriptions.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest
from packaging.utils import canonicalize_name

from tests import readme_chain
from tests.docker.image import carry_out
from tests.docker.pins import pins

pytestmark = [
    pytest.mark.skipif(not os.environ.get("GPUPIPE_INDEX"), reason="installs from a package index: make test-images"),
    pytest.mark.skipif(sys.platform != "linux", reason="images hold Linux"),
    pytest.mark.timeout(300),
]


def test_the_image_for_the_cpu_is_well_and_runs_the_chain_of_the_readme(tmp_path: Path) -> None:
    image = carry_out("Dockerfile.cpu", tmp_path)
    python = f"{tmp_path}/opt/gpupipe/bin/python"

    assert [line.split()[0] for line in image.asked] == ["useradd"]
    said = image.run(*image.health).stdout
    assert re.search(r"^ok +DALI on CPU", said, re.MULTILINE) and "all is well" in said
    shards = readme_chain.draw(tmp_path / "drawn")
    frozen = re.findall(r"^(.+)==(.+)$", image.run(python, "-m", "pip", "freeze").stdout, re.MULTILINE)
    installed = {(canonicalize_name(name), version) for name, version in frozen}
    assert len(installed) > 10
    assert installed <= {(canonicalize_name(pin.name), str(pin.specifier)[2:]) for pin in pins("cpu")}

    assert image.run(python, "-c", readme_chain.program(shards)).stdout == readme_chain.SAYS
    assert image.run(*image.command, "--help").stdout.startswith("usage: gpupipe demo")


@pytest.mark.parametrize("generation", ["12", "13"])
def test_pip_finds_all_that_the_image_for_gpus_is_pinned_to(generation: str, tmp_path: Path) -> None:
    image = carry_out("Dockerfile.gpu", tmp_path, {"CUDA": generation}, {"pip install": "pip install --dry-run"})

    assert [line.split()[:2] for line in image.asked][:2] == [["apt-get", "update"], ["apt-get", "install"]]
    assert (image.user, image.folder) == ("10001", "/home/gpupipe")
    assert image.environment["PATH"].startswith("/opt/gpupipe/bin:")

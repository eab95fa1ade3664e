"""`gpupipe doctor`: this machine in a table or as JSON, and an exit status that scripts can use."""

from __future__ import annotations

import importlib.metadata
import json
import re
import signal
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpupipe
from gpupipe.cli import doctor
from gpupipe.tools.doctor.facts import Facts
from tests.cli.commands import Cli, ended, settled, signalled, started
from tests.tools.machines import GPU, LAPTOP, without

# Put first on Python's path as sitecustomize.py: DALI is installed, but cannot be imported.
BLOCKER = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name == "nvidia.dali" or name.startswith("nvidia.dali."):
            raise ImportError("libdali_core.so: cannot open shared object file")
sys.meta_path.insert(0, Blocker())
"""


@pytest.fixture
def here(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[int, str]]:
    """The status and stdout of the command on a made-up machine."""

    def run(facts: Facts, *words: str) -> tuple[int, str]:
        monkeypatch.setattr(doctor, "gather", lambda progress: facts)
        return cli("doctor", *words)[:2]

    return run


def test_this_machine_is_told_in_lines(here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")

    status, out = here(GPU)

    assert status == 0
    assert out.startswith(f"gpupipe {gpupipe.__version__}, Python ")
    assert "\nok       GPU            NVIDIA H200 (compute capability 9.0); driver 580.65.06" in out
    assert out.endswith("\nall is well\n")
    assert max(map(len, out.splitlines())) <= 100


def test_what_is_broken_gives_status_1_and_a_command(here: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(GPU.machine.found, "dali", False)

    status, out = here(without("cupy-cuda13x", "nvidia-dali-cuda130", facts=GPU))

    assert status == 1
    assert "\nproblem  DALI" in out
    remedy = "pip install nvidia-dali-cuda130 cupy-cuda13x 'cuda-toolkit[cudart,nvrtc]==13.*'"
    assert re.search(rf"\n {{10,}}\$ {re.escape(remedy)}\n", out)
    assert out.endswith("\n1 problem, 1 warning\n")


def test_warnings_alone_give_status_0_and_json_holds_checks_and_facts(here: Callable[..., Any]) -> None:
    status, out = here(LAPTOP)
    assert (status, out.splitlines()[-1]) == (0, "1 warning")

    status, out = here(LAPTOP, "--json")

    found = json.loads(out)
    assert (status, found["gpupipe"], found["broken"]) == (0, gpupipe.__version__, False)
    (dali,) = (check for check in found["checks"] if check["name"] == "DALI")
    assert (dali["status"], dali["command"]) == ("warning", "pip install nvidia-dali-cuda130")
    assert found["facts"]["packages"]["numpy"] == "2.4.6"


def test_of_a_real_machine_a_dali_that_cannot_be_imported_is_a_problem_with_its_reason(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)

    status, out, err = ended(started("doctor", "--json", cwd=tmp_path, first=tmp_path))

    assert err == ""
    found = json.loads(out)
    assert status == found["broken"]
    assert {"packages", "GPU", "NumPy on CPU", "device='auto'", "CPUs"} <= {check["name"] for check in found["checks"]}
    if any((d.name or "").startswith("nvidia-dali-cuda") for d in importlib.metadata.distributions()):
        assert status == 1
        (dali,) = (check for check in found["checks"] if check["name"] == "DALI")
        assert dali["status"] == "problem"
        assert "libdali_core.so: cannot open shared object file" in dali["text"]
        assert "-m pip uninstall -y nvidia-dali-cuda1" in dali["command"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT between processes")
def test_ctrl_c_ends_it_and_its_probe(tmp_path: Path) -> None:
    code = "import sys, time\nif sys.argv[0] == '-c':\n    open('probing', 'w').close()\n    time.sleep(60)\n"
    (tmp_path / "sitecustomize.py").write_text(code)
    mark = uuid.uuid4().hex
    process = started("doctor", cwd=tmp_path, first=tmp_path, GPUPIPE_MARK=mark)

    found = signalled(process, signal.SIGINT, (tmp_path / "probing").exists)

    assert found == (130, "", "gpupipe: interrupted\n")
    assert settled(mark, 0)

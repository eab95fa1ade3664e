"""libraries: what a missing library does to the tests that need it.

Such a test is skipped, by `pytest.importorskip` or with a reason that says what is not installed. With
`GPUPIPE_ALL_LIBRARIES=1` it fails: `.ci/run` sets that once it has installed all of them, so that no comparison is left
out there without a word.
"""

from __future__ import annotations

import os
import re

import pytest

__all__ = ["ALL_LIBRARIES", "fail_without_library"]

ALL_LIBRARIES = bool(os.environ.get("GPUPIPE_ALL_LIBRARIES"))
"""Whether a test without its library fails."""

MISSING = re.compile(r"not (all )?installed|could not import|No module named")
OPTIONAL = ("imagecodecs", "zsh", "fish")
"""Libraries and programs that `.ci/run` does not install."""


def fail_without_library(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Make a failure of the report of a skipped test, or file, whose library is missing."""
    if not report.skipped or hasattr(report, "wasxfail") or not isinstance(report.longrepr, tuple):
        return
    reason = str(report.longrepr[2])
    if ALL_LIBRARIES and MISSING.search(reason) and not any(name in reason for name in OPTIONAL):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} may not be skipped with GPUPIPE_ALL_LIBRARIES=1: {reason}"

"""The contact sheet as a file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from gpupipe.comparison.sheet import save_png


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no device that is always full")
def test_a_full_disk_names_the_file() -> None:
    with pytest.raises(OSError, match="No space left on device: '/dev/full'"):
        save_png(Path("/dev/full"), np.zeros((300, 300, 3), np.uint8))

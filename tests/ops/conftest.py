"""What tests of ops share."""

from __future__ import annotations

import os
import warnings
from typing import Any

import pytest

from tests.ops.originals import original


@pytest.fixture(scope="session")
def tf() -> Any:
    """TensorFlow."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # its imports warn about themselves
        return original("tensorflow")

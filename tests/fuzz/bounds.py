"""Bounds that only large inputs come to, lowered for a while: some names of a module get other values."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

lowered: Callable[..., AbstractContextManager[object]] = patch.multiple

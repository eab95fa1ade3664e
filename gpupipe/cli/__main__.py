"""`python -m gpupipe.cli` is the `gpupipe` command."""

from __future__ import annotations

import sys

from gpupipe.cli import main

sys.exit(main())

"""python -m tests.docs: the documentation as HTML in build/docs, or in the folder given."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.docs.build import ROOT, build

if __name__ == "__main__":
    place = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "docs"
    build(place)
    print(f"{place / 'index.html'}: {sum(1 for _ in place.rglob('*.html'))} pages")

"""Runs an example of gpupipe/guide/examples as its command does, and tells what its loops were given.

Arguments: the example and its arguments.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
from typing import Any

import numpy as np

from gpupipe.load.converted import ConvertedIterator
from gpupipe.tensors.accelerate import PreparedIterator
from tests.chains.data import ROOT
from tests.tensors.programs import tell

Pass = tuple[int, list[Any]]


def noting(kind: type[ConvertedIterator], passes: list[tuple[ConvertedIterator, list[Any]]]) -> None:
    """Note the last column of each batch that an iterator of just this type gives, by iterator."""
    plain: Any = kind.__next__

    def noted(self: Any) -> Any:
        batch = plain(self)
        if type(self) is kind:
            if not passes or passes[-1][0] is not self:
                passes.append((self, []))
            passes[-1][1].append(_own(batch[-1]))
        return batch

    kind.__next__ = noted  # type: ignore[method-assign]


def _own(column: Any) -> Any:
    """A column on the host; of a global array the rows of this process."""
    shards = getattr(column, "addressable_shards", None)
    array = np.asarray(column) if shards is None else np.concatenate([np.asarray(shard.data) for shard in shards])
    return [one.decode() if isinstance(one, bytes) else one for one in array.tolist()]


def given(passes: list[tuple[ConvertedIterator, list[Any]]]) -> list[Pass]:
    """The epoch and the columns of each pass, but for looks that a library takes at the first batches of one."""
    found: list[Pass] = [(items.epoch or 0, columns) for items, columns in passes]
    after = [*found[1:], (-1, [])]
    return [
        one for one, other in zip(found, after, strict=True) if one[0] != other[0] or one[1] != other[1][: len(one[1])]
    ]


def main() -> None:
    """Run the example."""
    name, *arguments = sys.argv[1:]
    path = ROOT / "gpupipe" / "guide" / "examples" / f"{name}.py"
    sys.path.insert(0, str(path.parent))
    passes: list[tuple[ConvertedIterator, list[Any]]] = []
    for kind in (ConvertedIterator, PreparedIterator):
        noting(kind, passes)
    sys.argv = [str(path), *arguments]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        runpy.run_path(str(path), run_name="__main__")
    tell(int(os.environ.get("RANK", "0")), given=given(passes), printed=printed.getvalue().splitlines())


if __name__ == "__main__":
    main()

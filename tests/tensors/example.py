"""Runs an example of gpupipe/guide/examples several times, as its command does, and tells what its loops were given.

Arguments: the example; one JSON list of arguments for each run; where there are ranks, a port for each run in `PORTS`.
Each run is a fork of a process that has imported the example, so that frameworks are imported once.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import runpy
import sys
import traceback
from pathlib import Path
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


def run(path: str, arguments: list[str], out: Path) -> None:
    """One run, which ends this process."""
    status, printed, passes = 1, io.StringIO(), []  # type: ignore[var-annotated]
    try:
        for kind in (ConvertedIterator, PreparedIterator):
            noting(kind, passes)
        sys.argv = [path, *arguments]
        with contextlib.redirect_stdout(printed):
            runpy.run_path(path, run_name="__main__")
        out.write_text(json.dumps({"given": given(passes), "printed": printed.getvalue().splitlines()}))
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)


def main() -> None:
    """Run the example for each list of arguments."""
    name, *lists = sys.argv[1:]
    path = str(ROOT / "gpupipe" / "guide" / "examples" / f"{name}.py")
    ports = os.environ.get("PORTS", "").split()
    sys.path.insert(0, os.path.dirname(path))
    runpy.run_path(path, run_name="imported")
    runs = []
    for number, arguments in enumerate(lists):
        if ports:  # the store of torchrun remembers the addresses of the run before
            os.environ.update(MASTER_PORT=ports[number], TORCHELASTIC_USE_AGENT_STORE="False")
        out = Path(os.environ["OUT"]) / f"{os.environ.get('RANK', '0')}-{number}.json"
        child = os.fork()
        if not child:
            run(path, json.loads(arguments), out)
        if os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]):
            raise SystemExit(f"{name} {arguments} failed")
        runs.append(json.loads(out.read_text()))
    tell(int(os.environ.get("RANK", "0")), runs=runs)


if __name__ == "__main__":
    main()

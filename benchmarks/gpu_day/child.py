"""child: one part in a process of its own. Its order comes in on stdin; answers go out on a pipe of their own.

A question that raises ends the process, since the state of CUDA is unknown; the next one is asked in a new process, as
is each question of a part whose questions do not share one.
"""

from __future__ import annotations

import faulthandler
import json
import os
import sys
import time
import traceback
from typing import Any

from benchmarks.gpu_day.day import Day
from benchmarks.gpu_day.plan import module_of

__all__ = ["FAILED", "main"]

FAILED = 75
"""The exit status after a question that raised."""


def main() -> int:
    """Ask the questions of the part named on stdin, except for those that were asked before."""
    faulthandler.enable()  # a crash prints where in Python it was
    order = json.loads(sys.stdin.readline())
    pipe = int(sys.argv[1])
    os.set_inheritable(pipe, False)
    answers = os.fdopen(pipe, "w", encoding="utf-8")

    def say(**message: Any) -> None:
        print(json.dumps(message, default=_plain), file=answers, flush=True)

    module = module_of(order["part"])
    questions = module.questions(Day.from_json(order["day"]))
    say(questions=list(questions))
    for name, ask in questions.items():
        if name in order["asked"]:
            continue
        say(begin=name)
        started = time.monotonic()
        try:
            value = ask()
        except Exception as error:
            traceback.print_exc()
            say(failure=f"{type(error).__name__}: {error}"[:2000], seconds=round(time.monotonic() - started, 2))
            return FAILED
        say(answer=value, seconds=round(time.monotonic() - started, 2))
        if module.PART.alone:
            break
    return 0


def _plain(value: Any) -> Any:
    # NumPy's numbers have an `item` method, which returns Python's.
    return value.item() if hasattr(value, "item") else str(value)


if __name__ == "__main__":
    sys.exit(main())

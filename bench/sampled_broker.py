"""Our broker with a sampler inside: `python -m bench.sampled_broker STACKS [the broker's own options]`.

Every few milliseconds of its CPU time a signal interrupts it, and the current stack is recorded. This needs no
privilege and no other program, but sees the loop's thread only, and Python's functions only: time inside the system or
a library counts for its caller. At the end the file STACKS has a line for each stack, outermost function first, `;`
between them, and how often it was found.
"""

from __future__ import annotations

import signal
import sys
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Final

from broker.__main__ import main

INTERVAL_S: Final = 0.002


def _note(stacks: Counter[tuple[CodeType, ...]], frame: FrameType | None) -> None:
    found = []
    while frame is not None:
        found.append(frame.f_code)
        frame = frame.f_back
    stacks[tuple(found)] += 1


def _name(code: CodeType) -> str:
    return f"{code.co_qualname} ({_place(code)})"


def _place(code: CodeType) -> str:
    path = Path(code.co_filename)
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return path.name


def _run(path: Path, options: list[str]) -> int:
    stacks: Counter[tuple[CodeType, ...]] = Counter()
    signal.signal(signal.SIGPROF, lambda _, frame: _note(stacks, frame))
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)
    try:
        return main(options)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        lines = [f"{';'.join(_name(code) for code in reversed(stack))} {count}" for stack, count in stacks.items()]
        path.write_text("".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    sys.exit(_run(Path(sys.argv[1]), sys.argv[2:]))

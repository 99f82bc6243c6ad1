"""Short turns on the processor: the broker runs as soon as it is woken, although other processes are busy.

A thread that wakes runs before the running thread only if its turn would end sooner. Since Linux 6.12 a thread of the
ordinary policy may ask for shorter turns (sched_setattr(2), `sched_runtime`); that gives it no more processor time.
Older kernels ignore the request.
"""

import os
import struct
from typing import Final

TURN_NS: Final = 100_000
"""The shortest turn that the kernel grants; the kernel's default is 0.7 to 2.8 ms (docs/decisions/short-turns.md)."""
_USUAL_NS: Final = 0
"""The kernel takes a length of its own."""
_SCHED_SETATTR: Final = {"aarch64": 274, "riscv64": 274, "x86_64": 314}
"""The system call's number: C libraries have no function for it before glibc 2.41."""
_SCHED_ATTR: Final = struct.Struct("=IIQiIQQQII")
"""`struct sched_attr` of Linux 5.3: size, policy, flags, nice, priority; runtime, deadline, period; two clamps."""

_THREADS: Final = "/proc/self/task"


def ask_for_short_turns() -> int:
    """Ask for short turns for all threads of this process, and those that they start. Returns how many were granted.

    0 where the system does not have such turns, or the user has chosen another policy than the ordinary one.
    """
    return _ask_for_turns(TURN_NS)


def take_usual_turns() -> int:
    """Take turns of the kernel's own length again. Returns how many threads do, as `ask_for_short_turns`.

    A child process inherits the broker's turns. While it computes with turns as short as the broker's, the broker does
    not run before it (bench: cleaning-latency).
    """
    return _ask_for_turns(_USUAL_NS)


def _ask_for_turns(turn_ns: int) -> int:
    number = _SCHED_SETATTR.get(os.uname().machine)
    if number is None or not os.path.isdir(_THREADS):
        return 0
    try:
        import ctypes  # 2 ms and 0.3 MB: not before the broker is ready

        call = ctypes.CDLL(None).syscall
    except (ImportError, OSError, AttributeError):
        return 0  # a Python without ctypes, or a C library that has no `syscall`
    call.argtypes = [ctypes.c_long, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]
    granted = 0
    for thread in map(int, os.listdir(_THREADS)):
        try:
            if os.sched_getscheduler(thread) != os.SCHED_OTHER:
                continue
            nice = os.getpriority(os.PRIO_PROCESS, thread)
        except OSError:
            continue  # the thread has ended, or asking is not permitted
        wanted = _SCHED_ATTR.pack(_SCHED_ATTR.size, os.SCHED_OTHER, 0, nice, 0, turn_ns, 0, 0, 0, 0)
        granted += call(number, thread, wanted, 0) == 0
    return granted

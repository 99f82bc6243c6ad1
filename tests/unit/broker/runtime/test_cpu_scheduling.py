"""Short turns on the processor: the request to the kernel, and that it is granted."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from unittest.mock import Mock

import pytest

from broker.runtime import cpu_scheduling

THREE_THREADS = """
import os, threading
from broker.runtime import cpu_scheduling
end = threading.Event()
threads = [threading.Thread(target=end.wait) for _ in range(2)]
[thread.start() for thread in threads]
os.nice(3)
print(cpu_scheduling.ask_for_short_turns())
later = threading.Thread(target=end.wait)
later.start()
for thread in os.listdir("/proc/self/task"):
    print(thread, os.getpriority(os.PRIO_PROCESS, int(thread)))
    print(open(f"/proc/self/task/{thread}/sched").read())
end.set()
"""
CHILD = """
import subprocess, sys
from broker.runtime import cpu_scheduling
cpu_scheduling.ask_for_short_turns()
child = "from broker.runtime import cpu_scheduling as c; slice = lambda: print(open('/proc/self/sched').read()); "
subprocess.run([sys.executable, "-c", child + "slice(); c.take_usual_turns(); slice()"], check=True)
"""
OTHER_POLICY = """
import os
from broker.runtime import cpu_scheduling
os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
print(cpu_scheduling.ask_for_short_turns(), os.sched_getscheduler(0) == os.SCHED_BATCH)
"""


def run(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout


def kernel_tells_turns() -> bool:
    try:
        major, minor = (int(number) for number in os.uname().release.split(".")[:2])
        return (major, minor) >= (6, 12) and "se.slice" in Path("/proc/self/sched").read_text()
    except OSError:
        return False


@pytest.mark.skipif(not kernel_tells_turns(), reason="only Linux has turns, from 6.12 on, and not every one shows them")
def test_threads_of_now_and_later_have_short_turns_and_keep_their_priority() -> None:
    said = run(THREE_THREADS)

    assert said.startswith("3\n")
    assert re.findall(r"se\.slice *: *(\d+)", said) == [str(cpu_scheduling.TURN_NS)] * 4
    assert sorted(re.findall(r"^\d+ (\d+)$", said, re.MULTILINE)) == [str(os.nice(0) + more) for more in (0, 0, 3, 3)]


@pytest.mark.skipif(not kernel_tells_turns(), reason="only Linux has turns, from 6.12 on, and not every one shows them")
def test_a_child_process_may_take_the_kernels_turns_again() -> None:
    inherited, usual = map(int, re.findall(r"se\.slice *: *(\d+)", run(CHILD)))

    assert inherited == cpu_scheduling.TURN_NS
    assert usual > cpu_scheduling.TURN_NS


@pytest.mark.skipif(sys.platform != "linux", reason="the policies are Linux's")
def test_another_policy_is_left_as_it_is() -> None:
    assert run(OTHER_POLICY) == "0 True\n"


def test_a_machine_without_the_call_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: Mock(machine="s390x"))

    assert cpu_scheduling.ask_for_short_turns() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nobody is asked")
def test_where_nobody_may_ask_the_broker_goes_on_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getscheduler", Mock(side_effect=PermissionError))

    assert cpu_scheduling.ask_for_short_turns() == 0

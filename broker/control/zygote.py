"""The zygote: a process that has imported everything, and forks a broker for tests for whoever asks.

A start of Python and the imports take 100 ms of CPU, most of a broker's start. The zygote pays them once, before it has
threads or sockets, and each broker begins where it left off. It asks nothing and answers nothing: a request is the JSON
list of a command line, with two descriptors, the standard output and the standard error of the new broker.

It ends when its standard input or its parent does, and its brokers end with it, as they end with any parent. The
standard input alone would not tell of a parent that was killed: a process that the parent has forked keeps it open.
"""

from __future__ import annotations

import gc
import json
import os
import pkgutil
import select
import signal
import socket
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from broker.control.command_line import OPTION, run
from broker.control.parent import open_parent

COMMAND: Final = "test-server"

MOST_BYTES: Final = 1 << 20
"""The longest request."""

_DESCRIPTORS: Final = (1, 2)
_NEEDED: Final = ("broker.handlers", "broker.coordinators", "broker.controller", "broker.fetch")
"""Packages whose modules a broker imports when it needs them."""


def main(arguments: Sequence[str]) -> int:
    """Serve requests that come in on standard input, a Unix socket, until it is closed; return the exit code."""
    if arguments:
        sys.stderr.write(f"ottla {COMMAND}: for ottla.testing, and without arguments\n")
        return 2
    for package in _NEEDED:
        for module in pkgutil.walk_packages(import_module(package).__path__, f"{package}."):
            import_module(module.name)
    gc.collect()
    gc.freeze()  # what a fork shares stays shared
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system forgets the brokers that have ended
    zygote = os.getpid()
    parent = open_parent()
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            watched: list[socket.socket | int] = [requests] if parent is None else [requests, parent]
            if parent in select.select(watched, [], [])[0]:
                return 0
            request, descriptors, _, _ = socket.recv_fds(requests, MOST_BYTES, len(_DESCRIPTORS))
            if not request:
                return 0
            if os.fork() == 0:
                requests.close()
                if parent is not None:
                    os.close(parent)
                return _become_a_broker(json.loads(request), descriptors, zygote)
            for descriptor in descriptors:
                os.close(descriptor)


def _become_a_broker(arguments: list[str], descriptors: Sequence[int], zygote: int) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDONLY)
    for descriptor, number in zip((null, *descriptors), (0, *_DESCRIPTORS), strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    return run([OPTION, *arguments], parent=zygote)

"""A member of a consumer group in a process of its own, so that the member can be killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
from multiprocessing.connection import Connection

from tests.support.clients import TIMEOUT_S, connect
from tests.support.clients.members import Event, Member, Membership, Sightings

_BETWEEN_LOOKS_S = 0.2

_SPAWN = multiprocessing.get_context("spawn")  # librdkafka's threads do not survive a fork


class MemberProcess:
    """A member in a child process. Its events come through a pipe until the process ends."""

    def __init__(self, client: str, bootstrap: str, membership: Membership) -> None:
        self.seen = Sightings()
        self.is_staying = True
        """False once the member has been asked to close."""
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_live, args=(client, bootstrap, membership, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def begin_closing(self) -> None:
        """Ask the member to close after its current poll."""
        self.is_staying = False
        with contextlib.suppress(OSError):  # it may have ended by itself
            self._pipe.send("close")

    def close(self) -> None:
        """Close the member. Returns when its process has ended."""
        self.begin_closing()
        self._process.join(TIMEOUT_S)
        assert not self._process.is_alive(), f"member process {self._process.pid} lives on after {TIMEOUT_S} s"
        self._listener.join()

    def kill(self) -> None:
        """Kill the process by SIGKILL: the member leaves no group. Returns when the process has ended."""
        self._process.kill()
        self._process.join()
        self._listener.join()

    @property
    def is_alive(self) -> bool:
        return self._process.is_alive()

    def _listen(self) -> None:
        try:
            while True:
                self.seen.note(self._pipe.recv())
        except (EOFError, OSError):
            self._pipe.close()


def _live(client: str, bootstrap: str, membership: Membership, pipe: Connection) -> None:
    """The main function of the child process: be a member until told to close, or until the parent process is gone."""
    telling = threading.Lock()

    def tell(event: Event) -> None:
        with telling:
            pipe.send(event)

    member = Member(connect(client, bootstrap), membership, tell)
    try:
        while member.is_alive and not pipe.poll(_BETWEEN_LOOKS_S):
            pass
        if member.is_alive:
            pipe.recv()
    except EOFError:
        return
    member.close()

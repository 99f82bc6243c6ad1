"""A worker of a queue in a process of its own, which can be killed: librdkafka's share consumer, job by job."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import NamedTuple

_SPAWN = multiprocessing.get_context("spawn")  # librdkafka's threads do not survive a fork

JOB_S = 0.002
"""What a job takes."""


class Done(NamedTuple):
    """A job that a worker has done, and whose acknowledgement the broker has confirmed."""

    job: bytes
    delivery_count: int


class ShareWorker:
    """A worker in a child process. What it has begun and done comes through a pipe until the process ends."""

    def __init__(self, bootstrap: str, topic: str, group_id: str) -> None:
        self.begun: list[Done] = []
        """Jobs that were delivered to the worker."""
        self.done: list[Done] = []
        self.hangs = False
        """Whether the worker has begun a job that it will never end."""
        self._pipe, theirs = _SPAWN.Pipe()
        self._process = _SPAWN.Process(target=_work, args=(bootstrap, topic, group_id, theirs), daemon=True)
        self._process.start()
        theirs.close()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def begin_hanging(self) -> None:
        """Let the worker never end its next job."""
        self._pipe.send("hang")

    def kill(self) -> None:
        """Kill the process by SIGKILL."""
        self._process.kill()
        self._process.join()
        self._listener.join()

    def close(self) -> None:
        """Let the worker leave, and wait for its end."""
        with contextlib.suppress(OSError):
            self._pipe.send("close")
        self._process.join(60)
        assert not self._process.is_alive(), f"worker {self._process.pid} lives on"
        self._listener.join()

    def _listen(self) -> None:
        try:
            while True:
                kind, jobs = self._pipe.recv()
                self.hangs = self.hangs or kind == "hangs"
                (self.done if kind == "done" else self.begun).extend(jobs)
        except (EOFError, OSError):
            self._pipe.close()


def _work(bootstrap: str, topic: str, group_id: str, pipe: Connection) -> None:
    from confluent_kafka import ShareConsumer

    settings = {"bootstrap.servers": bootstrap, "group.id": group_id, "share.acknowledgement.mode": "explicit"}
    with ShareConsumer({**settings, "max.poll.records": 10}) as consumer:
        consumer.subscribe([topic])
        said = ""
        while said != "close":
            jobs: list[Done] = []
            for message in consumer.poll(0.5):
                if message.error() is None:
                    job = Done(message.value(), message.delivery_count())
                    if said == "hang":
                        pipe.send(("hangs", [job]))
                        time.sleep(600)
                    pipe.send(("begun", [job]))
                    time.sleep(JOB_S)
                    consumer.acknowledge(message)
                    jobs.append(job)
            _confirm(jobs, consumer.commit_sync() if jobs else {}, pipe)
            if pipe.poll():
                said = pipe.recv()


def _confirm(jobs: Sequence[Done], results: dict[object, object], pipe: Connection) -> None:
    if jobs and all(error is None for error in results.values()):
        pipe.send(("done", jobs))

"""A worker of a queue in a process of its own, which can be killed: librdkafka's share consumer, job by job."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

_SPAWN = multiprocessing.get_context("spawn")  # librdkafka's threads do not survive a fork

JOB_S = 0.002
"""What a job takes."""


class Delivery(NamedTuple):
    """A job in the hands of a worker, or what has become of the job there."""

    job: bytes
    delivery_count: int
    at_s: float
    """On the system's monotonic clock."""


class ShareWorker:
    """A worker in a child process. What it has begun and done comes through a pipe until the process ends."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        group_id: str,
        *,
        gives_back: bytes | None = None,
        job_s: float = JOB_S,
        most: int = 10,
    ) -> None:
        """``gives_back``: what the job ends with that is given back when it is delivered for the first time;
        ``job_s``: what a job takes; ``most``: how many jobs the worker takes at a time."""
        self.begun: list[Delivery] = []
        """Jobs that were delivered to the worker."""
        self.done: list[Delivery] = []
        """Jobs that the worker has done, and whose acknowledgement the broker has confirmed."""
        self.given_back: list[Delivery] = []
        """Jobs that the worker has released, which the broker has confirmed."""
        self.in_doubt: list[Delivery] = []
        """Jobs that the worker has done, or was to give back, without knowing whether the broker has taken that."""
        self.hangs = False
        """Whether the worker has begun a job that it will never end."""
        self._pipe, theirs = _SPAWN.Pipe()
        words = (bootstrap, topic, group_id, gives_back, job_s, most, theirs)
        self._process = _SPAWN.Process(target=_work, args=words, daemon=True)
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
                lists = {"done": self.done, "given back": self.given_back, "in doubt": self.in_doubt}
                lists.get(kind, self.begun).extend(jobs)
        except (EOFError, OSError):
            self._pipe.close()


def _work(
    bootstrap: str, topic: str, group_id: str, gives_back: bytes | None, job_s: float, most: int, pipe: Connection
) -> None:
    from confluent_kafka import AcknowledgeType, ShareConsumer

    settings = {"bootstrap.servers": bootstrap, "group.id": group_id, "share.acknowledgement.mode": "explicit"}
    patience = {"reconnect.backoff.max.ms": 500, "log_level": 0}
    with ShareConsumer({**settings, **patience, "max.poll.records": most}) as consumer:
        consumer.subscribe([topic])
        said = ""
        while said != "close":
            answered: list[tuple[str, int, Delivery]] = []
            messages = consumer.poll(0.5)
            polled_s = time.monotonic()
            for message in messages:
                if message.error() is None:
                    job = Delivery(message.value(), message.delivery_count(), polled_s)
                    if said == "hang":
                        pipe.send(("hangs", [job]))
                        time.sleep(600)
                    pipe.send(("begun", [job]))
                    time.sleep(job_s)
                    is_given_back = gives_back is not None and job.delivery_count == 1 and job.job.endswith(gives_back)
                    kind = AcknowledgeType.RELEASE if is_given_back else AcknowledgeType.ACCEPT
                    consumer.acknowledge(message, kind)
                    answered.append(("given back" if is_given_back else "done", message.partition(), job))
            if answered:
                _tell(answered, _confirmed(consumer), pipe)
            if pipe.poll():
                said = pipe.recv()


def _confirmed(consumer: Any) -> set[int]:
    """The partitions whose acknowledgements the broker has confirmed."""
    from confluent_kafka import KafkaException

    try:
        return {place.partition for place, error in consumer.commit_sync().items() if error is None}
    except KafkaException:
        return set()


def _tell(answered: Sequence[tuple[str, int, Delivery]], confirmed: set[int], pipe: Connection) -> None:
    now_s = time.monotonic()
    for kind in ("done", "given back"):
        jobs = [job._replace(at_s=now_s) for one, partition, job in answered if one == kind and partition in confirmed]
        if jobs:
            pipe.send((kind, jobs))
    if doubtful := [job for _, partition, job in answered if partition not in confirmed]:
        pipe.send(("in doubt", doubtful))

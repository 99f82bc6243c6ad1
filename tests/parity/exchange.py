"""The language of the scripts: named requests to one broker over a socket, and what came back for each.

A script says only what is asked. It may use an answer for later requests (a topic's id, a session's), never judge it:
that is done by comparing what two brokers answered to the same script.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from dev.broker_process import BrokerProcess
from protocol.api_keys import ASKED_CONTROLLERS, ApiKey
from protocol.errors import ErrorCode
from protocol.headers import decode_response
from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.list_offsets import ListOffsetsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreateTopicsRequest, DeleteTopicsRequest
from protocol.schema import describe
from tests.parity.comparison import CLOSED, SILENCE
from tests.parity.connection import Asked, Closed, Connection, response_class
from tests.parity.normalised import Moment, Normaliser
from tests.parity.plain import plain
from tests.parity.rules import Names
from tests.support.held_time import HeldTimeBroker

NO_ANSWER = "no answer, and the connection stays open"

PATIENCE_S = 8.0
"""How long an answer may take. Silence is no answer within this time."""

PATIENCE_WITH_US_S = 60.0
"""How long at least our own broker has, which is never silent, on a machine that is busy with other things."""

UNPLACED = "raw"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What came back for one step in one version."""

    api: str
    step: str
    version: str
    outcome: Any
    """The answer as normalised plain values, or one of the sentences above."""


class Exchange:
    """One script's conversation with one broker."""

    def __init__(self, script: str, broker: BrokerProcess, normaliser: Normaliser) -> None:
        self.script = script
        self.broker = broker
        self.answered: list[Answered] = []
        self.topic_ids: dict[str, bytes] = {}
        self._normaliser = normaliser
        self._member_ids = Names()
        self._least_patience_s = PATIENCE_WITH_US_S if isinstance(broker, HeldTimeBroker) else 0.0
        self._connections: list[Connection] = []
        self._connection = self.connect()
        self._named: set[tuple[str, str, str]] = set()

    # Steps

    def ask(
        self,
        step: str | None,
        request: Any,
        version: int,
        *,
        client_id: str | None = "parity",
        over: Connection | None = None,
        patience_s: float = PATIENCE_S,
    ) -> Any:
        """Ask, note what came back under the step's name, and return the answer (None where there is none).

        Without a name nothing is noted.
        """
        sent = self.send(request, version, client_id=client_id, over=over)
        return self.answer(step, sent, over=over, patience_s=patience_s)

    def send(
        self, request: Any, version: int, *, client_id: str | None = "parity", over: Connection | None = None
    ) -> Asked:
        """Ask what may have to wait for its answer, over a connection that others can be asked beside."""
        connection = over or self._connection
        sent_ms = _now_ms()
        data = connection.encode(request, version, client_id)
        with suppress(Closed):  # as whoever waits for the answer will see
            connection.send(data)
        return Asked(request=request, version=version, correlation_id=connection.correlation_id, sent_ms=sent_ms)

    def answer(
        self, step: str | None, asked: Asked, *, over: Connection | None = None, patience_s: float = PATIENCE_S
    ) -> Any:
        """Wait for the answer to the oldest request of a connection, note it, and return it."""
        answer: Any = None
        try:
            answer = (over or self._connection).receive_answer(asked, self._at_least(patience_s))
            outcome: Any = plain(answer, asked.version)
        except Closed:
            outcome = CLOSED
        except TimeoutError:
            outcome = SILENCE
        if step is not None:
            self._note(describe(type(asked.request)).key, step, f"v{asked.version}", outcome, asked.sent_ms)
        return answer

    def ask_each(
        self,
        step: str,
        request: Any,
        *,
        since: int | None = None,
        until: int | None = None,
        versions: Iterable[int] | None = None,
        **options: Any,
    ) -> list[Any]:
        """Ask in every version of the API; `request` is one request for all, or makes one out of the version."""
        cls = type(request)
        if callable(request):
            cls = type(request(since if since is not None else 7))
        first, last = describe(cls).versions
        if versions is None:
            versions = range(first if since is None else since, (last if until is None else until) + 1)
        return [
            self.ask(step, request(version) if callable(request) else request, version, **options)
            for version in versions
        ]

    def ask_until(
        self, step: str, request: Any, version: int, condition: Callable[[Any], bool], *, patience_s: float = PATIENCE_S
    ) -> Any:
        """Ask again until the answer is as it will be in the end; only the last one is noted."""
        self.wait_until(request, version, condition, patience_s=patience_s)
        return self.ask(step, request, version)

    def tell(self, step: str, request: Any, version: int) -> None:
        """Send what should get no answer; what is asked next shows whether it got one."""
        sent_ms = _now_ms()
        try:
            self._connection.send(self.frame(request, version))
            expected = self._connection.correlation_id + 1
            self._connection.send(self.frame(ApiVersionsRequest(), 0))
            payload = self._connection.receive_frame(self._at_least(PATIENCE_S))
            if int.from_bytes(payload[:4], "big") == expected:
                outcome: Any = NO_ANSWER
            else:
                _, answer = decode_response(response_class(type(request)), version, payload)
                self._connection.receive_frame(self._at_least(PATIENCE_S))
                outcome = plain(answer, version)
        except Closed:
            outcome = CLOSED
        self._note(describe(type(request)).key, step, f"v{version}", outcome, sent_ms)

    def send_bytes(
        self,
        step: str,
        data: bytes,
        *,
        api: int,
        then_nothing: bool = False,
        answer: Any = None,
        over: Connection | None = None,
    ) -> None:
        """Send bytes as they are, on a connection of their own unless there is `over`; `then_nothing` says that no more
        will come.

        `answer` is (response class, version) where an answer is to be read with it; else its bytes are noted.
        """
        if over is None:
            self.hang_up()
        connection = over or self._connection
        sent_ms = _now_ms()
        try:
            connection.send(data)
            if then_nothing:
                connection.finish_sending()
            payload = connection.receive_frame(self._at_least(PATIENCE_S))
            if answer is None:
                outcome: Any = payload.hex()
            else:
                outcome = plain(decode_response(answer[0], answer[1], payload)[1], answer[1])
        except Closed:
            outcome = CLOSED
        except TimeoutError:
            outcome = SILENCE
        if over is None:
            self.hang_up()
        self._note(api, step, UNPLACED if answer is None else f"v{answer[1]}", outcome, sent_ms)

    # What the scripts need and nobody compares

    def create_topic(self, name: str, partitions: int = 1, **configs: object) -> bytes:
        """Create a topic, wait until it can be written and read, and return its id."""
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.Topic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=1,
                    assignments=[],
                    configs=[
                        CreateTopicsRequest.Topic.Config(name=key.replace("_", "."), value=str(value))
                        for key, value in configs.items()
                    ],
                )
            ]
        )
        created = self.ask(None, request, 7).topics[0]
        if created.error_code != ErrorCode.NONE:
            raise AssertionError(f"topic {name} was not created: {created}")
        self._normaliser.name_id(created.topic_id, name)
        self.topic_ids[name] = created.topic_id
        self.wait_for_topic(name, partitions)
        return self.topic_ids[name]

    def delete_topic(self, name: str) -> None:
        """Delete a topic, and wait until nothing can be asked of it."""
        self.ask(None, DeleteTopicsRequest(topic_names=[name], timeout_ms=30_000), 5)
        metadata = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False)
        gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        self.wait_until(metadata, 12, lambda answer: answer.topics[0].error_code == gone)

    def name_producer(self, producer_id: int, owner: str) -> None:
        """Say by what the producer of an id is called from here on."""
        self._normaliser.name_producer(producer_id, owner)

    def wait_for_topic(self, name: str, partitions: int = 1) -> None:
        """Wait until every partition of a topic can be written and read."""
        metadata = MetadataRequest(topics=[MetadataRequest.Topic(name=name)], allow_auto_topic_creation=False)
        self.wait_until(metadata, 12, lambda answer: len(answer.topics[0].partitions) == partitions)
        offsets = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsRequest.Topic(
                    name=name,
                    partitions=[
                        ListOffsetsRequest.Topic.Partition(partition_index=index, timestamp=-1)
                        for index in range(partitions)
                    ],
                )
            ],
        )
        self.wait_until(offsets, 7, lambda answer: all(not found.error_code for found in answer.topics[0].partitions))

    def wait_until(
        self,
        request: Any,
        version: int,
        condition: Callable[[Any], bool],
        *,
        patience_s: float = PATIENCE_S,
        over: Connection | None = None,
    ) -> None:
        """Ask until the answer meets a condition. Raises `AssertionError` when patience is at an end."""
        patience_s = self._at_least(patience_s)
        deadline = time.monotonic() + patience_s
        while not condition(answer := self.ask(None, request, version, over=over)):
            if time.monotonic() > deadline:
                raise AssertionError(f"after {patience_s} s the answer is still {answer}")

    def connect(self, port: int | None = None, *, from_address: str | None = None) -> Connection:
        """A further connection to the broker, or to another of its listeners."""
        self._connections.append(Connection(port or self.broker.port, from_address=from_address))
        return self._connections[-1]

    def hold_time(self) -> None:
        """From here on our broker's time stands still but for `pass_time`; no timeout comes by itself."""
        self.pass_time(0)

    def pass_time(self, by_ms: int) -> None:
        """Let a timeout of so long pass. Apache Kafka has only the time that the next step waits for."""
        if isinstance(self.broker, HeldTimeBroker):
            self.broker.pass_time(by_ms)

    def await_time(self, by_ms: int) -> None:
        """Let so much time pass with either broker, where nothing that can be asked shows that it has passed."""
        if isinstance(self.broker, HeldTimeBroker):
            self.broker.pass_time(by_ms)
        else:
            time.sleep(by_ms / 1000)

    def restart(self) -> None:
        """Stop the broker in order and start it again on its directory."""
        self.hang_up()
        self.broker.stop()
        self.broker.start(timeout_s=180.0)

    def hang_up(self) -> None:
        """Close every connection; the next question opens its own again."""
        for connection in self._connections:
            connection.hang_up()

    def frame(self, request: Any, version: int) -> bytes:
        """A request as it is sent, to be spoiled."""
        return self._connection.encode(request, version, "parity")

    def forget_members(self) -> None:
        """Name the ids of members anew: what a group of other members does looks the same."""
        self._member_ids = Names()

    def _at_least(self, patience_s: float) -> float:
        return max(patience_s, self._least_patience_s)

    def note(self, key: ApiKey, step: str, version: int, outcome: dict[str, Any]) -> None:
        """Note what was seen in answers that were asked for without a name."""
        self._note(key, step, f"v{version}", outcome, _now_ms())

    def _note(self, key: int, step: str, version: str, outcome: Any, sent_ms: int) -> None:
        # What only controllers are asked has no name among the APIs of brokers.
        api = ApiKey(key).name if key in set(ApiKey) - ASKED_CONTROLLERS else f"API {key}"
        assert (api, step, version) not in self._named, f"{api} {version} has two steps named {step!r}"
        self._named.add((api, step, version))
        moment = Moment(
            script=self.script,
            api=api,
            step=step,
            sent_ms=sent_ms,
            received_ms=_now_ms(),
            port=self.broker.port,
            data_directory=str(self.broker.data_directory),
            member_ids=self._member_ids,
        )
        outcome = self._normaliser.normalise(outcome, moment)
        self.answered.append(Answered(api=api, step=step, version=version, outcome=outcome))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000

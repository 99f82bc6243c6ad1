"""BrokerRequests: what this broker asks the controllers for itself: producer ids, topics, places of replicas.

Each is asked again until the controllers have answered. A new topic is asked for once: the client asks again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from broker.membership.controller_channel import ControllerChannel
from broker.membership.forwarder import ForwardedClient, Forwarder, ForwardingFailed, NotForwardable
from broker.metadata.automatic_topics import AutomaticTopic
from broker.peers.backoff import Backoff
from broker.peers.waiting import set_by
from broker.request.context import RequestContext
from broker.request.session import ANONYMOUS
from broker.runtime.clock import Clock
from broker.runtime.counted import counted
from protocol.errors import ErrorCode, described
from protocol.headers import decode_response, encode_request
from protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse

log = logging.getLogger(__name__)

MOST_ASSIGNMENTS: Final = 2_250
"""Replicas in one AssignReplicasToDirs, as in Kafka."""

MOST_NEW_TOPICS: Final = 1_000
"""Topics that may wait to be created; names beyond them are dropped, and their clients ask again."""

CREATE_TOPICS_VERSION: Final = 7
CREATION_TIMEOUT_MS: Final = 30_000

_LOOPBACK: Final = "127.0.0.1"

_GONE: Final = {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER}
"""This broker has no such replica any more: as in Kafka, the controllers are not told of it again."""


class _AskedTopics(NamedTuple):
    """Topics that are created in the name of a client, or of this broker."""

    client: ForwardedClient
    topics: Mapping[str, AutomaticTopic]
    then: Callable[[Mapping[str, str]], None]


class BrokerRequests:
    """The requests of one broker. `run` is a task of the broker.

    It is the `AutoCreation` of a member, and takes the blocks of its producer ids.
    """

    def __init__(
        self,
        channel: ControllerChannel,
        forwarder: Forwarder,
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        automatic_topic: Callable[[str], AutomaticTopic],
        known_directories: Callable[[], Sequence[bytes] | None],
        clock: Clock,
        backoff: Backoff,
    ) -> None:
        """``channel`` is for these requests alone; ``automatic_topic`` says what a topic is created with.

        ``known_directories``: the log directories in this broker's registration, by the metadata that it has applied;
        None where the level of the cluster does not have them.
        """
        self._channel = channel
        self._forwarder = forwarder
        self._node_id = node_id
        self._itself = ForwardedClient(ANONYMOUS, _LOOPBACK, str(node_id))
        self._broker_epoch = broker_epoch
        self._automatic_topic = automatic_topic
        self._known_directories = known_directories
        self._clock = clock
        self._backoff = backoff
        self._wanted_blocks: list[Callable[[range], None]] = []
        self._new_topics: dict[str, ForwardedClient] = {}
        """By name, in whose name they are created."""
        self._asked_topics: deque[_AskedTopics] = deque()
        self._places: dict[tuple[bytes, int], bytes] = {}
        """The log directory of each replica that the controllers are to know, by topic id and partition."""
        self._when_assigned: dict[tuple[bytes, int], Callable[[], None]] = {}
        """What is called once they know."""
        self._is_wanted = asyncio.Event()
        """Set where something is wanted of a kind of which nothing was wanted before: a pause ends for it."""

    # What the broker asks for

    def allocate_producer_ids(self, then: Callable[[range], None]) -> None:
        """Take the next block of producer ids (KIP-730); ``then`` gets it once the controllers have given it."""
        if not self._wanted_blocks:
            self._is_wanted.set()
        self._wanted_blocks.append(then)

    def auto_create(self, names: Iterable[str], asked_by: RequestContext | None = None) -> None:
        """Create topics that a client asked about; there is no answer, the client asks again. They are created in the
        client's name, as in Kafka, so that the controllers charge the client, or in this broker's own."""
        client = self._itself if asked_by is None else ForwardedClient.of(asked_by)
        for name in names:
            if len(self._new_topics) < MOST_NEW_TOPICS:
                self._new_topics.setdefault(name, client)
        self._is_wanted.set()

    def create_in_the_name_of(
        self, asked_by: RequestContext, topics: Mapping[str, AutomaticTopic], then: Callable[[Mapping[str, str]], None]
    ) -> None:
        """Create topics for a client, in its name: the controllers check what it may create, and charge it. ``then``
        gets the reasons why topics were not created, by name."""
        self._ask_for(_AskedTopics(ForwardedClient.of(asked_by), topics, then))

    def create_topic(self, name: str, configs: Sequence[tuple[str, str]], then: Callable[[], None]) -> None:
        """Create a topic in this broker's own name, with the controllers' defaults and these configs.

        ``then`` is called once the controllers have answered, or have not, also where the topic could not be created.
        """

        def created(refused: Mapping[str, str]) -> None:
            for why in refused.values():
                log.info("topic %s was not created automatically: %s", name, why)
            then()

        self._ask_for(_AskedTopics(self._itself, {name: AutomaticTopic(configs=tuple(configs))}, created))

    def _ask_for(self, asked: _AskedTopics) -> None:
        if len(self._asked_topics) >= MOST_NEW_TOPICS:
            asked.then(dict.fromkeys(asked.topics, "too many topics wait to be created"))
            return
        self._asked_topics.append(asked)
        self._is_wanted.set()

    def assign_directory(
        self, topic_id: bytes, partition: int, directory_id: bytes, then: Callable[[], None] | None = None
    ) -> None:
        """Tell the controllers in which log directory (its id of 16 bytes) a replica of this broker is (KIP-858).

        ``then`` is called once they know. It is not called where another directory is told before, or this broker has
        no such replica any more by their answer: the metadata log will say so.

        Below the level that has log directories the controllers are told nothing, and ``then`` is called at once.
        """
        if not self._known_directories():
            if then is not None:
                then()
            return
        if not self._places:
            self._is_wanted.set()
        self._places[topic_id, partition] = directory_id
        self._when_assigned.pop((topic_id, partition), None)
        if then is not None:
            self._when_assigned[topic_id, partition] = then

    @property
    def unassigned_directories(self) -> int:
        """How many replicas the controllers are still to be told of."""
        return len(self._places)

    # How it is asked

    async def run(self) -> None:
        """Ask until the task is cancelled."""
        try:
            while True:
                await self._is_wanted.wait()
                self._is_wanted.clear()
                while not await self._ask_all():
                    await set_by(self._clock, self._clock.monotonic_ms() + self._backoff.next_ms(), self._is_wanted)
                    self._is_wanted.clear()
                self._backoff.reset()
        finally:
            self._channel.close()

    async def _ask_all(self) -> bool:
        """Ask for everything that is wanted. False if something is to be asked again."""
        has_blocks = not self._wanted_blocks or await self._allocate()
        while self._new_topics:
            client = next(iter(self._new_topics.values()))
            await self._create(client, [name for name, wanted_by in self._new_topics.items() if wanted_by == client])
        while self._asked_topics:
            asked = self._asked_topics.popleft()
            asked.then(await self._create_asked(asked))
        return await self._assign() and has_blocks

    async def _allocate(self) -> bool:
        request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        answer = await self._channel.ask(request, AllocateProducerIdsResponse)
        if answer is None:
            return False
        if answer.error_code != ErrorCode.NONE or answer.producer_id_len < 1:
            log.warning("the controllers give no producer ids, asking again: %s", described(answer.error_code))
            return False
        first = answer.producer_id_start
        self._wanted_blocks.pop(0)(range(first, first + answer.producer_id_len))
        return not self._wanted_blocks or await self._allocate()

    async def _create_asked(self, asked: _AskedTopics) -> dict[str, str]:
        """The reasons why topics were not created, by name."""
        try:
            answer = await self._forward(asked.client, [_wish(name, topic) for name, topic in asked.topics.items()])
        except (ForwardingFailed, NotForwardable) as error:
            return dict.fromkeys(asked.topics, str(error))
        return {
            topic.name: topic.error_message or described(topic.error_code)
            for topic in answer.topics
            if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        }

    async def _forward(self, client: ForwardedClient, wishes: list[CreateTopicsRequest.Topic]) -> CreateTopicsResponse:
        request = CreateTopicsRequest(topics=wishes, timeout_ms=CREATION_TIMEOUT_MS)
        frame = encode_request(0, client.client_id, request, CREATE_TOPICS_VERSION)[4:]
        response = await self._forwarder.forward(client.request(frame))
        _, answer = decode_response(CreateTopicsResponse, CREATE_TOPICS_VERSION, response)
        return answer

    async def _create(self, client: ForwardedClient, names: Sequence[str]) -> None:
        wishes = [_wish(name, self._automatic_topic(name)) for name in names]
        try:
            answer = await self._forward(client, wishes)
        except (ForwardingFailed, NotForwardable) as error:
            names = list(self._new_topics)  # the others would wait as long for nothing
            log.warning("%s not created, the first is %s: %s", counted(len(names), "topic"), names[0], error)
        else:
            for topic in answer.topics:
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    log.info("topic %s was not created automatically: %s", topic.name, topic.error_message)
        for name in names:
            self._new_topics.pop(name, None)

    async def _assign(self) -> bool:
        """Tell the controllers of all places. False if one of them is to be told again."""
        while self._places:
            sent = dict(list(self._places.items())[:MOST_ASSIGNMENTS])
            request = _assignments(self._node_id, self._broker_epoch(), sent)
            answer = await self._channel.ask(request, AssignReplicasToDirsResponse)
            if answer is None or answer.error_code != ErrorCode.NONE:
                return False
            for directory in answer.directories:
                for topic in directory.topics:
                    for partition in topic.partitions:
                        place = bytes(topic.topic_id), partition.partition_index
                        if place in sent and self._places.get(place) == sent[place]:
                            self._settle(place, partition.error_code)
            if any(self._places.get(place) == directory_id for place, directory_id in sent.items()):
                return False
        return True

    def _settle(self, place: tuple[bytes, int], code: int) -> None:
        if code == ErrorCode.NONE or code in _GONE:
            del self._places[place]
            then = self._when_assigned.pop(place, None)
            if then is not None and code == ErrorCode.NONE:
                then()


def _wish(name: str, topic: AutomaticTopic) -> CreateTopicsRequest.Topic:
    of_topic = CreateTopicsRequest.Topic
    return of_topic(
        name=name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[],
        configs=[of_topic.Config(name=key, value=value) for key, value in topic.configs],
    )


def _assignments(
    node_id: int, broker_epoch: int, places: Mapping[tuple[bytes, int], bytes]
) -> AssignReplicasToDirsRequest:
    of_directory = AssignReplicasToDirsRequest.Directory
    of_topic = of_directory.Topic
    by_directory: dict[bytes, dict[bytes, list[int]]] = {}
    for (topic_id, partition), directory_id in places.items():
        by_directory.setdefault(directory_id, {}).setdefault(topic_id, []).append(partition)
    return AssignReplicasToDirsRequest(
        broker_id=node_id,
        broker_epoch=broker_epoch,
        directories=[
            of_directory(
                id=directory_id,
                topics=[
                    of_topic(
                        topic_id=topic_id,
                        partitions=[of_topic.Partition(partition_index=index) for index in indexes],
                    )
                    for topic_id, indexes in topics.items()
                ],
            )
            for directory_id, topics in by_directory.items()
        ],
    )

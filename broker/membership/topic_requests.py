"""TopicRequests: has the controllers create topics that clients have asked about, or that this broker needs.

A topic is asked for once: the client asks again.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from broker.membership.forwarder import ForwardedClient, Forwarder, ForwardingFailed, NotForwardable
from broker.metadata.automatic_topics import AutomaticTopic
from broker.request.context import RequestContext
from broker.request.session import ANONYMOUS
from broker.runtime.counted import counted
from protocol.errors import ErrorCode, described
from protocol.headers import decode_response, encode_request
from protocol.messages.topics import CreateTopicsRequest, CreateTopicsResponse

log = logging.getLogger(__name__)

MOST_NEW_TOPICS: Final = 1_000
"""Topics that may wait to be created; names beyond them are dropped, and their clients ask again."""

CREATE_TOPICS_VERSION: Final = 7
CREATION_TIMEOUT_MS: Final = 30_000

_LOOPBACK: Final = "127.0.0.1"


class _AskedTopics(NamedTuple):
    """Topics that are created in the name of a client, or of this broker."""

    client: ForwardedClient
    topics: Mapping[str, AutomaticTopic]
    then: Callable[[Mapping[str, str]], None]


class TopicRequests:
    """The new topics that one broker asks for: the `AutoCreation` of a member. `run` is a task of the broker."""

    def __init__(self, forwarder: Forwarder, *, node_id: int, automatic_topic: Callable[[str], AutomaticTopic]) -> None:
        """``automatic_topic`` says what a topic is created with."""
        self._forwarder = forwarder
        self._itself = ForwardedClient(ANONYMOUS, _LOOPBACK, str(node_id))
        self._automatic_topic = automatic_topic
        self._new_topics: dict[str, ForwardedClient] = {}
        """By name, in whose name they are created."""
        self._asked_topics: deque[_AskedTopics] = deque()
        self._is_wanted = asyncio.Event()

    # What the broker asks for

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

    # How it is asked

    async def run(self) -> None:
        """Ask until the task is cancelled."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            while self._new_topics:
                client = next(iter(self._new_topics.values()))
                names = [name for name, wanted_by in self._new_topics.items() if wanted_by == client]
                await self._create(client, names)
            while self._asked_topics:
                asked = self._asked_topics.popleft()
                asked.then(await self._create_asked(asked))

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


def _wish(name: str, topic: AutomaticTopic) -> CreateTopicsRequest.Topic:
    of_topic = CreateTopicsRequest.Topic
    return of_topic(
        name=name,
        num_partitions=topic.partitions,
        replication_factor=topic.replication_factor,
        assignments=[],
        configs=[of_topic.Config(name=key, value=value) for key, value in topic.configs],
    )

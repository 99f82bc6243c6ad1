"""Quotas of clients: set, changed, removed and described; and changes of topics beyond a quota."""

import math

from protocol.messages.client_quotas import AlterClientQuotasRequest, DescribeClientQuotasRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.topics import CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest
from protocol.schema import NO_UUID
from tests.parity.exchange import Exchange

EXACT, DEFAULT, SPECIFIED = 0, 1, 2

Entry = AlterClientQuotasRequest.Entry
Entity = dict[str, str | None]


def entry(entity: Entity, removed: tuple[str, ...] = (), **limits: float) -> Entry:
    return Entry(
        entity=[Entry.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            *(Entry.Op(key=key, value=value, remove=False) for key, value in limits.items()),
            *(Entry.Op(key=key, value=0.0, remove=True) for key in removed),
        ],
    )


def altered(*entries: Entry, validate_only: bool = False) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)


def described(*components: tuple[str, int, str | None], strict: bool = False) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[
            DescribeClientQuotasRequest.Component(entity_type=kind, match_type=match, match=name)
            for kind, match, name in components
        ],
        strict=strict,
    )


def run(exchange: Exchange) -> None:
    changes(exchange)
    questions(exchange)
    mutations(exchange)
    topics_that_are_asked_about(exchange)


def changes(exchange: Exchange) -> None:
    steps = {
        "a user's rate": [entry({"user": "alice"}, producer_byte_rate=1000.0)],
        "another value": [entry({"user": "alice"}, producer_byte_rate=2000.0)],
        "all keys of a user": [
            entry(
                {"user": "bob"},
                producer_byte_rate=1e6,
                consumer_byte_rate=2e6,
                request_percentage=50.5,
                controller_mutation_rate=0.5,
            )
        ],
        "a client": [entry({"client-id": "shop"}, request_percentage=200.0)],
        "both": [entry({"client-id": "shop", "user": "alice"}, consumer_byte_rate=5.0)],
        "the default user": [entry({"user": None}, producer_byte_rate=7.0)],
        "the default client": [entry({"client-id": None}, producer_byte_rate=8.0)],
        "both defaults": [entry({"user": None, "client-id": None}, producer_byte_rate=9.0)],
        "a user and the default client": [entry({"user": "alice", "client-id": None}, producer_byte_rate=10.0)],
        "an address": [entry({"ip": "10.0.0.1"}, connection_creation_rate=3.0)],
        "an address of version 6": [entry({"ip": "::1"}, connection_creation_rate=3.0)],
        "a host": [entry({"ip": "localhost"}, connection_creation_rate=4.0)],
        "the default address": [entry({"ip": None}, connection_creation_rate=5.0)],
        "no host": [entry({"ip": "no.such.host.invalid"}, connection_creation_rate=4.0)],
        "an address and a user": [entry({"ip": "10.0.0.1", "user": "alice"}, connection_creation_rate=4.0)],
        "an address's byte rate": [entry({"ip": "10.0.0.1"}, producer_byte_rate=4.0)],
        "a user's connections": [entry({"user": "alice"}, connection_creation_rate=4.0)],
        "half an address": [entry({"ip": "10.0.0.1"}, connection_creation_rate=2.5)],
        "nothing": [],
        "no change": [entry({"user": "alice"})],
        "no entity": [entry({}, producer_byte_rate=1.0)],
        "an empty name": [entry({"user": ""}, producer_byte_rate=1.0)],
        "an empty client": [entry({"client-id": ""}, producer_byte_rate=1.0)],
        "an empty address": [entry({"ip": ""}, connection_creation_rate=1.0)],
        "a type that there is not": [entry({"team": "a"}, producer_byte_rate=1.0)],
        "a type twice": [
            Entry(
                entity=[
                    Entry.Entity(entity_type="user", entity_name="carol"),
                    Entry.Entity(entity_type="user", entity_name="dave"),
                ],
                ops=[Entry.Op(key="producer_byte_rate", value=1.0, remove=False)],
            )
        ],
        "a key that there is not": [entry({"user": "alice"}, bogus=1.0)],
        "a key that there is not removed": [entry({"user": "alice"}, ("bogus",))],
        "a key twice": [
            Entry(
                entity=[Entry.Entity(entity_type="user", entity_name="erin")],
                ops=[
                    Entry.Op(key="producer_byte_rate", value=1.0, remove=False),
                    Entry.Op(key="producer_byte_rate", value=2.0, remove=False),
                ],
            )
        ],
        "an entity twice": [
            entry({"user": "frank"}, producer_byte_rate=1.0),
            entry({"user": "frank"}, consumer_byte_rate=2.0),
        ],
        "good and bad": [
            entry({"user": "grace"}, producer_byte_rate=1.0),
        ],
        "a good key and a bad one": [entry({"user": "henry"}, producer_byte_rate=1.0, bogus=2.0)],
        "zero": [entry({"user": "alice"}, producer_byte_rate=0.0)],
        "below zero": [entry({"user": "alice"}, request_percentage=-1.0)],
        "minus infinity": [entry({"user": "alice"}, request_percentage=-math.inf)],
        "a fraction of a byte": [entry({"user": "alice"}, consumer_byte_rate=1.5)],
        "nearly a whole byte": [entry({"user": "alice"}, consumer_byte_rate=1.0000001)],
        "a small part": [entry({"user": "ivan"}, request_percentage=1e-9)],
        "infinite bytes": [entry({"user": "judy"}, consumer_byte_rate=math.inf)],
        "an infinite part": [entry({"user": "judy"}, request_percentage=math.inf)],
        "no number of bytes": [entry({"user": "kate"}, consumer_byte_rate=math.nan)],
        "no number of the time": [entry({"user": "kate"}, request_percentage=math.nan)],
        "as many bytes as can be": [entry({"user": "leo"}, consumer_byte_rate=9.3e18)],
        "more bytes": [entry({"user": "leo"}, consumer_byte_rate=1e19)],
        "as many connections as can be": [entry({"ip": "10.0.0.2"}, connection_creation_rate=2147483647.0)],
        "more connections": [entry({"ip": "10.0.0.2"}, connection_creation_rate=2147483648.0)],
        "removed": [entry({"user": "alice"}, ("producer_byte_rate",))],
        "removed again": [entry({"user": "alice"}, ("producer_byte_rate",))],
        "removed, of nobody": [entry({"user": "nobody"}, ("producer_byte_rate",))],
        "one removed, one set": [entry({"user": "bob"}, ("producer_byte_rate",), consumer_byte_rate=3e6)],
    }
    for number, (step, entries) in enumerate(steps.items()):
        exchange.ask_each(f"{step}, only checked", altered(*entries, validate_only=True))
        exchange.ask_each(step, altered(*entries))
        exchange.create_topic(f"after-{number}")  # a broker that knows it knows what was altered before
        exchange.ask_each(f"after {step}", described())


def questions(exchange: Exchange) -> None:
    exchange.ask_each("all, strictly", described(strict=True))
    for kind, name in (("user", "alice"), ("client-id", "shop"), ("ip", "10.0.0.1")):
        for strict in (False, True):
            how = ", strictly" if strict else ""
            exchange.ask_each(f"a {kind}{how}", described((kind, EXACT, name), strict=strict))
            exchange.ask_each(f"no {kind}{how}", described((kind, EXACT, "nobody"), strict=strict))
            exchange.ask_each(f"the default {kind}{how}", described((kind, DEFAULT, None), strict=strict))
            exchange.ask_each(f"any {kind}{how}", described((kind, SPECIFIED, None), strict=strict))
    for step, components in {
        "any user and client": [("user", SPECIFIED, None), ("client-id", SPECIFIED, None)],
        "a user and any client": [("user", EXACT, "alice"), ("client-id", SPECIFIED, None)],
        "a user and a client": [("user", EXACT, "alice"), ("client-id", EXACT, "shop")],
        "any user and the default client": [("user", SPECIFIED, None), ("client-id", DEFAULT, None)],
        "both defaults": [("user", DEFAULT, None), ("client-id", DEFAULT, None)],
        "an empty name": [("user", EXACT, "")],
        "an address and a client": [("ip", SPECIFIED, None), ("client-id", SPECIFIED, None)],
        "a match below zero": [("user", -1, None)],
    }.items():
        for strict in (False, True):
            exchange.ask_each(step + (", strictly" if strict else ""), described(*components, strict=strict))


def mutations(exchange: Exchange) -> None:
    """A client that may change a partition in ten thousand seconds: its first change is more than that."""
    exchange.ask(None, altered(entry({"client-id": "slow"}, controller_mutation_rate=0.0001)), 1)
    exchange.create_topic("known")
    for version in range(2, 8):
        step = "of a slow client"
        exchange.ask(step, created(f"slow-{version}", 1), version, client_id="slow", over=exchange.connect())
    for version in (5, 6):
        step = "two of a slow client"
        request = created(f"both-{version}", 1, f"both-{version}-too", 2)
        exchange.ask(step, request, version, client_id="slow", over=exchange.connect())
    step = "only checked, of a slow client"
    checked = created("checked", 1)
    checked.validate_only = True
    exchange.ask(step, checked, 7, client_id="slow", over=exchange.connect())
    exchange.ask("a bad name of a slow client", created("a/b", 1), 7, client_id="slow", over=exchange.connect())
    for version in range(4):
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsRequest.Topic(name="known", count=version + 2, assignments=None)],
            timeout_ms=30_000,
            validate_only=False,
        )
        exchange.ask("of a slow client", request, version, client_id="slow", over=exchange.connect())
    for version in range(1, 6):
        deletion = DeleteTopicsRequest(topic_names=[f"after-{version}"], timeout_ms=30_000)
        exchange.ask("of a slow client", deletion, version, client_id="slow", over=exchange.connect())
    by_name = DeleteTopicsRequest(topics=[DeleteTopicsRequest.Topic(name="known", topic_id=NO_UUID)], timeout_ms=30_000)
    exchange.ask("of a slow client", by_name, 6, client_id="slow", over=exchange.connect())


def topics_that_are_asked_about(exchange: Exchange) -> None:
    """Topics are created because a client asks about them, which may change a partition in ten thousand seconds."""
    exchange.ask(None, altered(entry({"client-id": "asker"}, controller_mutation_rate=0.0001)), 1)
    exchange.create_topic("behind-the-quota")  # a controller that knows it knows the quota

    def ask(step: str, topic: str, client_id: str, *, may_create: bool) -> None:
        asked = MetadataRequest(topics=[MetadataRequest.Topic(name=topic)], allow_auto_topic_creation=may_create)
        exchange.ask(step, asked, 12, client_id=client_id, over=exchange.connect())

    ask("a first topic of the asker", "asked-1", "asker", may_create=True)
    exchange.wait_for_topic("asked-1")
    exchange.ask("of the asker", created("asked-2", 1), 7, client_id="asker", over=exchange.connect())
    ask("a topic beyond the asker's quota", "asked-3", "asker", may_create=True)
    exchange.create_topic("asked-4")
    ask("the same, when another topic has been created", "asked-3", "another", may_create=False)


def created(*wanted: str | int) -> CreateTopicsRequest:
    names, counts = wanted[::2], wanted[1::2]
    return CreateTopicsRequest(
        topics=[
            CreateTopicsRequest.Topic(
                name=str(name), num_partitions=int(count), replication_factor=1, assignments=[], configs=[]
            )
            for name, count in zip(names, counts, strict=True)
        ],
        timeout_ms=30_000,
    )

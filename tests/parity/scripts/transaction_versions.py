"""The feature `transaction.version`: its levels, and what clients may do at each."""

from __future__ import annotations

from protocol.messages.api_versions import ApiVersionsRequest
from protocol.messages.features import UpdateFeaturesRequest
from tests.parity.exchange import Exchange
from tests.parity.members import await_groups
from tests.parity.producers import NEW_END, OLD_END, Producer, Producers, await_transactions

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3
FEATURE = "transaction.version"
SINCE_TYPES = 1
"""From this version on an update has a type, and may only be validated; before, it allows a downgrade or not."""


def update(version: int, level: int, kind: int = UPGRADE, *, validate_only: bool = False) -> UpdateFeaturesRequest:
    change = UpdateFeaturesRequest.FeatureUpdate(
        feature=FEATURE,
        max_version_level=level,
        allow_downgrade=version < SINCE_TYPES and kind != UPGRADE,
        upgrade_type=kind if version >= SINCE_TYPES else UPGRADE,
    )
    return UpdateFeaturesRequest(feature_updates=[change], validate_only=validate_only)


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=6)
    await_transactions(exchange)
    await_groups(exchange)
    producers = Producers(exchange)
    wrong_levels(exchange)
    before = begun(producers, "begun at level 2")
    move(exchange, 1, SAFE_DOWNGRADE)
    goes_on(exchange, before, "begun at level 2")
    every_client(exchange, producers, 1)
    before = begun(producers, "begun at level 1")
    move(exchange, 0, SAFE_DOWNGRADE)
    goes_on(exchange, before, "begun at level 1")
    level_0(exchange, producers)
    before = begun(producers, "begun at level 0")
    move(exchange, 2, UPGRADE)
    goes_on(exchange, before, "begun at level 0")
    every_client(exchange, producers, 2)
    move(exchange, 0, UNSAFE_DOWNGRADE)
    move(exchange, 1, UPGRADE, version=0)
    exchange.ask("level 0, as old clients allow a downgrade", update(0, 0, SAFE_DOWNGRADE), 0)


def wrong_levels(exchange: Exchange) -> None:
    for version in range(3):
        for level, kind in ((3, UPGRADE), (1, UPGRADE), (0, UPGRADE), (2, UPGRADE), (-1, UPGRADE)):
            exchange.ask(f"level {level}", update(version, level, kind), version)
        if version < SINCE_TYPES:
            continue
        for level in (-1, 0, 1, 2, 3):
            for kind in (0, UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE, 4):
                request = update(version, level, kind, validate_only=True)
                exchange.ask(f"level {level} by an update of type {kind}, to be validated", request, version)


def move(exchange: Exchange, level: int, kind: int, *, version: int = 2) -> None:
    """Change the level, and wait until the broker knows it."""
    exchange.ask(f"to level {level}, type {kind}", update(version, level, kind), version)
    asked = ApiVersionsRequest(client_software_name="parity", client_software_version="1")
    exchange.wait_until(
        asked,
        4,
        lambda answer: (
            {feature.name: feature.max_version_level for feature in answer.finalized_features}.get(FEATURE, 0) == level
        ),
    )


def begun(producers: Producers, when: str) -> Producer:
    """A transaction in which there are two partitions and a batch."""
    return producers.new(when).add(("orders", [0, 1])).produce(version=11)


def goes_on(exchange: Exchange, producer: Producer, when: str) -> None:
    exchange.ask(f"{when}: a batch in the open partition", producer.producing(1), 12)
    exchange.ask(f"{when}: a batch in the other", producer.producing(0, partition=1), 11)
    exchange.ask(f"{when}: a partition is added", producer.adding(3, ("orders", [2])), 3)
    exchange.ask(f"{when}: the commit", producer.ending(), OLD_END)
    producer.settle()
    producer.describe(f"{when}: committed")


def every_client(exchange: Exchange, producers: Producers, level: int) -> None:
    """At levels 1 and 2 a request's version says what is done, not the level."""
    at = f"level {level}"
    producer = producers.new(at)
    exchange.ask(f"{at}: a batch adds its partition", producer.producing(0, partition=3), 12)
    exchange.ask(f"{at}: a batch of an old client does not", producer.producing(0, partition=4), 11)
    exchange.ask(f"{at}: a broker adds a partition", producer.adding(5, ("orders", [4])), 5)
    exchange.ask(f"{at}: offsets add theirs", producer.committing(5, "readers", {"orders": {0: 5}}), 5)
    end = producer.ending()
    exchange.ask(f"{at}: the commit", end, NEW_END)
    producer.settle()
    exchange.ask(f"{at}: the commit again", end, NEW_END)
    exchange.ask(f"{at}: an abort of nothing", producer.ending(False), NEW_END)
    producer.settle()
    producer.describe(f"{at}: after an abort of nothing")
    fenced(exchange, producers, at)


def fenced(exchange: Exchange, producers: Producers, at: str) -> None:
    """Whether a fenced producer gets the epoch for which it was fenced."""
    producer = producers.new(f"fenced at {at}").add()
    epoch = producer.initialising_again()
    end = producer.ending(False)
    producer.fence()
    exchange.ask(f"{at}: a fenced producer's abort", end, NEW_END)
    exchange.ask(f"{at}: a fenced producer gives its epoch", epoch, 5)
    exchange.ask(f"{at}: another gives the epoch of now", producer.initialising_again(), 5)
    producer.settle()
    producer.describe(f"{at}: after fencing")


def level_0(exchange: Exchange, producers: Producers) -> None:
    """Old clients only. Each refused request is for an id of its own, since Kafka forgets that it refused."""
    for what, version in (("a batch of a new client", 12), ("a batch of a new client by the topic's id", 13)):
        exchange.ask(f"level 0: {what}", producers.new("batch").producing(0, partition=5), version)
    for version in (5, 6):
        request = producers.new("offsets").committing(version, "readers", {"orders": {0: 5}})
        exchange.ask("level 0: offsets of a new client", request, version)
    for version in (4, 5):
        request = producers.new("adding").adding(version, ("orders", [0]))
        exchange.ask("level 0: a broker adds a partition", request, version)
    exchange.ask("level 0: an abort of nothing", producers.new("nothing").ending(False), NEW_END)
    exchange.ask("level 0: a commit of nothing", producers.new("nothing").ending(), NEW_END)
    for committed in (True, False):
        producer = producers.new("ending").add()
        exchange.ask(f"level 0: the end of a new client, {committed}", producer.ending(committed), NEW_END)
    producer = producers.new("without writing").add(("orders", [3]))
    verified = producer.adding(5, ("orders", [3]), verify_only=True)
    exchange.ask("level 0: a broker verifies a partition", verified, 5)
    exchange.ask("level 0: a broker adds what is there", producer.adding(4, ("orders", [3])), 4)
    exchange.ask("level 0: a batch of a new client in an added partition", producer.producing(partition=3), 12)
    before = producer.ending(producer_epoch=producer.epoch)
    exchange.ask("level 0: the commit of an old client", before, OLD_END)
    producer.settle()
    producer.describe("level 0: committed")
    exchange.ask("level 0: the commit again, of a new client", before, NEW_END)
    fenced(exchange, producers, "level 0")

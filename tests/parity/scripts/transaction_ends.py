"""EndTxn: the commit and the abort in every state, in the right epoch and in wrong ones, once and again."""

from protocol.errors import ErrorCode
from tests.parity.exchange import Exchange
from tests.parity.producers import NEW_END, OLD_END, STATES, Producer, Producers, await_transactions

VERSIONS = range(6)
WORDS = {True: "commit", False: "abort"}


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=3)
    await_transactions(exchange)
    producers = Producers(exchange)
    for state in STATES:
        right_epoch(exchange, producers, state)
        wrong_epochs(exchange, producers, state)
    unknown_ids(exchange, producers.in_state("Ongoing of a new client"))
    mixed_clients(exchange, producers)
    at_once(exchange, producers)
    after_a_deletion(exchange, producers)


def right_epoch(exchange: Exchange, producers: Producers, state: str) -> None:
    for committed, word in WORDS.items():
        for version in VERSIONS:
            producer = producers.in_state(state)
            request = producer.ending(committed)
            exchange.ask(f"{state}: the {word}", request, version)
            producer.settle()
            if version in (OLD_END, NEW_END):
                producer.describe(f"{state}: after the {word} in v{version}")
            exchange.ask(f"{state}: the {word} again", request, version)
            exchange.ask(f"{state}: the {word}, then the other end", producer.ending(not committed), version)
            producer.settle()


def wrong_epochs(exchange: Exchange, producers: Producers, state: str) -> None:
    """Nothing ends in another epoch, but a retry of the end that raised the epoch."""
    producer = producers.in_state(state)
    for difference in (-2, -1, 1, 2):
        for committed, word in WORDS.items():
            request = producer.ending(committed, producer_epoch=producer.epoch + difference)
            exchange.ask_each(f"{state}: the {word} in epoch E{difference:+}", request)
    for epoch in (-1, 0x7FFF, -0x8000):
        exchange.ask_each(f"{state}: the commit, its epoch {epoch}", producer.ending(producer_epoch=epoch))
    for producer_id in (producer.id + 1000, -1):
        what = "no producer" if producer_id < 0 else "another producer"
        for committed, word in WORDS.items():
            request = producer.ending(committed, producer_id=producer_id)
            exchange.ask_each(f"{state}: the {word} of {what}", request)
    producer.describe(f"{state}: after wrong ends")


def unknown_ids(exchange: Exchange, producer: Producer) -> None:
    for transactional_id in ("nope", ""):
        for committed, word in WORDS.items():
            request = producer.ending(committed, transactional_id=transactional_id)
            exchange.ask_each(f"the {word} of the id {transactional_id!r}", request)


def mixed_clients(exchange: Exchange, producers: Producers) -> None:
    """A transaction may begin as that of an old client and end as that of a new client, and the other way round."""
    for first, second in ((OLD_END, NEW_END), (NEW_END, OLD_END)):
        for committed, word in WORDS.items():
            what = f"the {word} in v{first}"
            producer = producers.new().add()
            before = producer.ending(committed)
            exchange.ask(what, before, first)
            producer.settle()
            exchange.ask(f"{what}, again in v{second}", before, second)
            exchange.ask(f"{what}, again in v{second} in the epoch of now", producer.ending(committed), second)
            producer.settle()
            producer.describe(f"{what}, then in v{second}")


def at_once(exchange: Exchange, producers: Producers) -> None:
    """The same end twice without waiting between: the second is good once the markers are written."""
    for version in (OLD_END, NEW_END):
        for committed, word in WORDS.items():
            producer = producers.in_state("Ongoing of a new client")
            request = producer.ending(committed)
            exchange.ask(f"the {word}, to be retried, in v{version}", request, version)
            exchange.ask_until(
                f"the {word} retried at once in v{version}",
                request,
                version,
                lambda answer: answer.error_code != ErrorCode.CONCURRENT_TRANSACTIONS,
            )
            producer.settle()
            producer.describe(f"the {word} was retried at once in v{version}")


def after_a_deletion(exchange: Exchange, producers: Producers) -> None:
    """Markers are written where there still is a partition."""
    for version in (OLD_END, NEW_END):
        topic = f"gone-{version}"
        exchange.create_topic(topic)
        producer = producers.new().add((topic, [0]), ("orders", [0]))
        exchange.delete_topic(topic)
        exchange.ask(f"a topic is gone, in v{version}", producer.ending(), version)
        producer.settle()
        producer.describe(f"a topic was gone, in v{version}")

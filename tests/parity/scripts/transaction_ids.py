"""InitProducerId with a transactional id: producer ids, epochs, fencing, and what becomes of the open transaction."""

from protocol.messages.init_producer_id import InitProducerIdRequest
from tests.parity.exchange import Exchange
from tests.parity.producers import OPEN, STATES, Producer, Producers, await_transactions

SINCE_EPOCHS_ARE_GIVEN = 3
VERSIONS = range(6)
HIGHEST_TIMEOUT_MS = 900_000


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=3)
    await_transactions(exchange)
    producers = Producers(exchange)
    new_ids(exchange)
    timeouts(exchange, producers)
    for state in STATES:
        if state in OPEN:
            fencing(exchange, producers, state)
        else:
            next_epochs(exchange, producers, state)
    given_epochs(exchange, producers)
    retried(exchange, producers)
    fenced_producers(exchange, producers)


def of_new_id(what: str, version: int, **fields: int) -> InitProducerIdRequest:
    own = {"transactional_id": f"new, {what}, v{version}", "transaction_timeout_ms": 60_000}
    return InitProducerIdRequest(**{**own, **fields})


def new_ids(exchange: Exchange) -> None:
    exchange.ask_each("a new id", lambda version: of_new_id("", version))
    exchange.ask_each("an id of other letters", lambda version: of_new_id("größe", version))
    exchange.ask_each("a long id", lambda version: of_new_id("x" * 1000, version))
    for timeout in (0, -1, 1, HIGHEST_TIMEOUT_MS, HIGHEST_TIMEOUT_MS + 1, 0x7FFF_FFFF, -0x8000_0000):
        exchange.ask_each(
            f"a new id with a timeout of {timeout}",
            lambda version, timeout=timeout: of_new_id(f"{timeout} ms", version, transaction_timeout_ms=timeout),
        )
    for producer_id, epoch in ((5, -1), (-1, 5), (5, 5), (0, 0), (-2, -2), (-2, -1), (-1, -2), (5, -2), (5, 0x7FFF)):
        given = {"producer_id": producer_id, "producer_epoch": epoch}
        exchange.ask_each(
            f"a new id with producer {producer_id} and epoch {epoch}",
            lambda version, given=given: of_new_id(str(given), version, **given),
            since=SINCE_EPOCHS_ARE_GIVEN,
        )
    exchange.ask_each(
        "a new id with a timeout of 0 and an epoch without a producer",
        lambda version: of_new_id("all wrong", version, transaction_timeout_ms=0, producer_epoch=5),
        since=SINCE_EPOCHS_ARE_GIVEN,
    )


def timeouts(exchange: Exchange, producers: Producers) -> None:
    """The timeout is that of the newest good request."""
    producer = producers.new("timeouts")
    for timeout in (1, HIGHEST_TIMEOUT_MS, HIGHEST_TIMEOUT_MS + 1, 0):
        exchange.ask_each(f"a timeout of {timeout}", producer.initialising(transaction_timeout_ms=timeout))
        producer.describe(f"asked with a timeout of {timeout}")
    producer.settle()
    given = producer.initialising_again(transaction_timeout_ms=5000)
    for what in ("the epoch", "the epoch again, as a retry"):
        exchange.ask(f"a timeout of 5000 and {what}", given, 5)
        given.transaction_timeout_ms += 1
        producer.describe(f"a timeout of 5000 and {what}")
    for state in ("Empty", *OPEN):
        busy = producers.in_state(state)
        wrong = busy.initialising(transaction_timeout_ms=0)
        exchange.ask_each(f"{state}: a timeout of 0", wrong)
        wrong = busy.initialising(transaction_timeout_ms=0, producer_id=busy.id + 1, producer_epoch=0)
        exchange.ask_each(
            f"{state}: a timeout of 0 and the id of another producer", wrong, since=SINCE_EPOCHS_ARE_GIVEN
        )
        busy.describe(f"{state}: after a timeout of 0")


def next_epochs(exchange: Exchange, producers: Producers, state: str) -> None:
    """Where no transaction is open, every request gets an epoch."""
    producer = producers.in_state(state)
    exchange.ask_each(f"{state}: the next epoch", producer.initialising())
    producer.describe(f"{state}: after six epochs")
    for version in range(SINCE_EPOCHS_ARE_GIVEN, 6):
        producer = producers.in_state(state)
        epoch = producer.epoch
        exchange.ask(f"{state}: its epoch is given", producer.initialising_again(), version)
        exchange.ask(f"{state}: its epoch is given once more", producer.initialising_again(), version)
        producer.settle()
        exchange.ask(f"{state}: the epoch after is given", producer.initialising_again(), version)
        exchange.ask(f"{state}: two epochs before", producer.initialising_again(producer_epoch=epoch), version)
    producer = producers.in_state(state)
    epoch = producer.initialising_again(producer_epoch=producer.epoch - 1)
    exchange.ask(f"{state}: the epoch before is given", epoch, 5)
    producer.describe(f"{state}: after the epoch before was given")
    wrong_producers(exchange, producers.in_state(state), state)


def wrong_producers(exchange: Exchange, producer: Producer, state: str) -> None:
    """The id of another producer, and half of an identity; nothing comes of them in any state."""
    for what, fields in (
        ("the id of another producer", {"producer_id": producer.id + 1000}),
        ("the id of another producer in its last epoch", {"producer_id": producer.id + 1000, "producer_epoch": 32766}),
        ("producer -2", {"producer_id": -2}),
        ("no epoch", {"producer_epoch": -1}),
        ("no producer id", {"producer_id": -1}),
    ):
        asked = producer.initialising_again(**fields)
        exchange.ask_each(f"{state}: {what}", asked, since=SINCE_EPOCHS_ARE_GIVEN)
    producer.describe(f"{state}: after what is wrong")


def given_epochs(exchange: Exchange, producers: Producers) -> None:
    """Epochs that are neither the epoch of now nor the epoch before."""
    for state in STATES:
        if state in OPEN:
            continue
        producer = producers.in_state(state)
        for epoch in (producer.epoch - 2, producer.epoch + 1, producer.epoch + 5, 0x7FFF, -2):
            exchange.ask_each(
                f"{state}: epoch {epoch} where it is {producer.epoch}",
                producer.initialising_again(producer_epoch=epoch),
                since=SINCE_EPOCHS_ARE_GIVEN,
            )
        producer.describe(f"{state}: after wrong epochs")


def retried(exchange: Exchange, producers: Producers) -> None:
    """A retry with the epoch before is good until a request that gave no epoch got the next."""
    producer = producers.new("retried")
    first = producer.initialising_again()
    exchange.ask("the first epoch is given", first, 5)
    exchange.ask("the first epoch is given again", first, 5)
    exchange.ask("no epoch is given", producer.initialising(), 5)
    exchange.ask("the first epoch is given too late", first, 5)
    producer.settle()
    before = producer.initialising_again(producer_epoch=producer.epoch - 1)
    exchange.ask("the epoch before, which came without a given epoch", before, 5)
    exchange.ask("the epoch of now", producer.initialising_again(), 5)


def fencing(exchange: Exchange, producers: Producers, state: str) -> None:
    """An open transaction is aborted first."""
    for version in VERSIONS:
        producer = producers.in_state(state)
        exchange.ask(f"{state}: another producer", producer.initialising(), version)
        producer.settle()
        if version == VERSIONS[-1]:
            producer.describe(f"{state}: another producer has come")
        exchange.ask(f"{state}: the other producer asks again", producer.initialising(), version)
    for version in range(SINCE_EPOCHS_ARE_GIVEN, 6):
        for difference in (0, -1, 1):
            what = f"{state}: epoch {difference:+}"
            producer = producers.in_state(state)
            given = producer.initialising_again(producer_epoch=producer.epoch + difference)
            exchange.ask(f"{what} is given", given, version)
            producer.settle()
            exchange.ask(f"{what} is given again", given, version)
            exchange.ask(f"{what} is given a third time", given, version)
            exchange.ask(f"{what} was given, and none now", producer.initialising(), version)
    wrong_producers(exchange, producers.in_state(state), state)


def fenced_producers(exchange: Exchange, producers: Producers) -> None:
    """What the producer of the old epoch is answered."""
    for state in OPEN:
        producer = producers.in_state(state)
        id_, epoch = producer.id, producer.epoch
        for what in ("aborted", "aborted, and a new producer came"):
            if what == "aborted":
                producer.fence()
            else:
                producer.initialise()
            producer.id, producer.epoch = id_, epoch
            of = f"{state}, {what}"
            exchange.ask_each(f"{of}: a partition", lambda v, p=producer: p.adding(v, ("orders", [0])))
            exchange.ask_each(f"{of}: another partition", lambda v, p=producer: p.adding(v, ("orders", [1])))
            exchange.ask_each(f"{of}: a group", producer.adding_group("readers"))
            exchange.ask_each(f"{of}: offsets", lambda v, p=producer: p.committing(v, "readers", {"orders": {0: 5}}))
            exchange.ask_each(f"{of}: a batch", producer.producing(1), since=3)
            exchange.ask_each(f"{of}: a batch in another partition", producer.producing(0, partition=1), since=3)
            exchange.ask_each(f"{of}: the commit", producer.ending())
            exchange.ask_each(f"{of}: the abort", producer.ending(False))
            producer.describe(of)

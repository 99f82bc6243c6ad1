"""ListTransactions and DescribeTransactions of transactions in every state in which they stay."""

from __future__ import annotations

from typing import Any

from protocol.messages.transactions import ListTransactionsRequest
from tests.parity.exchange import Exchange
from tests.parity.producers import Producer, await_transactions, described

SINCE_DURATIONS, SINCE_PATTERNS = 1, 2
STATES = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort", "PrepareEpochFence")


def listed(**fields: Any) -> ListTransactionsRequest:
    return ListTransactionsRequest(**{"state_filters": [], "producer_id_filters": [], **fields})


def run(exchange: Exchange) -> None:
    exchange.create_topic("orders", partitions=3)
    exchange.create_topic("payments")
    await_transactions(exchange)
    exchange.ask_each("nothing yet", listed())
    producers = {name: Producer(exchange, name).initialise() for name in ("shop-1", "shop-2", "größe")}
    producers["committed"] = Producer(exchange, "committed").initialise().add(("orders", [0])).end(version=4)
    producers["aborted"] = Producer(exchange, "aborted").initialise().produce().end(False)
    producers["open"] = Producer(exchange, "open", timeout_ms=900_000).initialise()
    producers["open"].add(("orders", [2, 0]), ("payments", [0])).produce(partition=1)
    filters(exchange, producers)
    patterns(exchange)
    names = ["committed", "aborted", "open", "nope", "", "shop-1", "committed", "größe"]
    exchange.ask("several", described(*names), 0)
    exchange.ask("none", described(), 0)


def filters(exchange: Exchange, producers: dict[str, Producer]) -> None:
    ids = {name: producer.id for name, producer in producers.items()}
    exchange.ask_each("all", listed())
    for state in (*STATES, "Dead", "", "ongoing", "EMPTY", "COMPLETE_COMMIT", "Bogus"):
        exchange.ask_each(f"in the state {state!r}", listed(state_filters=[state]))
    exchange.ask_each(
        "in several states, some unknown", listed(state_filters=["Ongoing", "Bogus", "Empty", "nope", "Bogus"])
    )
    exchange.ask_each("a state twice", listed(state_filters=["Ongoing", "Ongoing"]))
    exchange.ask_each("of a producer", listed(producer_id_filters=[ids["open"]]))
    several = [ids["committed"], ids["open"], 99_999, -1, ids["open"]]
    exchange.ask_each("of several producers", listed(producer_id_filters=several))
    exchange.ask_each("of an unknown producer", listed(producer_id_filters=[99_999]))
    exchange.ask_each("of a producer in its state", listed(producer_id_filters=several, state_filters=["Ongoing"]))
    exchange.ask_each("of a producer in another state", listed(producer_id_filters=several, state_filters=["Empty"]))
    for duration in (-1, -2, -(1 << 63), 600_000, (1 << 63) - 1):
        exchange.ask_each(
            f"that lasts for more than {duration} ms", listed(duration_filter=duration), since=SINCE_DURATIONS
        )
    open_for_long = listed(duration_filter=600_000, state_filters=["Ongoing", "Empty"])
    exchange.ask_each("that lasts for long, in a state", open_for_long, since=SINCE_DURATIONS)
    exchange.wait_until(listed(duration_filter=5), 2, lambda answer: len(answer.transaction_states) == len(producers))
    exchange.ask_each("that lasts for more than 5 ms", listed(duration_filter=5), since=SINCE_DURATIONS)


def patterns(exchange: Exchange) -> None:
    whole = (
        None,
        "",
        "shop",
        "shop-1",
        "shop-.*",
        ".*op.*",
        "shop-[12]",
        "^shop-1$",
        "shop-1\n",
        "a|open",
        "größe",
        ".",
        "x*",
    )
    syntax = (
        *(
            "(?i)SHOP-1",
            "(?i:SHOP)-1",
            r"\Qopen\E",
            "(?<name>open)",
            "(?P<name>open)",
            "shop-\\d",
            "o{1}pen",
            "gr.{2}e",
        ),
        *(
            r"\p{L}+",
            r"\pL+-\pN",
            "[[:alpha:]]+",
            r"shop\b-1",
            r"\x6fpen",
            r"\Aopen\z",
            "(o+p*)+en$",
            "o(?:p|)e*?n",
            "[]o]pen",
        ),
    )
    for pattern in (*whole, *syntax):
        exchange.ask(f"like {pattern!r}", listed(transactional_id_pattern=pattern), SINCE_PATTERNS)
    java_only = ("(?=open).*", "(?!shop).*", r"(o)pen\1", "(?>open)", "o*+pen", r"open\Z", "(?#comment)open", r"\copen")
    for pattern in (
        "(",
        "*",
        "[",
        "a{2,1}",
        "\\",
        "a)",
        "a**",
        "a{1001}",
        "(?<na me>a)",
        r"\pX",
        "[z-a]",
        "(?x)",
        *java_only,
    ):
        exchange.ask(f"like {pattern!r}, which is none", listed(transactional_id_pattern=pattern), SINCE_PATTERNS)
    shops = listed(transactional_id_pattern="shop.*", state_filters=["Ongoing", "Empty", "bogus"])
    exchange.ask("like a pattern, in some states", shops, SINCE_PATTERNS)
    wrong = listed(transactional_id_pattern="(", state_filters=["bogus"])
    exchange.ask("like no pattern, in an unknown state", wrong, SINCE_PATTERNS)

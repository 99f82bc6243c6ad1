"""ShareFetch and ShareAcknowledge: what members of share groups get, what they may say of it, and what is refused.

No member joins a group here: a leader of partitions asks nobody who is a member. The states of the groups are made as
the group coordinator would have them made.
"""

from __future__ import annotations

from typing import Any

from dev.waiting import until
from protocol.messages.configs import IncrementalAlterConfigsRequest
from protocol.messages.delete_records import DeleteRecordsRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.share_fetch import (
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from protocol.messages.share_group_state import InitializeShareGroupStateRequest
from tests.parity.connection import Connection
from tests.parity.exchange import Exchange
from tests.support.batches import produced, records
from tests.support.requests import produce_request

SETTINGS = {"group.share.max.share.sessions": "200", "group.share.min.record.lock.duration.ms": "1000"}

UNKNOWN = bytes.fromhex("00112233445566778899aabbccddeeff")
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
PATIENT_MS = 3_000
GROUP = 32

Said = dict[tuple[bytes, int], list[tuple[int, ...]]]


class Member:
    """A member on a connection of its own; the group's state begins at offset 0 of each partition."""

    def __init__(self, exchange: Exchange, about: str, group_id: str, member_id: str, version: int) -> None:
        """``about``: what the names of the member's steps begin with."""
        self.exchange = exchange
        self.about = about
        self.group_id = group_id
        self.member_id = member_id
        self.version = version
        self.epoch = 0
        self.connection: Connection = exchange.connect()

    def fetch(
        self, step: str | None, *named: tuple[bytes, int], said: Said | None = None, **fields: Any
    ) -> ShareFetchResponse:
        said = said or {}
        of_topic, of_partition = ShareFetchRequest.Topic, ShareFetchRequest.Topic.Partition
        request = ShareFetchRequest(
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "share_session_epoch": self.epoch,
                "max_wait_ms": 0,
                "min_bytes": 1,
                "max_bytes": 1 << 20,
                "max_records": 500,
                "batch_size": 500,
                "topics": [
                    of_topic(
                        topic_id=topic_id,
                        partitions=[
                            of_partition(
                                partition_index=index,
                                acknowledgement_batches=[
                                    of_partition.AcknowledgementBatch(
                                        first_offset=first, last_offset=last, acknowledge_types=types
                                    )
                                    for first, last, *types in said.get((topic_id, index), ())
                                ],
                            )
                        ],
                    )
                    for topic_id, index in dict.fromkeys([*named, *said])
                ],
                "forgotten_topics_data": [],
                **fields,
            }
        )
        answer: ShareFetchResponse = self.exchange.ask(self._named(step), request, self.version, over=self.connection)
        self._goes_on(answer, request.share_session_epoch)
        return answer

    def acknowledge(self, step: str | None, said: Said, **fields: Any) -> ShareAcknowledgeResponse:
        of_topic, of_partition = ShareAcknowledgeRequest.Topic, ShareAcknowledgeRequest.Topic.Partition
        request = ShareAcknowledgeRequest(
            **{
                "group_id": self.group_id,
                "member_id": self.member_id,
                "share_session_epoch": self.epoch,
                "topics": [
                    of_topic(
                        topic_id=topic_id,
                        partitions=[
                            of_partition(
                                partition_index=index,
                                acknowledgement_batches=[
                                    of_partition.AcknowledgementBatch(
                                        first_offset=first, last_offset=last, acknowledge_types=types
                                    )
                                    for first, last, *types in batches
                                ],
                            )
                        ],
                    )
                    for (topic_id, index), batches in said.items()
                ],
                **fields,
            }
        )
        answer: ShareAcknowledgeResponse = self.exchange.ask(
            self._named(step), request, self.version, over=self.connection
        )
        self._goes_on(answer, request.share_session_epoch)
        return answer

    def _named(self, step: str | None) -> str | None:
        return None if step is None else f"{self.about}: {step}"

    def _goes_on(self, answer: Any, epoch: int) -> None:
        if answer is not None and not answer.error_code and epoch == self.epoch:
            self.epoch += 1


def run(exchange: Exchange) -> None:
    key = "workers:AAAAAAAAAAAAAAAAAAAAAQ:0"
    find = FindCoordinatorRequest(key="", key_type=2, coordinator_keys=[key])
    exchange.wait_until(find, 6, lambda answer: answer.coordinators[0].error_code == 0)
    for version in (1, 2):
        sessions(exchange, version)
        acquiring(exchange, version)
        acknowledging(exchange, version)
        acknowledging_in_vain(exchange, version)
        piggy_backed(exchange, version)
        without_a_state(exchange, version)
    limits_of_records(exchange)
    renewing(exchange)
    odd_numbers(exchange)
    for version in (1, 2):
        fading_away(exchange, version)


def jobs(exchange: Exchange, name: str, *sizes: int, group_id: str = "workers", partitions: int = 1) -> bytes:
    """A topic with batches of so many records in partition 0, and the state of a group in it."""
    topic_id = exchange.create_topic(name, partitions=partitions)
    of_topic = InitializeShareGroupStateRequest.Topic
    indexes = [of_topic.Partition(partition=index, state_epoch=1, start_offset=0) for index in range(partitions)]
    request = InitializeShareGroupStateRequest(
        group_id=group_id, topics=[of_topic(topic_id=topic_id, partitions=indexes)]
    )
    exchange.wait_until(
        request, 0, lambda answer: all(not one.error_code for one in answer.results[0].partitions), patience_s=20
    )
    for size in sizes:
        exchange.ask(None, produce_request(name, produced(records(size))), 9)
    return topic_id


def configure(exchange: Exchange, group_id: str, **configs: str) -> None:
    of_request = IncrementalAlterConfigsRequest.Resource
    changes = [
        of_request.Config(name=key.replace("_", "."), config_operation=0, value=value) for key, value in configs.items()
    ]
    resource = of_request(resource_type=GROUP, resource_name=group_id, configs=changes)
    exchange.ask(None, IncrementalAlterConfigsRequest(resources=[resource], validate_only=False), 1)


def sessions(exchange: Exchange, version: int) -> None:
    topic_id = jobs(exchange, f"sessions-{version}", 1, partitions=2)
    anna = Member(exchange, "sessions", "workers", f"anna-{version}", version)
    for epoch in (1, 7, -1, -2, 0x7FFF_FFFF):
        anna.fetch(f"epoch {epoch} without a session", (topic_id, 0), share_session_epoch=epoch)
        anna.acknowledge(f"epoch {epoch} without a session", {}, share_session_epoch=epoch)
    anna.acknowledge("epoch 0", {})
    anna.fetch("acknowledgements in the first fetch", said={(topic_id, 0): [(0, 0, ACCEPT)]})
    for member_id in (None, "", "x" * 37):
        anna.fetch(f"member {member_id}", (topic_id, 0), member_id=member_id)
        anna.acknowledge(f"member {member_id}", {}, member_id=member_id)
    anna.fetch("no group", (topic_id, 0), group_id=None)
    anna.acknowledge("no group", {}, group_id=None)
    anna.fetch("the first fetch", (topic_id, 0), max_wait_ms=PATIENT_MS)
    for epoch in (2, 7, -2, 0x7FFF_FFFF):
        anna.fetch(f"epoch {epoch} instead of 1", share_session_epoch=epoch)
        anna.acknowledge(f"epoch {epoch} instead of 1", {}, share_session_epoch=epoch)
    anna.fetch("the second fetch")
    anna.fetch("a partition more", (topic_id, 1), max_wait_ms=500)
    anna.fetch("without news")
    forgotten = ShareFetchRequest.ForgottenTopicsData
    anna.fetch("forgetting", forgotten_topics_data=[forgotten(topic_id=topic_id, partitions=[1, 5])])
    anna.fetch("forgetting what is unknown", forgotten_topics_data=[forgotten(topic_id=UNKNOWN, partitions=[0])])
    anna.acknowledge("nothing to say", {})
    anna.fetch("what does not exist", (UNKNOWN, 0), (topic_id, 2), (topic_id, -1))
    anna.fetch("what does not exist, again")
    anna.fetch("the last fetch", share_session_epoch=-1)
    anna.fetch("the last fetch again", share_session_epoch=-1)
    anna.epoch = 0
    anna.fetch("a new session", (topic_id, 0), max_wait_ms=PATIENT_MS)
    anna.acknowledge("the last request", {(topic_id, 0): [(0, 0, ACCEPT)]}, share_session_epoch=-1)
    anna.acknowledge("the last request again", {}, share_session_epoch=-1)


def acquiring(exchange: Exchange, version: int) -> None:
    topic_id = jobs(exchange, f"acquiring-{version}", 3, 3, 3, 10, 1)
    anna = Member(exchange, "acquiring", "workers", f"anna-{version}", version)
    bert = Member(exchange, "acquiring", "workers", f"bert-{version}", version)
    anna.fetch("1 record of batches of 3", (topic_id, 0), max_records=1, max_wait_ms=PATIENT_MS)
    bert.fetch("4 records of batches of 3", (topic_id, 0), max_records=4)
    anna.fetch("everything that is left, in batches of 5", batch_size=5)
    bert.fetch("when nothing is left")
    anna.acknowledge(
        "some are released", {(topic_id, 0): [(0, 1, RELEASE), (2, 2, ACCEPT), (9, 12, RELEASE), (15, 15, RELEASE)]}
    )
    bert.fetch("what was released")
    anna.fetch("nothing else")
    bert.acknowledge("again", {(topic_id, 0): [(0, 1, RELEASE), (9, 12, ACCEPT), (15, 15, RELEASE)]})
    anna.fetch("2 records", max_records=2)
    anna.fetch("the rest", max_records=2)
    for nothing in ({"max_records": 0}, {"max_bytes": 0}, {"max_records": -1}):
        bert.fetch(f"a fetch of nothing, {nothing}", **nothing)


def acknowledging(exchange: Exchange, version: int) -> None:
    topic_id = jobs(exchange, f"acknowledging-{version}", 10, 10)
    anna = Member(exchange, "acknowledging", "workers", f"anna-{version}", version)
    anna.fetch("20 records", (topic_id, 0), max_wait_ms=PATIENT_MS, batch_size=10)
    of = (topic_id, 0)
    anna.acknowledge("one by one", {of: [(0, 3, ACCEPT, RELEASE, REJECT, GAP)]})
    anna.acknowledge("several", {of: [(4, 5, ACCEPT), (8, 9, RELEASE)]})
    anna.acknowledge("what was said", {of: [(4, 5, ACCEPT)]})
    anna.acknowledge("what was released", {of: [(8, 8, ACCEPT)]})
    anna.acknowledge("good and bad", {of: [(6, 6, ACCEPT), (0, 0, ACCEPT)]})
    anna.acknowledge("the good alone", {of: [(6, 7, ACCEPT)]})
    anna.acknowledge("a whole batch", {of: [(10, 19, ACCEPT)]})
    anna.acknowledge("a whole batch again", {of: [(10, 19, ACCEPT)]})
    anna.fetch("the rest")
    anna.acknowledge("below the start as well", {of: [(0, 1, ACCEPT)]})
    anna.acknowledge("everything", {of: [(8, 9, ACCEPT)]})
    anna.acknowledge("what was released first", {of: [(1, 1, ACCEPT)]})
    anna.acknowledge("all is done", {of: [(0, 19, ACCEPT)]})
    anna.acknowledge("behind all", {of: [(20, 25, ACCEPT)]})


def acknowledging_in_vain(exchange: Exchange, version: int) -> None:
    topic_id = jobs(exchange, f"in-vain-{version}", 5, 5, partitions=2)
    anna = Member(exchange, "acknowledging in vain", "workers", f"anna-{version}", version)
    bert = Member(exchange, "acknowledging in vain", "workers", f"bert-{version}", version)
    anna.fetch("5 records", (topic_id, 0), max_wait_ms=PATIENT_MS, max_records=5)
    bert.fetch("5 more", (topic_id, 0), max_wait_ms=PATIENT_MS)
    of = (topic_id, 0)
    for what, said in (
        ("another's", [(5, 9, ACCEPT)]),
        ("one's own and another's", [(0, 9, ACCEPT)]),
        ("behind the window", [(10, 10, ACCEPT)]),
        ("into what is behind the window", [(3, 12, ACCEPT)]),
        ("backwards", [(3, 2, ACCEPT)]),
        ("out of order", [(3, 4, ACCEPT), (0, 1, ACCEPT)]),
        ("overlapping", [(0, 2, ACCEPT), (2, 4, ACCEPT)]),
        ("too few types", [(0, 4, ACCEPT, ACCEPT)]),
        ("too many types", [(0, 0, ACCEPT, ACCEPT)]),
        ("no types", [(0, 4)]),
        ("type 5", [(0, 4, 5)]),
        ("type -1", [(0, 4, -1)]),
        ("a renewal", [(0, 4, RENEW)]),
        ("negative offsets", [(-5, -1, ACCEPT)]),
        ("from below zero on", [(-1, 4, ACCEPT)]),
        ("nothing", []),
    ):
        anna.acknowledge(what, {of: said})
    anna.acknowledge("of an unknown topic", {(UNKNOWN, 0): [(0, 0, ACCEPT)]})
    anna.acknowledge("of an unknown partition", {(topic_id, 7): [(0, 0, ACCEPT)]})
    anna.acknowledge("of a partition that nobody has fetched", {(topic_id, 1): [(0, 0, ACCEPT)]})
    anna.acknowledge(
        "of several partitions", {of: [(0, 1, ACCEPT)], (topic_id, 1): [(0, 0, ACCEPT)], (UNKNOWN, 0): [(0, 0, ACCEPT)]}
    )
    carl = Member(exchange, "acknowledging in vain", "workers", f"carl-{version}", version)
    carl.fetch("a member that holds nothing", (topic_id, 1), max_wait_ms=500)
    carl.acknowledge("of a partition outside of the session", {of: [(2, 4, ACCEPT)]})


def piggy_backed(exchange: Exchange, version: int) -> None:
    topic_id = jobs(exchange, f"piggy-backed-{version}", 2, 2, 2, partitions=2)
    anna = Member(exchange, "piggy backed", "workers", f"anna-{version}", version)
    of = (topic_id, 0)
    anna.fetch("2 records", of, max_wait_ms=PATIENT_MS, max_records=2)
    anna.fetch("2 more, and the first are accepted", said={of: [(0, 1, ACCEPT)]}, max_records=2)
    anna.fetch("nothing more, and the others are accepted", said={of: [(2, 3, ACCEPT)]}, max_records=0)
    anna.fetch("what was accepted is accepted again", said={of: [(2, 3, ACCEPT)]})
    anna.fetch("of what does not exist", said={(UNKNOWN, 0): [(0, 0, ACCEPT)], (topic_id, 9): [(0, 0, ACCEPT)]})
    anna.fetch("of a malformed kind", said={of: [(5, 4, ACCEPT)]})
    anna.fetch("of several", said={of: [(4, 5, REJECT)], (topic_id, 1): [(0, 0, ACCEPT)]})
    anna.fetch("at the end", said={of: [(4, 5, ACCEPT)]}, share_session_epoch=-1)


def fading_away(exchange: Exchange, version: int) -> None:
    group_id = f"short-{version}"
    configure(exchange, group_id, share_record_lock_duration_ms="1000", share_delivery_count_limit="2")
    topic_id = jobs(exchange, f"fading-{version}", 2, 3, group_id=group_id)
    anna = Member(exchange, "fading away", group_id, f"anna-{version}", version)
    of = (topic_id, 0)
    anna.fetch("once", of, max_wait_ms=PATIENT_MS)
    exchange.hold_time()
    exchange.pass_time(1_000)
    anna.fetch("twice", max_wait_ms=PATIENT_MS)
    anna.acknowledge("the last one is released, too often", {of: [(4, 4, RELEASE)]})
    anna.acknowledge("what was released too often", {of: [(4, 4, ACCEPT)]})
    exchange.pass_time(1_000)
    exchange.ask(None, produce_request(f"fading-{version}", produced(records(1))), 9)
    anna.fetch("never again", max_wait_ms=PATIENT_MS)
    anna.acknowledge("accepted", {of: [(5, 5, ACCEPT)]})
    topic_id = jobs(exchange, f"deleted-{version}", 2, 2, 2)
    bert = Member(exchange, "fading away", "workers", f"bert-{version}", version)
    of = (topic_id, 0)
    bert.fetch("before records are deleted", of, max_wait_ms=PATIENT_MS)
    bert.acknowledge("released before that", {of: [(0, 5, RELEASE)]})
    gone = DeleteRecordsRequest.Topic.Partition(partition_index=0, offset=3)
    topic = DeleteRecordsRequest.Topic(name=f"deleted-{version}", partitions=[gone])
    exchange.ask(None, DeleteRecordsRequest(topics=[topic], timeout_ms=10_000), 2)
    bert.fetch("after records are deleted")
    bert.fetch("after records are deleted, again")
    bert.acknowledge("of deleted records", {of: [(0, 5, ACCEPT)]})
    exchange.delete_topic(f"deleted-{version}")
    bert.fetch("of a deleted topic")
    bert.fetch("of a deleted topic, again")
    bert.acknowledge("of a deleted topic", {of: [(4, 5, ACCEPT)]})


def without_a_state(exchange: Exchange, version: int) -> None:
    topic_id = exchange.create_topic(f"no-state-{version}")
    anna = Member(exchange, "without a state", "nobody", f"anna-{version}", version)
    anna.fetch(None, (topic_id, 0), max_wait_ms=500)
    anna.fetch("a group without a state", max_wait_ms=500)


def limits_of_records(exchange: Exchange) -> None:
    topic_id = jobs(exchange, "strict", 10, 10)
    anna = Member(exchange, "limits of records", "workers", "anna", 2)
    bert = Member(exchange, "limits of records", "workers", "bert", 2)
    strict = {"share_acquire_mode": 1}
    anna.fetch("3 records, strictly", (topic_id, 0), max_records=3, max_wait_ms=PATIENT_MS, **strict)
    bert.fetch("4 records, strictly", (topic_id, 0), max_records=4, **strict)
    anna.fetch("5 records, strictly", max_records=5, **strict)
    bert.acknowledge("2 are released", {(topic_id, 0): [(4, 5, RELEASE)]})
    anna.fetch("3 records, 2 of them released", max_records=3, **strict)
    anna.fetch("2 records, as it comes", max_records=2)
    bert.fetch("an unknown mode", share_acquire_mode=2)
    bert.fetch("another unknown mode", share_acquire_mode=-1)


def renewing(exchange: Exchange) -> None:
    topic_id = jobs(exchange, "renewing", 4)
    anna = Member(exchange, "renewing", "workers", "anna", 2)
    of = (topic_id, 0)
    nothing = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
    anna.fetch("4 records to renew", of, max_wait_ms=PATIENT_MS)
    for name in nothing:
        anna.fetch(f"a renewal with {name}", said={of: [(0, 3, RENEW)]}, is_renew_ack=True, **{**nothing, name: 1})
    anna.fetch("a renewal", said={of: [(0, 3, RENEW)]}, is_renew_ack=True, **nothing)
    anna.fetch("a renewal of nothing", is_renew_ack=True, **nothing)
    anna.acknowledge("a renewal", {of: [(0, 1, RENEW, ACCEPT)]}, is_renew_ack=True)
    anna.acknowledge("a renewal of what is accepted", {of: [(1, 1, RENEW)]}, is_renew_ack=True)
    anna.acknowledge("an acceptance as a renewal", {of: [(0, 0, ACCEPT)]}, is_renew_ack=True)
    configure(exchange, "workers", share_renew_acknowledge_enable="false")

    def is_in_force() -> bool:
        [topic] = anna.acknowledge(None, {of: [(3, 3, RENEW)]}, is_renew_ack=True).responses
        return bool(topic.partitions[0].error_code)

    until(is_in_force, "a group that does not renew")
    anna.acknowledge("a renewal that the group does not have", {of: [(2, 2, RENEW)]}, is_renew_ack=True)


def odd_numbers(exchange: Exchange) -> None:
    topic_id = jobs(exchange, "odd", 2, 2, 2)
    anna = Member(exchange, "odd numbers", "workers", "anna", 2)
    anna.fetch("before odd numbers", (topic_id, 0), max_wait_ms=PATIENT_MS, max_records=2)
    anna.fetch("1 byte", max_bytes=1, max_records=1)
    anna.fetch("at least no bytes", min_bytes=0, max_wait_ms=100)
    anna.fetch("a negative wait", max_wait_ms=-1)

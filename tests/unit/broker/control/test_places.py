"""Which group or transactional id a request is about, whatever its API calls it."""

from __future__ import annotations

from typing import Any

import pytest

from broker.control.places import Coordinated, coordinated_in
from broker.metadata.topic_rules import CONSUMER_OFFSETS, TRANSACTION_STATE
from protocol.messages.committed_offsets import OffsetFetchRequest
from protocol.messages.find_coordinator import FindCoordinatorRequest
from protocol.messages.group_membership import HeartbeatRequest
from protocol.messages.groups import DeleteGroupsRequest, DescribeGroupsRequest
from protocol.messages.metadata import MetadataRequest
from protocol.messages.transactions import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    TxnOffsetCommitRequest,
)
from tests.support.requests import produce_request

GROUP = Coordinated(CONSUMER_OFFSETS, "readers")
TRANSACTION = Coordinated(TRANSACTION_STATE, "shop")
PRODUCER: dict[str, Any] = {"producer_id": 1, "producer_epoch": 0}


@pytest.mark.parametrize(
    ("request_", "about"),
    [
        (HeartbeatRequest(group_id="readers", generation_id=1, member_id="a"), [GROUP]),
        (OffsetFetchRequest(group_id="readers"), [GROUP]),
        (OffsetFetchRequest(groups=[OffsetFetchRequest.Group(group_id="readers", topics=None)]), [GROUP]),
        (DescribeGroupsRequest(groups=["readers"]), [GROUP]),
        (DeleteGroupsRequest(groups_names=["readers"]), [GROUP]),
        (FindCoordinatorRequest(key="readers"), [GROUP]),
        (FindCoordinatorRequest(coordinator_keys=["shop"], key_type=1), [TRANSACTION]),
        (FindCoordinatorRequest(coordinator_keys=["shop"], key_type=7), []),
        (AddPartitionsToTxnRequest(v3_and_below_transactional_id="shop"), [TRANSACTION]),
        (produce_request("orders", b"", transactional_id="shop"), [TRANSACTION]),
        (produce_request("orders", b""), []),
        (MetadataRequest(topics=None), []),
        # Of the two the first is whose coordinator the request goes to.
        (AddOffsetsToTxnRequest(transactional_id="shop", group_id="readers", **PRODUCER), [TRANSACTION, GROUP]),
        (
            TxnOffsetCommitRequest(transactional_id="shop", group_id="readers", topics=[], **PRODUCER),
            [GROUP, TRANSACTION],
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_a_request_is_about(request_: object, about: list[Coordinated]) -> None:
    assert coordinated_in(request_) == about

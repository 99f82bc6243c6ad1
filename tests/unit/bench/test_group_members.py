"""The bench's members go through a rebalance as any client does, and all have their assignments at its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.conversation import Conversation
from bench.group_members import Group
from bench.processes import OwnBroker
from protocol.messages.groups import ListGroupsRequest, ListGroupsResponse


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[OwnBroker]:
    broker = OwnBroker(tmp_path)
    yield broker
    broker.close()


def groups(broker: OwnBroker) -> list[str]:
    with Conversation(broker.bootstrap) as conversation:
        return [group.group_id for group in conversation.ask(ListGroupsRequest(), ListGroupsResponse).groups]


def test_members_come_at_once_and_one_by_one_and_go_again(broker: OwnBroker) -> None:
    with Group(broker.bootstrap, "g", "topic") as group:
        assert group.form(5) > 0
        first = group.members[0].generation
        assert group.add_member() > 0
        assert [(member.generation, member.is_assigned) for member in group.members] == [(first + 1, True)] * 6
        assert group.remove_member() > 0
        assert [(member.generation, member.is_assigned) for member in group.members] == [(first + 2, True)] * 5
        assert len({member.member_id for member in group.members}) == 5
        assert groups(broker) == ["g"]

    assert groups(broker) == []

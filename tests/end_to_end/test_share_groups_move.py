"""A share group works jobs off while the leaders of its topic and of its states move from one node to another."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.support.clusters import Cluster
from tests.support.share_moves import FIRST, SECOND, SETTINGS, TO_FIRST, TO_SECOND, work_while_leaders_move

confluent_kafka = pytest.importorskip("confluent_kafka")
if not hasattr(confluent_kafka, "ShareConsumer"):
    pytest.skip("this librdkafka has no share consumer", allow_module_level=True)
if os.environ.get("OTTLA_TEST_BOOTSTRAP") or os.environ.get("OTTLA_TEST_KAFKA_LIBS"):
    pytest.skip("a pair of another broker is not ours to judge", allow_module_level=True)

MOVES: Final = [*TO_SECOND, *(TO_FIRST + TO_SECOND) * int(os.environ.get("OTTLA_TEST_SHARE_MOVES", "0"))]
"""Who leads what, one after the other. In the end the second node is killed."""


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Cluster]:
    """A node and its standby."""
    with Cluster(tmp_path) as cluster:
        cluster.add_primary(FIRST, SETTINGS)
        cluster.add_member(SECOND, SETTINGS)
        yield cluster


@pytest.mark.timeout(300)
def test_jobs_are_done_while_their_leaders_move(pair: Cluster) -> None:
    work_while_leaders_move(pair, MOVES)

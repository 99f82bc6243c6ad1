"""The quorum of ``__cluster_metadata``: its voters (this node alone, or nodes elsewhere), the leader epoch, the file
``quorum-state`` of a node that votes alone.

quorum-state, one line of JSON without a line end (KIP-595, KIP-853):

kraft.version 0   {"clusterId":"","leaderId":1,"leaderEpoch":3,"votedId":-1,"appliedOffset":0,
                   "currentVoters":[{"voterId":1}],"data_version":0}
kraft.version 1   {"leaderId":1,"leaderEpoch":3,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA",
                   "data_version":1}
"""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from broker.metadata.registration import SUPPORTED_FEATURES
from config.listeners import Listener
from protocol.records.control_records import ControlRecord, KRaftVersion, KRaftVoters, LeaderChange
from protocol.schema import NO_UUID
from storage.checkpoints import format_id
from storage.errors import CorruptCheckpoint
from storage.files import FileSystem

QUORUM_STATE: Final = "quorum-state"


class Quorum:
    """The voters according to the control records."""

    __slots__ = ("kraft_version", "voters")

    def __init__(self, *, kraft_version: int = 0, voters: KRaftVoters | None = None) -> None:
        self.kraft_version = kraft_version
        self.voters = voters
        """None at kraft.version 0: there the voters are in the settings."""

    def replay(self, record: ControlRecord) -> None:
        """Apply one control record."""
        if isinstance(record, KRaftVersion):
            self.kraft_version = record.kraft_version
        elif isinstance(record, KRaftVoters):
            self.voters = record

    def records(self) -> list[ControlRecord]:
        """The control records of this state; none at kraft.version 0."""
        if self.voters is None:
            return []
        return [KRaftVersion(kraft_version=self.kraft_version), self.voters]


def only_voter(node_id: int, directory_id: bytes, endpoint: Listener) -> KRaftVoters:
    """The voters record of a quorum of one node (KIP-853), which other nodes reach at ``endpoint``."""
    low, high = SUPPORTED_FEATURES["kraft.version"]
    voter = KRaftVoters.Voter(
        voter_id=node_id,
        voter_directory_id=directory_id,
        endpoints=[KRaftVoters.Voter.Endpoint(name=endpoint.name, host=endpoint.host, port=endpoint.port)],
        kraft_version_feature=KRaftVoters.Voter.KRaftVersionFeature(
            min_supported_version=low, max_supported_version=high
        ),
    )
    return KRaftVoters(voters=[voter])


def voters_with_endpoints(quorum: Quorum, node_id: int, listeners: Iterable[Listener]) -> KRaftVoters | None:
    """The voters with ``listeners`` as the addresses of the voter ``node_id`` (KIP-853).

    Other nodes find the leader there: they look the leader's id up among the voters of the metadata log.

    Returns: None if the voters have these addresses already, or are in the settings (kraft.version 0).
    """
    if quorum.voters is None:
        return None
    endpoints = [KRaftVoters.Voter.Endpoint(name=one.name, host=one.host, port=one.port) for one in listeners]
    voters = [
        replace(voter, endpoints=endpoints) if voter.voter_id == node_id else voter for voter in quorum.voters.voters
    ]
    changed = replace(quorum.voters, voters=voters)
    return None if changed == quorum.voters else changed


def leader_change(node_id: int) -> LeaderChange:
    """The control record that begins an epoch: this node leads, by its own vote."""
    return LeaderChange(
        leader_id=node_id,
        voters=[LeaderChange.Voter(voter_id=node_id)],
        granting_voters=[LeaderChange.Voter(voter_id=node_id)],
    )


def read_leader_epoch(files: FileSystem, path: str) -> int:
    """The last epoch that this node led or knew of; 0 if it never did. Raises CorruptCheckpoint."""
    try:
        content = files.read_file(path)
    except FileNotFoundError:
        return 0
    try:
        return int(json.loads(content)["leaderEpoch"])
    except (ValueError, KeyError, TypeError):
        raise CorruptCheckpoint(f"{path} names no leaderEpoch: it begins with {content[:60]!r}") from None


def write_quorum_state(files: FileSystem, path: str, *, node_id: int, leader_epoch: int, kraft_version: int) -> None:
    """Write that this node leads in ``leader_epoch``. The file is on disk before the first record of the epoch."""
    state: dict[str, object]
    if kraft_version == 0:
        state = {
            "clusterId": "",
            "leaderId": node_id,
            "leaderEpoch": leader_epoch,
            "votedId": -1,
            "appliedOffset": 0,
            "currentVoters": [{"voterId": node_id}],
            "data_version": 0,
        }
    else:
        state = {
            "leaderId": node_id,
            "leaderEpoch": leader_epoch,
            "votedId": -1,
            "votedDirectoryId": format_id(NO_UUID),
            "data_version": 1,
        }
    files.replace_atomically(path, json.dumps(state, separators=(",", ":")).encode(), fsync=True)

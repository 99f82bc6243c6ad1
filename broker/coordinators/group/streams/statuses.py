"""Statuses: what answers to heartbeats tell of a streams group besides tasks, in Kafka's words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from broker.coordinators.group.streams.member import StreamsMember
from broker.coordinators.group.streams.topology import Status, StatusCode


def stale_topology(member_epoch: int, group_epoch: int) -> Status:
    """The member has joined with an older topology than the group's."""
    detail = f"The member's topology epoch {member_epoch} is behind the group's topology epoch {group_epoch}."
    return Status(StatusCode.STALE_TOPOLOGY, detail)


def missing_tags(configs: Mapping[str, str], member: StreamsMember) -> list[str]:
    """The tags that the group's configs ask for, and the member has not."""
    tags = configs.get("rack.aware.assignment.tags", "")
    return [tag for tag in tags.split(",") if tag and tag not in member.tags]


def missing_client_tags(tags: Sequence[str]) -> Status:
    """The member has not the tags that the group's configs ask for."""
    detail = (
        f"Missing required client tags for rack-aware standby assignment: [{', '.join(tags)}]. Configure them via "
        "'client.tag.<tagKey>' in your Streams config."
    )
    return Status(StatusCode.MISSING_CLIENT_TAGS, detail)


def delayed(by: str) -> Status:
    """The assignment waits."""
    return Status(StatusCode.ASSIGNMENT_DELAYED, f"Assignment delayed due to the configured {by}.")


def shutdown(asked_by: str) -> Status:
    """A member wants the whole application to stop."""
    detail = (
        f"Streams group member {asked_by} encountered a fatal error and requested a shutdown for the entire "
        "application."
    )
    return Status(StatusCode.SHUTDOWN_APPLICATION, detail)

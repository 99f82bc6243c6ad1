"""The settings of the group coordinator."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """Times in milliseconds. The defaults are the broker's own."""

    initial_rebalance_delay_ms: int = 0
    """How long the first rebalance of an empty group waits for more members."""
    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    max_size: int = 2_147_483_647
    """The most members that a group may have."""
    consumer_max_size: int = 2_147_483_647
    """The most members that a consumer group of the newer protocol may have."""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """The server's assignors; the first one is taken where members want none."""
    consumer_upgrades: bool = True
    """Whether a classic group becomes a consumer group when a member of the newer protocol joins it."""
    consumer_downgrades: bool = True
    """Whether a consumer group becomes a classic group when its last member of the newer protocol leaves it."""
    consumer_regex_refresh_interval_ms: int = 600_000
    """How often regular expressions are resolved although no topic was created."""
    offset_metadata_max_bytes: int = 4_096
    """The longest metadata of a committed offset; counted in characters, as Kafka counts it."""
    offsets_retention_ms: int = 10_080 * 60_000
    share_max_size: int = 200
    """The most members that a share group may have."""
    streams_max_size: int = 2_147_483_647
    """The most members that a streams group may have."""
    streams_assignors: tuple[str, ...] = ("sticky",)
    """The task assignors; the first one is taken by groups that name none."""
    share_initialize_retry_ms: int = 30_000
    """After how long the share coordinator is asked again to begin states of partitions."""

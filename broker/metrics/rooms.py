"""The rooms that metrics reads, as far as they are there: the daemon fills this in while it starts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from broker.clock import Clock
    from broker.log_loading import LogLoading
    from broker.network.processor import Processor
    from broker.replication.fetch_sessions import FetchSessions
    from broker.replication.replica_manager import ReplicaManager
    from broker.request.channel import RequestChannel
    from config.broker_settings import BrokerSettings


@dataclass(slots=True, kw_only=True)
class Rooms:
    """What is None is not there yet."""

    settings: "BrokerSettings"
    clock: "Clock"
    channel: "RequestChannel"
    processors: "Sequence[Processor]"
    replicas: "ReplicaManager"
    fetch_sessions: "FetchSessions"
    loading: "LogLoading | None" = None

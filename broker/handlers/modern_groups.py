"""Consumer groups of the newer protocol, share groups and streams groups (API keys 68, 69, 78, 79, 88, 89 and 93;
KIP-848, KIP-932, KIP-1071), as a Kafka answers where group.version, share.version and streams.version are 0."""

from typing import Any

import protocol.messages.consumer_groups
import protocol.messages.share_fetch
import protocol.messages.streams_groups  # noqa: F401 - the registry asks for them by their keys
from broker.request.context import RequestContext
from broker.request.faults import UnsupportedVersion


class ModernGroupsHandler:
    """Says that there are no such groups, so that a client takes the classic protocol or gives up.

    ApiVersions says the same: group.version, share.version and streams.version are not finalised.
    """

    def unsupported(self, request: Any, context: RequestContext) -> None:
        """Raises `UnsupportedVersion`."""
        raise UnsupportedVersion("this broker has classic groups only")

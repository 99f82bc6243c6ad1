"""ControllerChannel: how a broker asks the controller of its cluster, wherever that controller is."""

from collections.abc import Mapping
from typing import Protocol, TypeVar

from protocol.api_keys import Versions


class HasErrorCode(Protocol):
    """An answer with an error code of its own, as all answers of controllers have."""

    error_code: int


Answer = TypeVar("Answer", bound=HasErrorCode)


class ControllerChannel(Protocol):
    """The way to the controller for the requests of one purpose: over the wire (`RemoteChannel`), or to the controller
    in this process (`broker.controller.local_channel`)."""

    async def ask(self, request: object, answer: type[Answer]) -> Answer | None:
        """Ask the controller. None if no controller leads, or the leader does not answer, or it leads no more.

        Raises:
            Unencodable: the request does not fit the version that the controller speaks.
            StorageError: the controller is in this process, and cannot write its metadata log.
        """

    def close(self) -> None:
        """Ask nothing any more: what waits for an answer gets none."""


class FeatureChannel(ControllerChannel, Protocol):
    """The way of registrations and heartbeats, which must know what the controller supports."""

    async def finalized_features(self) -> Mapping[str, int] | None:
        """The feature levels that the cluster has finalised, as the leader says; None if it does not answer."""

    @property
    def known_versions(self) -> Mapping[int, Versions]:
        """The versions by API key that the last leader on this channel has named; empty before."""

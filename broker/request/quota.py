"""RequestQuota: the quotas of a request's client, as dispatcher and handlers see them (KIP-13, KIP-124, KIP-599).

The implementation is `broker.security.quotas`, which is imported once the cluster has a quota.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from broker.request.session import Session

if TYPE_CHECKING:
    from broker.request.response import ResponseSlot


class MutationQuota(Protocol):
    """How many partitions a client may create and delete a second (KIP-599), for one request."""

    def charge(self, partitions: int) -> None:
        """Charge partitions that are to be created or deleted.

        Raises `ThrottlingQuotaExceeded`: nothing is charged, and nothing must be changed.
        """


class RequestQuota(Protocol):
    """The quotas for one request. Its answer charges the client, and says for how long the client is throttled."""

    def handled(self) -> None:
        """The handler has returned: no more time is charged."""

    def exempt(self) -> None:
        """Another broker has sent the request, which charges no client."""

    @property
    def most_fetched(self) -> int:
        """So many bytes of records may a Fetch be answered with."""

    def admits_fetch(self, size: int) -> bool:
        """Charge a Fetch, whose answer has ``size`` bytes. False: the client is throttled, and gets no records."""

    def mutations(self, *, is_strict: bool, is_told: bool) -> MutationQuota | None:
        """The quota of changes of topics, if the client has one. Where it is not strict, the changes are carried out,
        and the client is throttled afterwards. Where it ``is_told``, the answer to the request says for how long."""

    def settle(self, *, is_answered: bool) -> int:
        """Charge the request, if that has not been done, and return for how many milliseconds its client is throttled.

        ``is_answered``: the client gets an answer.
        """


class Quotas(Protocol):
    """The quotas of all clients. There is no such object as long as the cluster has none."""

    def spare(self, session: Session) -> bool:
        """Whether nothing limits the client of a session, by its principal and client id."""

    def of_request(self, slot: ResponseSlot, api_key: int) -> RequestQuota | None:
        """The quotas for a request; None where nothing limits its client."""

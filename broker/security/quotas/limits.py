"""QuotaLimits: the values of one quota by entity, and which of them applies to a client (KIP-55)."""

from collections.abc import Iterable, Mapping
from math import isnan
from typing import Final, NamedTuple

from protocol.records.cluster_metadata import ClientQuotaRecord

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

DEFAULT: Final = ""
"""The name of a default entity: no entity has an empty name."""


LONGEST_LABEL: Final = 200
"""Characters of a client id that tell clients apart. A client may choose one of 32,767 bytes, and many of them."""


class Sharers(NamedTuple):
    """The clients that use up one quota together, by the labels of their metrics. An empty label stands for any."""

    user: str
    client_id: str


class Limit(NamedTuple):
    """The value of a quota, and who shares it."""

    value: float
    sharers: Sharers


class QuotaLimits:
    """The values of one quota. NaN, which Kafka stores and which limits nothing there, is no value."""

    def __init__(self, by_entity: Mapping[tuple[str | None, str | None], float]) -> None:
        """``by_entity``: the values by user and client id: a name, `DEFAULT`, or None where the entity lacks it."""
        self._by_entity = by_entity

    def __bool__(self) -> bool:
        return bool(self._by_entity)

    def of(self, user: str, client_id: str) -> Limit | None:
        """The limit of a client: that of the most specific entity, where a user counts for more than a client id."""
        by_entity = self._by_entity
        for entity in (
            (user, client_id),
            (user, DEFAULT),
            (user, None),
            (DEFAULT, client_id),
            (DEFAULT, DEFAULT),
            (DEFAULT, None),
            (None, client_id),
            (None, DEFAULT),
        ):
            value = by_entity.get(entity)
            if value is not None:
                known_as = client_id[:LONGEST_LABEL]
                return Limit(value, Sharers("" if entity[0] is None else user, "" if entity[1] is None else known_as))
        return None


def limits_by_key(records: Iterable[ClientQuotaRecord]) -> Mapping[str, QuotaLimits]:
    """The values that records give to the quotas of users and client ids."""
    values: dict[str, dict[tuple[str | None, str | None], float]] = {}
    for record in records:
        if not isnan(record.value):
            entity = _names(record)
            values.setdefault(record.key, {})[entity.get(USER), entity.get(CLIENT_ID)] = record.value
    return {key: QuotaLimits(by_entity) for key, by_entity in values.items()}


def address_limits(records: Iterable[ClientQuotaRecord]) -> dict[str, float]:
    """The rates of new connections by host name or address, as they were given, and by `DEFAULT`."""
    return {
        _names(record)[IP]: record.value
        for record in records
        if record.key == CONNECTION_CREATION_RATE and not isnan(record.value)
    }


def is_of_address(record: ClientQuotaRecord) -> bool:
    """Whether a quota is of an address, not of users and client ids."""
    return any(part.entity_type == IP for part in record.entity)


def _names(record: ClientQuotaRecord) -> dict[str, str]:
    return {part.entity_type: part.entity_name or DEFAULT for part in record.entity}

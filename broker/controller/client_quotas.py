"""What it takes to change quotas of clients (KIP-546, KIP-612): every check of AlterClientQuotas, then the records."""

from collections.abc import Collection, Hashable, Mapping, Sequence
from math import fmod, isfinite
from typing import Final, NamedTuple

from broker.metadata.image.carried import quota_key
from broker.metadata.image.metadata_image import MetadataImage
from broker.metadata.image.records import Record
from broker.request.faults import Fault, InvalidRequest
from protocol.errors import ErrorCode
from protocol.records.cluster_metadata import ClientQuotaRecord

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

_LARGEST_INT: Final = ("an INT", 2**31 - 1)
_LARGEST_LONG: Final = ("a LONG", 2**63 - 1)

_OF_CLIENTS: Final[Mapping[str, tuple[str, int] | None]] = {
    "producer_byte_rate": _LARGEST_LONG,
    "consumer_byte_rate": _LARGEST_LONG,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_OF_ADDRESSES: Final[Mapping[str, tuple[str, int] | None]] = {"connection_creation_rate": _LARGEST_INT}
"""The quotas, each with the largest value of its type; None for a number that may have a fraction."""

ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

_FRACTION: Final = 1e-6
"""A number with a smaller fraction is whole, as for Kafka."""

Entity = Mapping[str, str | None]
"""Names by the type of an entity's parts; None for the default."""


class QuotaChange(NamedTuple):
    """One quota of an entity that is to be changed."""

    key: str
    value: float | None
    """None: there shall be no such quota."""


class QuotaAlteration(NamedTuple):
    """What is to be changed for one entity."""

    entity: Entity
    changes: Sequence[QuotaChange]


class QuotaResult(NamedTuple):
    """What became of one entity."""

    entity: Entity
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


class QuotaPlanner:
    """Plans changes against one image: the records to append, and what to answer once they are durable."""

    def __init__(self, image: MetadataImage, unknown_hosts: Collection[str] = ()) -> None:
        """``unknown_hosts``: names in the request that have no address."""
        self._image = image
        self._unknown_hosts = unknown_hosts
        self.records: list[Record] = []

    def plan(self, wanted: Sequence[QuotaAlteration]) -> list[QuotaResult]:
        """Check all changes of one request. The answer has each entity once.

        Of an entity that comes twice the first changes are carried out, and the answer is an error, as in Kafka.
        """
        results: dict[Hashable, QuotaResult] = {}
        for alteration in wanted:
            entity = alteration.entity
            same = frozenset(entity.items())
            try:
                if same in results or len({change.key for change in alteration.changes}) < len(alteration.changes):
                    raise InvalidRequest(f"Ignoring duplicate entity ClientQuotaEntity(entries={_in_java(entity)})")
                self.records += self._changed(alteration)
            except Fault as fault:
                results[same] = QuotaResult(entity, fault.code, str(fault))
            else:
                results[same] = QuotaResult(entity)
        return list(results.values())

    def _changed(self, alteration: QuotaAlteration) -> list[Record]:
        entity = alteration.entity
        known = self._known_quotas(entity)
        records: list[Record] = []
        for key, value in alteration.changes:
            record = _record(entity, key, value)
            present = self._image.client_quotas.by_key.get(quota_key(record))
            if value is None:
                if present is not None:
                    records.append(record)
                continue
            _check_value(key, value, known)
            if not isinstance(present, ClientQuotaRecord) or present.value != value:
                records.append(record)
        return records

    def _known_quotas(self, entity: Entity) -> Mapping[str, tuple[str, int] | None]:
        """The quotas that an entity may have. Raises `InvalidRequest`."""
        if not entity:
            raise InvalidRequest("Invalid empty client quota entity")
        for entity_type, name in entity.items():
            if entity_type not in ENTITY_TYPES:
                raise InvalidRequest(f"Unhandled client quota entity type: {entity_type}")
            if name == "":
                raise InvalidRequest(f"Empty {entity_type} not supported")
        if IP not in entity:
            return _OF_CLIENTS
        if len(entity) > 1:
            raise InvalidRequest(
                "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
            )
        if entity[IP] in self._unknown_hosts:
            raise InvalidRequest(f"{entity[IP]} is not a valid IP or resolvable host.")
        return _OF_ADDRESSES


def _check_value(key: str, value: float, known: Mapping[str, tuple[str, int] | None]) -> None:
    if key not in known:
        raise InvalidRequest(f"Invalid configuration key {key}")
    if not isfinite(value):
        raise InvalidRequest(f"Quota {key} must be a finite number")
    if value <= 0:
        raise InvalidRequest(f"Quota {key} must be greater than 0")
    of_type = known[key]
    if of_type is None:
        return
    name, largest = of_type
    if value > largest:
        raise InvalidRequest(f"Proposed value for {key} is too large for {name}.")
    if fmod(value, 1) > _FRACTION:
        raise InvalidRequest(f"{key} cannot be a fractional value.")


def _record(entity: Entity, key: str, value: float | None) -> ClientQuotaRecord:
    parts = [ClientQuotaRecord.Entity(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    return ClientQuotaRecord(entity=parts, key=key, value=value or 0.0, remove=value is None)


def _in_java(entity: Entity) -> str:
    """An entity as Kafka's messages have it."""
    return "{" + ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity.items()) + "}"

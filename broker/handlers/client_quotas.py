"""DescribeClientQuotas and AlterClientQuotas (API keys 48 and 49; KIP-546, KIP-612)."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from broker.metadata.cache import MetadataCache
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed, Fault, InvalidRequest, UnsupportedVersion
from protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from protocol.records.cluster_metadata import ClientQuotaRecord

Component = DescribeClientQuotasRequest.Component
Entry = DescribeClientQuotasResponse.Entry

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"

_KEYS: Final[Mapping[str, frozenset[str]]] = {
    USER: frozenset(
        {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"},
    ),
    CLIENT_ID: frozenset(
        {"producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate"},
    ),
    IP: frozenset({"connection_creation_rate"}),
}
"""What is limited, by the type of the entity that it is limited for."""


class MatchType(IntEnum):
    """Which names of an entity's type are meant."""

    EXACT = 0
    DEFAULT = 1
    """The entity that all have which are not named."""
    SPECIFIED = 2
    """Any name, the default included."""


class _Filter(NamedTuple):
    """What a request asks for: names by entity type, None for the default, and types that may have any name."""

    names: dict[str, str | None]
    any_name: set[str]
    strict: bool
    """No entity with parts of other types."""

    def matches(self, entity: Mapping[str, str | None]) -> bool:
        return (
            self.any_name <= entity.keys()
            and all(name in entity and entity[name] == wanted for name, wanted in self.names.items())
            and (not self.strict or entity.keys() <= self.any_name | self.names.keys())
        )


class ClientQuotasHandler:
    """Describes the quotas of an adopted directory. None is enforced here yet, so that none can be set."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    def describe_client_quotas(
        self, request: DescribeClientQuotasRequest, context: RequestContext
    ) -> DescribeClientQuotasResponse:
        """List the quotas of the entities that are asked for. Raises `InvalidRequest`, `UnsupportedVersion`."""
        if not context.may(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not describe the quotas of clients")
        wanted = _filter(request.components, strict=request.strict)
        entries: dict[frozenset[tuple[str, str | None]], Entry] = {}
        for record in self._metadata.image.client_quotas.by_key.values():
            assert isinstance(record, ClientQuotaRecord)
            entity = {part.entity_type: part.entity_name for part in record.entity}
            if wanted.matches(entity):
                entry = entries.setdefault(frozenset(entity.items()), _entry(entity))
                entry.values.append(Entry.Value(key=record.key, value=record.value))
        return DescribeClientQuotasResponse(error_message="", entries=list(entries.values()))

    def alter_client_quotas(
        self, request: AlterClientQuotasRequest, context: RequestContext
    ) -> AlterClientQuotasResponse:
        """Say of each entity why nothing is changed."""
        if not context.may(Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not alter the quotas of clients")
        return AlterClientQuotasResponse(entries=[_altered(entry) for entry in request.entries])


def _filter(components: Sequence[Component], *, strict: bool) -> _Filter:
    found = _Filter({}, set(), strict)
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            raise InvalidRequest("Invalid empty entity type.")
        if entity_type in found.names or entity_type in found.any_name:
            raise InvalidRequest(f"Entity type {entity_type} cannot appear more than once in the filter.")
        if entity_type not in _KEYS:
            raise UnsupportedVersion(f"Unsupported entity type {entity_type}")
        match component.match_type:
            case MatchType.EXACT:
                if component.match is None:
                    raise InvalidRequest("Request specified MATCH_TYPE_EXACT, but set match string to null.")
                found.names[entity_type] = component.match
            case MatchType.DEFAULT:
                _check_no_name(component)
                found.names[entity_type] = None
            case MatchType.SPECIFIED:
                _check_no_name(component)
                found.any_name.add(entity_type)
            case _:
                raise InvalidRequest(f"Unknown match type {component.match_type}")
    types = found.names.keys() | found.any_name
    if IP in types and len(types) > 1:
        raise InvalidRequest(
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId "
            "filter component."
        )
    return found


def _check_no_name(component: Component) -> None:
    if component.match is not None:
        match_type = MatchType(component.match_type).name
        raise InvalidRequest(f"Request specified MATCH_TYPE_{match_type}, but also specified a match string.")


def _entry(entity: Mapping[str, str | None]) -> Entry:
    parts = [Entry.Entity(entity_type=entity_type, entity_name=name) for entity_type, name in entity.items()]
    return Entry(entity=parts, values=[])


def _altered(entry: AlterClientQuotasRequest.Entry) -> AlterClientQuotasResponse.Entry:
    answer = AlterClientQuotasResponse.Entry(
        entity=[
            AlterClientQuotasResponse.Entry.Entity(entity_type=part.entity_type, entity_name=part.entity_name)
            for part in entry.entity
        ]
    )
    try:
        _check_alteration(entry)
    except Fault as fault:
        answer.error_code = fault.code
        answer.error_message = str(fault)
    return answer


def _check_alteration(entry: AlterClientQuotasRequest.Entry) -> None:
    if not entry.entity:
        raise InvalidRequest("Invalid empty client quota entity")
    for part in entry.entity:
        if part.entity_type not in _KEYS:
            raise InvalidRequest(f"Unhandled client quota entity type: {part.entity_type}")
    for change in entry.ops:
        if not all(change.key in _KEYS[part.entity_type] for part in entry.entity):
            raise InvalidRequest(f"Invalid configuration key {change.key}")
    if entry.ops:
        # To say that the quota is set would be a lie: clients would not be held to it.
        raise UnsupportedVersion("this broker holds no client to a quota yet, so that none can be set")

"""DescribeClientQuotas and AlterClientQuotas (API keys 48 and 49; KIP-546, KIP-612).

Entities, their parts and their quotas are in the order of Kafka's hash maps, which tools compare.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple, Protocol, TypeAlias

from broker.controller.client import ControllerClient
from broker.controller.client_quotas import ENTITY_TYPES, IP, Entity, QuotaAlteration, QuotaChange, QuotaResult
from broker.coordinators.partitioning import java_hash
from broker.handlers.java_order import (
    DEFAULT_CAPACITY,
    capacity_for,
    capacity_of_copy,
    hash_map_order,
    hash_of_map,
)
from broker.metadata.cache import MetadataCache
from broker.network.host_addresses import address_of, unknown_hosts
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import ClusterAuthorizationFailed, InvalidRequest, UnsupportedVersion, error_code_of
from broker.runtime.worker_thread import WorkerThread
from protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from protocol.records.cluster_metadata import ClientQuotaRecord
from storage.errors import StorageError

Component = DescribeClientQuotasRequest.Component
Entry = DescribeClientQuotasResponse.Entry


_Key: TypeAlias = frozenset[tuple[str, str | None]]


class MatchType(IntEnum):
    """Which names of an entity's type are meant."""

    EXACT = 0
    DEFAULT = 1
    """The entity that all have which are not named."""
    SPECIFIED = 2
    """Any name, the default included."""


class _Part(Protocol):
    entity_type: str
    entity_name: str | None


class _Filter(NamedTuple):
    """What a request asks for: names by entity type, None for the default, and types that may have any name."""

    names: dict[str, str | None]
    any_name: set[str]
    strict: bool
    """No entity with parts of other types."""

    def found_first(self, entities: Iterable[Entity]) -> list[Entity]:
        """All entities with a part that Kafka looks up first, in the order in which the lookup gives them."""
        known = hash_map_order(entities, _hash_of_entity, capacity=1)
        if self.names:
            first, *_ = hash_map_order(self.names, java_hash)
            known = [entity for entity in known if first in entity and entity[first] == self.names[first]]
        elif self.any_name:
            first, *_ = hash_map_order(self.any_name, java_hash)
            known = [entity for entity in known if first in entity]
        else:
            return known
        looked_up = hash_map_order(known, _hash_of_entity)
        return hash_map_order(looked_up, _hash_of_entity, capacity_of_copy(len(known)))

    def matches(self, entity: Entity) -> bool:
        return (
            self.any_name <= entity.keys()
            and all(name in entity and entity[name] == wanted for name, wanted in self.names.items())
            and (not self.strict or entity.keys() <= self.any_name | self.names.keys())
        )


class ClientQuotasHandler:
    """Describes the quotas of clients, and asks the controller to change them."""

    def __init__(
        self, controller: Callable[[], ControllerClient], metadata: MetadataCache, resolver: WorkerThread
    ) -> None:
        """``controller`` gives the one in this process, where there is one; ``resolver``: looks up host names."""
        self._controller = controller
        self._metadata = metadata
        self._resolver = resolver

    def describe_client_quotas(
        self, request: DescribeClientQuotasRequest, context: RequestContext
    ) -> DescribeClientQuotasResponse:
        """List the quotas of the entities that are asked for. Raises `InvalidRequest`, `UnsupportedVersion`."""
        if not context.may(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not describe the quotas of clients")
        wanted = _filter(request.components, strict=request.strict)
        entities: dict[_Key, Entity] = {}
        quotas: dict[_Key, dict[str, float]] = {}
        for record in self._metadata.image.client_quotas.by_key.values():
            assert isinstance(record, ClientQuotaRecord)
            entity = _entity(record.entity, DEFAULT_CAPACITY)
            entities.setdefault(_key(entity), entity)
            quotas.setdefault(_key(entity), {})[record.key] = record.value
        found = [entity for entity in wanted.found_first(entities.values()) if wanted.matches(entity)]
        return DescribeClientQuotasResponse(
            error_message="", entries=[_entry(entity, quotas[_key(entity)]) for entity in found]
        )

    def alter_client_quotas(self, request: AlterClientQuotasRequest, context: RequestContext) -> None:
        """Answer once every quota that could be changed is durable."""
        if not context.may(Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not alter the quotas of clients")
        alterations = [
            QuotaAlteration(
                _entity(entry.entity, capacity_for(len(entry.entity))),
                [
                    QuotaChange(change.key, None if change.remove else change.value)
                    for change in hash_map_order(entry.ops, lambda change: java_hash(change.key))
                ],
            )
            for entry in request.entries
        ]
        entities = {_key(alteration.entity): alteration.entity for alteration in alterations}
        # New entities come into the image in this order: Kafka puts each before the others of its bucket.
        arriving = hash_map_order(reversed(entities.values()), _hash_of_entity)
        ranks = {_key(entity): rank for rank, entity in enumerate(arriving)}
        wanted = sorted(alterations, key=lambda alteration: ranks[_key(alteration.entity)])

        def altered(results: Sequence[QuotaResult]) -> None:
            by_entity = {_key(result.entity): result for result in results}
            answered = hash_map_order(entities.values(), _hash_of_entity)
            context.respond(_altered([by_entity[_key(entity)] for entity in answered]))

        def alter(unknown: Collection[str]) -> None:
            try:
                self._controller().alter_client_quotas(
                    wanted,
                    unknown_hosts=unknown,
                    validate_only=request.validate_only,
                    then=altered,
                )
            except StorageError as error:
                context.refuse(request, error_code_of(error), str(error))

        hosts = {name for alteration in wanted if (name := alteration.entity.get(IP)) and address_of(name) is None}
        if hosts:
            self._resolver.submit(lambda: unknown_hosts(hosts), alter, lambda _: alter(hosts))
        else:
            alter(())


def _filter(components: Sequence[Component], *, strict: bool) -> _Filter:
    found = _Filter({}, set(), strict)
    for component in components:
        entity_type = component.entity_type
        if not entity_type:
            raise InvalidRequest("Invalid empty entity type.")
        if entity_type in found.names or entity_type in found.any_name:
            raise InvalidRequest(f"Entity type {entity_type} cannot appear more than once in the filter.")
        if entity_type not in ENTITY_TYPES:
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


def _entity(parts: Iterable[_Part], capacity: int) -> Entity:
    """Names by entity type, in the order of a map with a table of ``capacity``."""
    names = {part.entity_type: part.entity_name for part in parts}
    return {entity_type: names[entity_type] for entity_type in hash_map_order(names, java_hash, capacity)}


def _key(entity: Entity) -> _Key:
    return frozenset(entity.items())


def _hash_of_entity(entity: Entity) -> int:
    """The hash code of Kafka's ClientQuotaEntity."""
    return 31 + hash_of_map(entity)


def _entry(entity: Entity, quotas: Mapping[str, float]) -> Entry:
    return Entry(
        entity=[Entry.Entity(entity_type=entity_type, entity_name=name) for entity_type, name in entity.items()],
        values=[Entry.Value(key=key, value=quotas[key]) for key in hash_map_order(quotas, java_hash, capacity=1)],
    )


def _altered(results: Sequence[QuotaResult]) -> AlterClientQuotasResponse:
    of_entry = AlterClientQuotasResponse.Entry
    return AlterClientQuotasResponse(
        entries=[
            of_entry(
                error_code=result.error,
                error_message=result.message,
                entity=[
                    of_entry.Entity(entity_type=entity_type, entity_name=name)
                    for entity_type, name in result.entity.items()
                ],
            )
            for result in results
        ]
    )

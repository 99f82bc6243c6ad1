"""DescribeClientQuotas and AlterClientQuotas (API keys 48 and 49; KIP-546, KIP-612)."""

from collections.abc import Callable, Collection, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from broker.controller.client import ControllerClient
from broker.controller.client_quotas import ENTITY_TYPES, IP, QuotaAlteration, QuotaChange, QuotaResult
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
        entries: dict[frozenset[tuple[str, str | None]], Entry] = {}
        for record in self._metadata.image.client_quotas.by_key.values():
            assert isinstance(record, ClientQuotaRecord)
            entity = {part.entity_type: part.entity_name for part in record.entity}
            if wanted.matches(entity):
                entry = entries.setdefault(frozenset(entity.items()), _entry(entity))
                entry.values.append(Entry.Value(key=record.key, value=record.value))
        return DescribeClientQuotasResponse(error_message="", entries=list(entries.values()))

    def alter_client_quotas(self, request: AlterClientQuotasRequest, context: RequestContext) -> None:
        """Answer once every quota that could be changed is durable."""
        if not context.may(Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
            raise ClusterAuthorizationFailed(f"{context.session.principal} may not alter the quotas of clients")
        wanted = [
            QuotaAlteration(
                {part.entity_type: part.entity_name for part in entry.entity},
                [QuotaChange(change.key, None if change.remove else change.value) for change in entry.ops],
            )
            for entry in request.entries
        ]

        def alter(unknown: Collection[str]) -> None:
            try:
                self._controller().alter_client_quotas(
                    wanted,
                    unknown_hosts=unknown,
                    validate_only=request.validate_only,
                    then=lambda results: context.respond(_altered(results)),
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


def _entry(entity: Mapping[str, str | None]) -> Entry:
    parts = [Entry.Entity(entity_type=entity_type, entity_name=name) for entity_type, name in entity.items()]
    return Entry(entity=parts, values=[])


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

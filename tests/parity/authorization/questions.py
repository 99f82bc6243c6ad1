"""A request, the operations that it needs, and the states of the ACLs in which it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from broker.request.permissions import Operation, ResourceType
from protocol.messages.acls import CreateAclsRequest
from tests.parity.access import ALL, ALLOW, DENY, acl
from tests.parity.exchange import Exchange

CLUSTER: Final = "kafka-cluster"


class Needed(NamedTuple):
    """An operation on a resource; ``{number}`` in the name is the number of the state."""

    operation: int
    """An `Operation`, or `ALL`."""
    resource_type: ResourceType
    name: str

    def __str__(self) -> str:
        kind = self.resource_type.name.lower().replace("_", " ")
        resource = (
            kind if self.resource_type is ResourceType.CLUSTER else f"{kind} {self.name.replace('{number}', 'N')}"
        )
        operation = "ALL" if self.operation == ALL else Operation(self.operation).name
        return f"{operation} of {resource}"


def on_topic(operation: int, name: str = "orders") -> Needed:
    return Needed(operation, ResourceType.TOPIC, name)


def on_group(operation: int, name: str = "readers") -> Needed:
    return Needed(operation, ResourceType.GROUP, name)


def on_transactional_id(operation: int, name: str = "mover") -> Needed:
    return Needed(operation, ResourceType.TRANSACTIONAL_ID, name)


def on_cluster(operation: int) -> Needed:
    return Needed(operation, ResourceType.CLUSTER, CLUSTER)


class Asking(NamedTuple):
    """In what a request is made."""

    exchange: Exchange
    version: int
    number: int
    """Of the state."""

    def topic_id(self, name: str, since: int) -> dict[str, Any]:
        """The fields that name a topic in a message that has ids ``since`` a version."""
        return {"topic_id": self.exchange.topic_ids[name]} if self.version >= since else {"name": name}


MakeRequest = Callable[[Asking], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One request, and each way in which a principal may be allowed it: the operations that are needed together."""

    step: str
    request: MakeRequest
    ways: tuple[tuple[Needed, ...], ...]
    versions: tuple[int, int] | None = None
    """None: every version."""
    user: str | None = None
    """Who asks, on the listener with SASL; None: a client that nobody knows."""
    asks_controller: bool = False
    """The request goes to a listener of the controller."""


class State(NamedTuple):
    """The ACLs of one host, for one case."""

    case: Case
    name: str
    allowed: tuple[Needed, ...]
    denied: tuple[Needed, ...]


def states_of(case: Case) -> Iterator[State]:
    """Nothing said; each way allowed; each way without one of its operations, and with one denied."""
    yield State(case, "nothing said", (), ())
    for way in case.ways:
        yield State(case, f"allowed {_all_of(way)}", way, ())
        for index, needed in enumerate(way):
            if len(way) > 1:
                yield State(case, f"allowed all of {_all_of(way)} but {needed}", way[:index] + way[index + 1 :], ())
            yield State(case, f"allowed {_all_of(way)}, denied {needed}", way, (needed,))
    for way in case.ways[1:]:
        for needed in way:
            if needed not in case.ways[0]:
                yield State(case, f"allowed {_all_of(case.ways[0])}, denied {needed}", case.ways[0], (needed,))


def _all_of(way: tuple[Needed, ...]) -> str:
    return " and ".join(map(str, way))


def creations_of(state: State, number: int, host: str) -> Iterator[CreateAclsRequest.Creation]:
    """The ACLs of a state, which hold for one host."""
    for needed, permission in (
        *((one, ALLOW) for one in state.allowed),
        *((one, DENY) for one in state.denied),
    ):
        yield acl(
            needed.name.replace("{number}", str(number)),
            resource_type=needed.resource_type,
            host=host,
            operation=needed.operation,
            permission_type=permission,
        )

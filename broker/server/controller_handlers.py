"""The handlers that only a controller listener has, each made at its first use."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from broker.raft.metadata_fetch import MetadataFetches
from broker.request.node import Node
from broker.request.response import ResponseSlot
from broker.server.handlers import Handlers

if TYPE_CHECKING:
    from broker.handlers.alter_configs import ControllerAlterConfigsHandler
    from broker.handlers.controller_brokers import BrokersController, ControllerBrokersHandler
    from broker.handlers.controller_cluster import ControllerClusterHandler
    from broker.handlers.controller_fetch import ControllerFetchHandler
    from broker.handlers.envelope import EnvelopeHandler


@dataclass(kw_only=True, eq=False, repr=False)
class ControllerHandlers:
    """The handlers of the controller listeners of one node. They share most handlers with the broker of the node."""

    broker: Handlers
    """The handlers of the node's broker, whose controller client is the controller in this process."""
    node: Node
    """This node with the addresses of its controller listeners."""
    fetches: MetadataFetches
    controller: "BrokersController"
    dispatch: Callable[[ResponseSlot], None]
    """Answers the request in an envelope (`broker.dispatch.dispatcher.Dispatcher.handle`)."""

    @cached_property
    def alter_configs(self) -> "ControllerAlterConfigsHandler":
        from broker.handlers.alter_configs import ControllerAlterConfigsHandler, in_this_process

        return ControllerAlterConfigsHandler(in_this_process(self.broker.controller), self.broker.config_view)

    @cached_property
    def brokers(self) -> "ControllerBrokersHandler":
        from broker.handlers.controller_brokers import ControllerBrokersHandler

        return ControllerBrokersHandler(self.controller, self.node.node_id)

    @cached_property
    def cluster(self) -> "ControllerClusterHandler":
        from broker.handlers.controller_cluster import ControllerClusterHandler

        return ControllerClusterHandler(self.node)

    @cached_property
    def envelope(self) -> "EnvelopeHandler":
        from broker.handlers.envelope import EnvelopeHandler

        return EnvelopeHandler(self.dispatch)

    @cached_property
    def fetch(self) -> "ControllerFetchHandler":
        from broker.handlers.controller_fetch import ControllerFetchHandler

        return ControllerFetchHandler(self.fetches)

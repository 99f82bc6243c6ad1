"""AlterConfigs and IncrementalAlterConfigs: changing settings (API keys 33 and 44; KIP-133, KIP-339, KIP-412)."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from broker.controller.client import ControllerClient
from broker.controller.config_alteration import (
    Alteration,
    AlterationResult,
    ConfigChange,
    ConfigOperation,
    Replacement,
    Resource,
    check_changes,
)
from broker.metadata.configs import EVERY_BROKER, ConfigView
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    ClusterAuthorizationFailed,
    Fault,
    GroupAuthorizationFailed,
    InvalidConfiguration,
    InvalidRequest,
    TopicAuthorizationFailed,
)
from broker.runtime import loggers
from config.errors import InvalidConfig, SettingsError
from config.refusals import is_security_key
from config.resources import ConfigResource
from protocol.errors import ErrorCode
from protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

log = logging.getLogger(__name__)

_OF_A_BROKER = (ConfigResource.BROKER, ConfigResource.BROKER_LOGGER)

Answer = TypeVar("Answer", AlterConfigsResponse.Response, IncrementalAlterConfigsResponse.Response)


class AlterInController(Protocol):
    """Has the controller change configs, wherever it is."""

    def __call__(
        self,
        wanted: Sequence[Alteration | Replacement],
        context: RequestContext,
        *,
        validate_only: bool,
        then: Callable[[list[AlterationResult]], None],
    ) -> None:
        """``then`` gets one result for each of ``wanted``, which are of one kind; ``context`` is the client's."""


def in_this_process(controller: ControllerClient) -> AlterInController:
    """Has the controller in this process change configs."""
    return lambda wanted, _, *, validate_only, then: controller.alter_configs(
        wanted, validate_only=validate_only, then=then
    )


class AlterConfigsHandler:
    """Asks the controller to change configs; it changes the levels of loggers itself, since they are not stored."""

    def __init__(self, alter: AlterInController, configs: ConfigView) -> None:
        self._alter_in_controller = alter
        self._configs = configs

    def alter_configs(self, request: AlterConfigsRequest, context: RequestContext) -> None:
        """Answer once every resource that could be changed durably has these configs and no others."""
        wanted = [
            Replacement(
                resource=Resource(asked.resource_type, asked.resource_name),
                configs=[(config.name, config.value) for config in asked.configs],
            )
            for asked in request.resources
        ]

        def respond(results: Sequence[AlterationResult]) -> None:
            context.respond(AlterConfigsResponse(responses=_answers(AlterConfigsResponse.Response, wanted, results)))

        self._alter(wanted, context, validate_only=request.validate_only, then=respond)

    def incremental_alter_configs(self, request: IncrementalAlterConfigsRequest, context: RequestContext) -> None:
        """Answer once every change that could be made is durable."""
        wanted = [
            Alteration(
                resource=Resource(asked.resource_type, asked.resource_name),
                changes=[ConfigChange(config.name, config.config_operation, config.value) for config in asked.configs],
            )
            for asked in request.resources
        ]

        def respond(results: Sequence[AlterationResult]) -> None:
            answers = _answers(IncrementalAlterConfigsResponse.Response, wanted, results)
            context.respond(IncrementalAlterConfigsResponse(responses=answers))

        self._alter(wanted, context, validate_only=request.validate_only, then=respond)

    def _alter(
        self,
        wanted: Sequence[Alteration | Replacement],
        context: RequestContext,
        *,
        validate_only: bool,
        then: Callable[[Sequence[AlterationResult]], None],
    ) -> None:
        """Give ``then`` one result for each of ``wanted``, in its order."""
        times = Counter(one.resource for one in wanted)
        results = [AlterationResult()] * len(wanted)
        for_controller: list[tuple[int, Alteration | Replacement]] = []
        for index, one in enumerate(wanted):
            try:
                if times[one.resource] > 1:
                    raise InvalidRequest("Each resource must appear at most once.")
                _check_allowed(one.resource, context)
                if one.resource.type == ConfigResource.BROKER and one.resource.name != EVERY_BROKER:
                    self._check_broker(one.resource.name)
                    self._check_files(one)
                if one.resource.type == ConfigResource.BROKER_LOGGER and isinstance(one, Alteration):
                    self._alter_loggers(one, validate_only=validate_only)
                else:
                    for_controller.append((index, one))
            except Fault as fault:
                results[index] = AlterationResult(fault.code, str(fault))

        def altered(by_controller: Sequence[AlterationResult]) -> None:
            for (index, _), result in zip(for_controller, by_controller, strict=True):
                results[index] = result
            then(results)

        self._alter_in_controller(
            [one for _, one in for_controller], context, validate_only=validate_only, then=altered
        )

    def _check_files(self, wanted: Alteration | Replacement) -> None:
        """Refuse keys and certificates that this broker could not use. Raises a `Fault`."""
        own = self._configs.own(ConfigResource.BROKER, wanted.resource.name)
        if self._configs.check_files is None or not any(map(is_security_key, wanted.named(own))):
            return
        try:
            after = wanted.applied_to(own)
        except InvalidConfig:
            return  # the controller refuses the change
        try:
            self._configs.check_files(after)
        except SettingsError as error:
            raise InvalidRequest(error.answer) from None

    def _check_broker(self, name: str) -> None:
        """Refuse another broker's configs: that broker knows whether it can have them."""
        self._configs.check_broker_id(
            name, "Node", otherwise="Unexpected broker id, expected {expected}, but received {name}"
        )

    def _alter_loggers(self, wanted: Alteration, *, validate_only: bool) -> None:
        """Change levels of loggers, all that are named or none."""
        check_changes(wanted.changes)
        self._configs.check_broker_id(
            wanted.resource.name, "Node", otherwise="Unexpected node id. Expected {expected}, but received {name}"
        )
        for change in wanted.changes:
            _check_logger(change)
        if validate_only:
            return
        for name, operation, level in wanted.changes:
            if operation == ConfigOperation.SET and level is not None:
                log.info("logger %s has the level %s", name, level)
                loggers.set_level(name, level)
            else:
                log.info("logger %s has the level of its parent", name)
                loggers.unset_level(name)


class ControllerAlterConfigsHandler(AlterConfigsHandler):
    """The same on a controller listener, where brokers hand on the changes of their own configs."""

    def _check_broker(self, name: str) -> None:
        """Whether there is such a broker is the controller's to say."""


def _check_logger(change: ConfigChange) -> None:
    name, operation, level = change
    if operation in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        operation_name = ConfigOperation(operation).name
        raise InvalidRequest(f"{operation_name} operation is not allowed for the BROKER_LOGGER resource")
    if not loggers.is_known(name):
        raise InvalidConfiguration(f"Logger {name} does not exist!")
    if operation == ConfigOperation.DELETE:
        if name == loggers.ROOT:
            raise InvalidRequest("Removing the log level of the root logger is not allowed")
    elif level not in loggers.LEVELS:
        raise InvalidConfiguration(
            f"Cannot set the log level of {name} to {level} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(loggers.LEVELS))}"
        )


def _check_allowed(resource: Resource, context: RequestContext) -> None:
    principal = context.session.principal
    if resource.type == ConfigResource.TOPIC:
        if not context.may(Operation.ALTER_CONFIGS, ResourceType.TOPIC, resource.name):
            raise TopicAuthorizationFailed(f"{principal} may not alter the configs of {resource}")
    elif resource.type == ConfigResource.GROUP:
        if not context.may(Operation.ALTER_CONFIGS, ResourceType.GROUP, resource.name):
            raise GroupAuthorizationFailed(f"{principal} may not alter the configs of {resource}")
    elif not context.may(Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
        raise ClusterAuthorizationFailed(f"{principal} may not alter the configs of the cluster")


def _answers(
    kind: type[Answer], wanted: Sequence[Alteration | Replacement], results: Sequence[AlterationResult]
) -> list[Answer]:
    return [_answer(kind, one.resource, result) for one, result in zip(wanted, results, strict=True)]


def _answer(kind: type[Answer], resource: Resource, result: AlterationResult) -> Answer:
    # Kafka says nothing of this refusal, and something of every other.
    is_told = resource.type not in _OF_A_BROKER or result.error is not ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return kind(
        error_code=result.error,
        error_message=result.message if is_told else None,
        resource_type=resource.type,
        resource_name=resource.name,
    )

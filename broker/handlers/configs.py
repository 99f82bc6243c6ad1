"""DescribeConfigs: settings, and where each comes from (API key 32; KIP-133, KIP-226, KIP-569)."""

from collections.abc import Iterable, Sequence

from broker.metadata.cache import MetadataCache
from broker.metadata.configs import ConfigView
from broker.metadata.topic_rules import fault_of_name
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import (
    ClusterAuthorizationFailed,
    Fault,
    GroupAuthorizationFailed,
    InvalidRequest,
    InvalidTopic,
    TopicAuthorizationFailed,
    UnknownTopicOrPartition,
    error_code_of,
)
from broker.runtime.loggers import levels
from config.described import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    describe_broker,
    describe_client_metrics,
    describe_cluster_default,
    describe_group,
    describe_topic,
)
from config.resources import ConfigResource
from config.values import ConfigType
from protocol.messages.configs import DescribeConfigsRequest, DescribeConfigsResponse

Asked = DescribeConfigsRequest.Resource
Result = DescribeConfigsResponse.Result
Answer = DescribeConfigsResponse.Result.Config


class ConfigsHandler:
    """Describes what `ConfigView` knows."""

    def __init__(self, configs: ConfigView, metadata: MetadataCache) -> None:
        self._configs = configs
        self._metadata = metadata

    def describe_configs(self, request: DescribeConfigsRequest, context: RequestContext) -> DescribeConfigsResponse:
        """Describe each resource by itself, and once, however often it is asked for.

        Kafka describes it each time: much work, and a long answer, for a few bytes of a request, which could hold the
        loop for long (docs/decisions/bad-input.md).
        """
        results = []
        described: dict[tuple[int, str], Sequence[ConfigEntry]] = {}
        for asked in _each_once(request.resources):
            result = Result(resource_type=asked.resource_type, resource_name=asked.resource_name, configs=[])
            resource = asked.resource_type, asked.resource_name
            try:
                # Other names of configs are other questions, but not another description.
                entries = described[resource] = described.get(resource) or self._entries(asked, context)
            except Fault as fault:
                result.error_code = error_code_of(fault)
                # As in Kafka: tools that compare whole answers look for it.
                result.error_message = "" if isinstance(fault, UnknownTopicOrPartition) else str(fault)
            else:
                # An empty list of names asks for everything, as null does.
                wanted = asked.configuration_keys or None
                result.error_message = ""
                result.configs = [
                    _described(entry, request) for entry in entries if wanted is None or entry.name in wanted
                ]
            results.append(result)
        return DescribeConfigsResponse(results=results)

    def _entries(self, asked: Asked, context: RequestContext) -> Sequence[ConfigEntry]:
        name = asked.resource_name
        match asked.resource_type:
            case ConfigResource.TOPIC:
                return self._topic_entries(name, context)
            case ConfigResource.BROKER:
                _check_cluster(context)
                return self._broker_entries(name)
            case ConfigResource.BROKER_LOGGER:
                _check_cluster(context)
                _check_named(name, "Broker id")
                self._configs.check_broker_id(
                    name, "Broker", otherwise="Unexpected broker id, expected {expected} but received {name}"
                )
                return [_logger_entry(logger, level) for logger, level in levels()]
            case ConfigResource.CLIENT_METRICS:
                _check_cluster(context)
                _check_named(name, "Client metrics subscription name")
                return describe_client_metrics(self._configs.own(ConfigResource.CLIENT_METRICS, name))
            case ConfigResource.GROUP:
                if not context.may(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP, name):
                    raise GroupAuthorizationFailed(f"{context.session.principal} may not describe the group {name}")
                _check_named(name, "Group name")
                return describe_group(self._configs.own(ConfigResource.GROUP, name), self._configs.broker_texts())
            case _:
                raise InvalidRequest(f"there are no configs of resource type {asked.resource_type}")

    def _topic_entries(self, name: str, context: RequestContext) -> Sequence[ConfigEntry]:
        if not context.may(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name):
            raise TopicAuthorizationFailed(f"{context.session.principal} may not describe the configs of {name}")
        fault = fault_of_name(name)
        if fault is not None:
            raise InvalidTopic(fault)
        if name not in self._metadata.image.topics.by_name:
            raise UnknownTopicOrPartition(f"there is no topic {name}")
        return describe_topic(self._metadata.image.configs.of_topic(name), self._configs.broker_texts())

    def _broker_entries(self, name: str) -> Sequence[ConfigEntry]:
        if not name:
            return describe_cluster_default(self._configs.broker_texts())
        self._configs.check_broker_id(
            name, "Broker", otherwise="Unexpected broker id, expected {expected} or empty string, but received {name}"
        )
        return describe_broker(self._configs.broker_texts())


def _each_once(resources: Sequence[Asked]) -> Iterable[Asked]:
    """The first of those that ask for the same."""
    asked: dict[tuple[int, str, tuple[str, ...]], Asked] = {}
    for resource in resources:
        keys = tuple(resource.configuration_keys or ())
        asked.setdefault((resource.resource_type, resource.resource_name, keys), resource)
    return asked.values()


def _check_cluster(context: RequestContext) -> None:
    if not context.may(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER):
        raise ClusterAuthorizationFailed(f"{context.session.principal} may not describe the configs of the cluster")


def _check_named(name: str, what: str) -> None:
    if not name:
        raise InvalidRequest(f"{what} must not be empty")


def _logger_entry(logger: str, level: str) -> ConfigEntry:
    source = ConfigSource.DYNAMIC_BROKER_LOGGER
    return ConfigEntry(
        name=logger,
        value=level,
        source=source,
        type=ConfigType.UNKNOWN,
        is_read_only=False,
        is_sensitive=False,
        synonyms=(ConfigSynonym(logger, level, source),),
        documentation="",
    )


def _described(entry: ConfigEntry, request: DescribeConfigsRequest) -> Answer:
    answer = Answer(
        name=entry.name,
        value=entry.value,
        read_only=entry.is_read_only,
        config_source=entry.source,
        is_sensitive=entry.is_sensitive,
        config_type=entry.type,
    )
    if request.include_synonyms:
        answer.synonyms = [
            Answer.Synonym(name=synonym.name, value=synonym.value, source=synonym.source) for synonym in entry.synonyms
        ]
    if request.include_documentation or entry.documentation == "":  # a logger has none to leave out
        answer.documentation = entry.documentation
    return answer

"""DescribeProducers: which producers a partition knows, and their open transactions (API key 61; KIP-664)."""

from broker.handlers.partition_lookup import PartitionLookup
from broker.metadata.cache import MetadataCache
from broker.metadata.topic_rules import fault_of_name
from broker.request.context import Operation, RequestContext, ResourceType
from broker.request.faults import Fault, InvalidTopic, TopicAuthorizationFailed, UnknownTopicOrPartition, error_code_of
from protocol.messages.producers import DescribeProducersRequest, DescribeProducersResponse
from storage.errors import StorageError

TopicAnswer = DescribeProducersResponse.Topic
Answer = DescribeProducersResponse.Topic.Partition


class ProducersHandler:
    """Reads the producer state of logs."""

    def __init__(self, partitions: PartitionLookup, metadata: MetadataCache) -> None:
        self._partitions = partitions
        self._metadata = metadata

    def describe_producers(
        self, request: DescribeProducersRequest, context: RequestContext
    ) -> DescribeProducersResponse:
        """Answer each partition by itself."""
        return DescribeProducersResponse(
            topics=[
                TopicAnswer(
                    name=topic.name,
                    partitions=[self._describe(topic.name, index, context) for index in topic.partition_indexes],
                )
                for topic in request.topics
            ]
        )

    def _describe(self, topic: str, index: int, context: RequestContext) -> Answer:
        answer = Answer(partition_index=index, active_producers=[])
        try:
            if not context.may(Operation.READ, ResourceType.TOPIC, topic):
                raise TopicAuthorizationFailed(f"{context.session.principal} may not read {topic}")
            if fault := fault_of_name(topic):
                raise InvalidTopic(fault)
            if topic not in self._metadata.image.topics.by_name:
                raise UnknownTopicOrPartition(f"there is no topic {topic}")
        except Fault as fault:
            answer.error_code = error_code_of(fault)
            answer.error_message = str(fault)
            return answer
        try:
            # A follower answers, too: its log has the state of the same producers.
            partition = self._partitions.partition(topic, index)
        except (Fault, StorageError) as error:
            answer.error_code = error_code_of(error)  # without a message, as in Kafka
        else:
            answer.active_producers = [
                Answer.ActiveProducer(
                    producer_id=entry.producer_id,
                    producer_epoch=entry.producer_epoch,
                    last_sequence=entry.last_sequence,
                    last_timestamp=entry.last_timestamp,
                    coordinator_epoch=entry.coordinator_epoch,
                    current_txn_start_offset=entry.transaction_first_offset,
                )
                for entry in partition.log.producers
            ]
        return answer

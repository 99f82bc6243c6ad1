"""Kafka's command line tools under the names of their shell scripts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dev.kafka_jars import BEFORE, KAFKA_VERSION
from tests.interop import programs
from tests.interop.programs import Outcome, Running

CLASSES = {
    "kafka-acls": "org.apache.kafka.tools.AclCommand",
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-metrics": "org.apache.kafka.tools.ClientMetricsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "org.apache.kafka.tools.ConfigCommand" if KAFKA_VERSION != BEFORE else "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-console-share-consumer": "org.apache.kafka.tools.consumer.ConsoleShareConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delegation-tokens": "org.apache.kafka.tools.DelegationTokenCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-features": "org.apache.kafka.tools.FeatureCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-metadata-quorum": "org.apache.kafka.tools.MetadataQuorumCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-share-groups": "org.apache.kafka.tools.consumer.group.ShareGroupCommand",
    "kafka-streams-groups": "org.apache.kafka.tools.streams.StreamsGroupCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}
ADDRESS_AFTER_SUBCOMMAND = {"kafka-cluster"}
# What the tools log stands on stdout, between their own lines.
LOGGED = re.compile(r"^\d{4}-\d\d-\d\dT[\d:.]+Z ")


class JavaTools:
    """Each call is a virtual machine of its own, as at a shell's prompt: it costs a second or two."""

    def __init__(self, command: Sequence[str], bootstrap: str) -> None:
        self.command = command
        self.bootstrap = bootstrap

    def run(self, tool: str, *arguments: str, stdin: bytes = b"", timeout_s: float = 60.0) -> Outcome:
        return programs.run(self._words(tool, arguments), stdin=stdin, timeout_s=timeout_s)

    def lines(self, tool: str, *arguments: str, stdin: bytes = b"") -> list[str]:
        """What the tool printed, if it succeeded."""
        return [line for line in self.run(tool, *arguments, stdin=stdin).done().lines if not LOGGED.match(line)]

    def begin(self, tool: str, *arguments: str) -> Running:
        """Start a tool that goes on until it is ended."""
        return Running(self._words(tool, arguments))

    def _words(self, tool: str, arguments: Sequence[str]) -> list[str]:
        words: tuple[str, ...] = ("--bootstrap-server", self.bootstrap)
        words = (*arguments, *words) if tool in ADDRESS_AFTER_SUBCOMMAND else (*words, *arguments)
        return [*self.command, CLASSES[tool], *words]

"""The name of a partition, and the names that its directory has on disk."""

import re
from typing import Final, NamedTuple

from storage.errors import WrongDirectory

MOST_NAME_BYTES: Final = 255
DELETE: Final = "delete"
FUTURE: Final = "future"
STRAY: Final = "stray"
MISNAMED: Final = "misnamed"

_SUFFIXED = re.compile(r"(?P<name>.+)\.\S+-(?P<fate>delete|future|stray)\Z")
_MOST_PARTITION: Final = (1 << 31) - 1


class TopicPartition(NamedTuple):
    """One partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    @property
    def dir_name(self) -> str:
        """The directory of the partition's files: ``<topic>-<partition>``."""
        return f"{self.topic}-{self.partition}"

    def suffixed_dir_name(self, unique_id: str, fate: str) -> str:
        """The name of a directory that is deleted or set aside: ``<topic>-<partition>.<unique id>-<fate>``.

        ``unique_id`` is 32 hex digits; ``fate`` is delete, future or stray. A long topic is cut so that the name
        stays within what file systems take.
        """
        suffix = f"-{self.partition}.{unique_id}-{fate}"
        return self.topic[: MOST_NAME_BYTES - len(suffix)] + suffix


class PartitionDirectory(NamedTuple):
    """The parts of the name of a directory among the logs."""

    topic_partition: TopicPartition
    fate: str
    """delete, future or stray; misnamed where the number is spelled in another way (``orders-00``); empty for a
    partition in use."""


def parse_dir_name(name: str) -> PartitionDirectory:
    """Read a partition directory's name, as Kafka's ``parseTopicPartitionName`` does. Raises WrongDirectory for any
    other name."""
    fate = ""
    partition_name = name
    if (match := _SUFFIXED.match(name)) is not None:
        partition_name, fate = match["name"], match["fate"]
    topic, _, text = partition_name.rpartition("-")
    # Java reads a plus sign, and the digits of every script; so does int().
    number = int(text) if text.removeprefix("+").isdecimal() else _MOST_PARTITION + 1
    if not topic or number > _MOST_PARTITION:
        raise WrongDirectory(
            f"found directory {name!r} among the logs; expected <topic>-<partition>, "
            "or the same with .<id>-delete, -future or -stray"
        )
    partition = TopicPartition(topic, number)
    return PartitionDirectory(partition, fate or ("" if name == partition.dir_name else MISNAMED))

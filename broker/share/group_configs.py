"""The settings of share groups: the group's own, within the broker's limits, else the broker's (KIP-932, KIP-1191)."""

from __future__ import annotations

import re
from typing import Any, Final

from broker.metadata.cache import ImageSource
from broker.metadata.configs import ConfigView
from broker.metadata.image.features import SHARE_VERSION
from broker.metadata.image.metadata_image import MetadataImage
from broker.replication.isolation import FetchIsolation
from broker.replication.offsets import Named
from broker.share.in_flight import DeliveryLimit, RecordState
from broker.share.requests import WindowTerms
from config.group_settings import group_value
from config.resources import ConfigResource

DEAD_LETTERS_SINCE_LEVEL: Final = 2
"""The level of share.version from which on share groups have dead letter queues."""

MOST_REMEMBERED: Final = 1_000
"""Groups whose settings are remembered."""

EARLIEST: Final = "earliest"
_BY_DURATION: Final = "by_duration:"
_DURATION: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{0,9})?)S)?)?", re.IGNORECASE)
_SECONDS: Final = (86_400.0, 3_600.0, 60.0, 1.0)


class ShareGroupConfigs:
    """What holds for a share group now, according to the current image."""

    __slots__ = ("_configs", "_image", "_source", "_terms")

    def __init__(self, configs: ConfigView, source: ImageSource) -> None:
        self._configs = configs
        self._source = source
        self._image: MetadataImage | None = None
        self._terms: dict[str, WindowTerms] = {}
        """As they are in ``_image``: a share partition asks several times for each request."""

    @property
    def share_version(self) -> int:
        """The finalised level of share.version: 0 where the cluster has no share groups."""
        return self._source.image.features.levels.get(SHARE_VERSION, 0)

    def _value(self, group_id: str, key: str) -> Any:
        return group_value(key, self._configs.own(ConfigResource.GROUP, group_id), self._configs.broker_texts())

    def lock_duration_ms(self, group_id: str) -> int:
        """How long a record stays with the member that acquires it."""
        return self.terms(group_id).lock_duration_ms

    def terms(self, group_id: str) -> WindowTerms:
        """What a share partition of the group goes by."""
        image = self._source.image
        if image is not self._image or len(self._terms) > MOST_REMEMBERED:
            self._image = image
            self._terms.clear()
        known = self._terms.get(group_id)
        if known is None:
            known = self._terms[group_id] = self._terms_of(group_id)
        return known

    def _terms_of(self, group_id: str) -> WindowTerms:
        beyond = RecordState.ARCHIVED if self.dead_letter_topic(group_id) is None else RecordState.ARCHIVING
        return WindowTerms(
            limit=DeliveryLimit(self._value(group_id, "share.delivery.count.limit"), beyond),
            lock_duration_ms=self._value(group_id, "share.record.lock.duration.ms"),
            max_records_in_flight=self._value(group_id, "share.partition.max.record.locks"),
            may_renew=self._value(group_id, "share.renew.acknowledge.enable"),
        )

    def isolation(self, group_id: str) -> FetchIsolation:
        """Up to where members read partitions."""
        level = self._value(group_id, "share.isolation.level").lower()
        return FetchIsolation.TXN_COMMITTED if level == "read_committed" else FetchIsolation.HIGH_WATERMARK

    def start_timestamp(self, group_id: str, now_ms: int) -> int:
        """Where the group begins in a partition that it has not read yet, as ListOffsets has it: a timestamp, or
        `Named.EARLIEST` or `Named.LATEST`."""
        reset = self._value(group_id, "share.auto.offset.reset").lower()
        if reset == EARLIEST:
            return Named.EARLIEST
        if reset.startswith(_BY_DURATION):
            return now_ms - duration_ms(reset.removeprefix(_BY_DURATION))
        return Named.LATEST

    def dead_letter_topic(self, group_id: str) -> str | None:
        """The group's dead letter queue; None where it has none."""
        if self.share_version < DEAD_LETTERS_SINCE_LEVEL:
            return None
        return self._value(group_id, "errors.deadletterqueue.topic.name") or None

    def copies_records(self, group_id: str) -> bool:
        """Whether dead letters have key and value of the record."""
        copies: bool = self._value(group_id, "errors.deadletterqueue.copy.record.enable")
        return copies

    @property
    def dead_letter_prefix(self) -> str:
        """What the name of every dead letter queue begins with."""
        return self._configs.broker_texts().text("errors.deadletterqueue.topic.name.prefix") or ""

    @property
    def creates_dead_letter_topics(self) -> bool:
        """Whether the broker creates a dead letter queue that does not exist."""
        return self._configs.broker_texts().text("errors.deadletterqueue.auto.create.topics.enable") == "true"


def duration_ms(text: str) -> int:
    """An ISO 8601 duration of days and smaller units, as ``share.auto.offset.reset`` has it, in milliseconds.

    Raises ValueError.
    """
    found = _DURATION.fullmatch(text)
    if found is None:
        raise ValueError(f"{text} is no duration like P1DT2H3M4.5S")
    return int(
        1000 * sum(float(number) * unit for number, unit in zip(found.groups(), _SECONDS, strict=True) if number)
    )

"""Who hears of metadata that has become durable: the published image, and its subscribers in their order."""

from collections.abc import Callable, Iterable

from broker.metadata.image import MetadataDelta, MetadataImage, Record

Subscriber = Callable[[MetadataDelta, MetadataImage], None]
"""Told what changed, and the image after it. A subscriber acts on its own state and never calls back."""


class Publisher:
    """The image that everybody but the controller reads: it holds nothing that could still be lost."""

    __slots__ = ("_subscribers", "image", "offset")

    def __init__(self, image: MetadataImage, offset: int) -> None:
        self.image = image
        self.offset = offset
        """The offset behind the last record that is in the image."""
        self._subscribers: list[Subscriber] = []

    def subscribe(self, subscriber: Subscriber) -> None:
        """Tell ``subscriber`` of every change from now on, after those that subscribed before it."""
        self._subscribers.append(subscriber)

    def publish(self, records: Iterable[Record], end_offset: int) -> None:
        """Replay durable records and tell what they changed, all of them at once."""
        delta = MetadataDelta()
        for record in records:
            self.image.replay(record, delta)
        self.offset = end_offset
        if not delta.is_empty:
            for subscriber in self._subscribers:
                subscriber(delta, self.image)

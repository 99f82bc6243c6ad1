"""The metadata that this broker knows now: whoever reads it asks here each time, and keeps no image."""

from typing import Protocol

from broker.metadata.image.metadata_image import EMPTY, MetadataImage


class ImageSource(Protocol):
    """Who has an image that may be another one the next time."""

    @property
    def image(self) -> MetadataImage:
        """The image of now."""


class MetadataCache:
    """Holds the image of all that is committed and replayed. Only `MetadataLoader` sets it."""

    __slots__ = ("image",)

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY

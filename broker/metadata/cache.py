"""MetadataCache: the current image. Readers ask for it each time and keep no image."""

from typing import Protocol

from broker.metadata.image.metadata_image import EMPTY, MetadataImage


class ImageSource(Protocol):
    """Has a current image, which the next change replaces."""

    @property
    def image(self) -> MetadataImage:
        """The current image."""


class MetadataCache:
    """Holds the image of all committed and replayed records. Only `MetadataLoader` sets it."""

    __slots__ = ("image",)

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY

"""NoReplication: stands for `BrokerReplication` where there is no other broker, and imports nothing of `peers`."""

from broker.metadata.image.metadata_image import MetadataDelta, MetadataImage
from broker.replication.other_brokers import OtherBrokers
from broker.replication.partition import ALONE


class NoReplication:
    """Asks nobody."""

    view: OtherBrokers = ALONE
    markers = None
    verification = None
    share_states = None
    dead_letters = None
    end_offsets = None

    def apply(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Part of `MetadataSubscriber`."""

    async def close(self) -> None:
        """There is nothing to close."""

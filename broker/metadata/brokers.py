"""The brokers of the cluster, as clients and other brokers see them on one listener."""

from broker.metadata.image.metadata_image import MetadataImage
from broker.request.node import Endpoint


def endpoint_of(image: MetadataImage, broker_id: int, listener: str) -> Endpoint | None:
    """The address of a registered broker on a listener, fenced or not; None where the broker has no such listener."""
    broker = image.cluster.brokers.get(broker_id)
    if broker is None:
        return None
    return next((Endpoint(one.host, one.port) for one in broker.end_points if one.name == listener), None)

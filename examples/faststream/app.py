"""A small application: orders come in, a shipment goes out for each, and what is no order is put aside."""

from __future__ import annotations

from typing import Any

from faststream import AckPolicy
from faststream.kafka import KafkaBroker, KafkaMessage
from pydantic import BaseModel, ValidationError


class Order(BaseModel):
    customer: str
    item: str


class Shipment(BaseModel):
    customer: str
    parcel: str


def shipping(bootstrap_servers: str, name: str = "shipping", **settings: Any) -> KafkaBroker:
    """The application, for FastStream to run. ``name`` is the client's id."""
    broker = KafkaBroker(bootstrap_servers, client_id=name, enable_idempotence=True, retry_backoff_ms=20, **settings)
    shipments, rejected = broker.publisher("shipments"), broker.publisher("rejected")

    # An order is acknowledged once its shipment is written, and is taken again if that fails.
    @broker.subscriber(
        "orders",
        group_id="shipping",
        auto_offset_reset="earliest",
        ack_policy=AckPolicy.NACK_ON_ERROR,
        heartbeat_interval_ms=100,
        session_timeout_ms=60_000,
    )
    async def ship(message: KafkaMessage) -> None:
        try:
            order = Order.model_validate_json(message.body)
        except ValidationError:
            await rejected.publish(message.body)
            return
        parcel = Shipment(customer=order.customer, parcel=f"one {order.item}")
        await shipments.publish(parcel, key=order.customer.encode())

    return broker

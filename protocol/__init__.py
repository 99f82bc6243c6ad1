"""Kafka's wire protocol, without any input or output: bytes in, messages out, and back."""

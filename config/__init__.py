"""Settings: Kafka's names, types and defaults, read as text and checked before anything starts."""

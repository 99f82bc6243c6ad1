"""The implementation of `format("kafka_log")`: its options, and the ranges of offsets for tasks."""

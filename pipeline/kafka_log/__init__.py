"""What stands behind `format("kafka_log")`: its options, and the ranges of offsets that they become."""

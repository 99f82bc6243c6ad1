"""Apache Kafka's own integration tests, run with our processes as their brokers."""

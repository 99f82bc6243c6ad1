"""Two brokers in turns under the same loads: ours and Apache Kafka, or ours of two commits."""

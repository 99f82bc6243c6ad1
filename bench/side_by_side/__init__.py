"""Two brokers measured in turns under the same loads: Ottla and Apache Kafka, or Ottla at two commits."""

"""Tools for benchmarks, documents and the Makefile: a broker process, Kafka's jars, Maven."""

"""What benchmarks, documents and the Makefile need beside the product: a broker process, Kafka's jars, Maven."""

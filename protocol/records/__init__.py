"""What stands inside Kafka's own topics: declared with the schema of the messages, framed each in its own way."""

"""Ottla: a broker that speaks Kafka's wire protocol and keeps Kafka's own files on disk."""

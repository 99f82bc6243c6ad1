"""Changes of the cluster: planned, written into the metadata log, answered once they are durable."""

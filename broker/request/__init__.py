"""What network and handlers both know: the queue between them, the slots, the context and the faults."""

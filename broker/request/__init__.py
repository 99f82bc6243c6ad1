"""What network and handlers share: the queue between them, sessions, response slots, the context and the faults."""

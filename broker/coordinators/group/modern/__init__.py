"""What consumer, share and streams groups have in common: epochs, target assignments, members, topics, timers."""

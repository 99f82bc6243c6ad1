"""Share groups read partitions: what each group's members hold of a partition, share sessions, fetches that wait."""

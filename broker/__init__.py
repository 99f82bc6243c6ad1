"""The daemon: sockets, requests, partitions, metadata."""

"""Sockets: which connections are accepted, what is received into which memory, and how answers are sent."""

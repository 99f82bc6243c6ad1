"""Sockets: who may connect, what is read into which memory, and how answers leave."""

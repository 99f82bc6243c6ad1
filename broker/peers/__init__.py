"""Outgoing connections: what this broker asks other nodes, and how the answers come back."""

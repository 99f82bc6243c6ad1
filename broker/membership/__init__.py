"""Membership of a cluster whose controllers are elsewhere: registration, heartbeats, forwarded requests."""

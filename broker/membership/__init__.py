"""Membership of a cluster whose controllers are elsewhere: what this broker asks them, and tells them of itself."""

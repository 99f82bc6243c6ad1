"""Consumer groups of the newer protocol (KIP-848)."""

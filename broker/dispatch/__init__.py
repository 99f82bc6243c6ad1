"""From a frame to its handler and back to the slot."""

"""The sentinel numbers for "none" in batches, in checkpoints, and in requests and answers about both."""

from typing import Final

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_EPOCH: Final = -1
"""No leader epoch."""
NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1

"""All groups of one partition of ``__consumer_offsets``: what is asked of them, and what their records make of them."""

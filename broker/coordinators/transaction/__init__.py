"""Transactions: the state machine of one partition of ``__transaction_state`` (KIP-98, KIP-360, KIP-890)."""

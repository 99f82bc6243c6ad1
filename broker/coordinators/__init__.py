"""Who keeps the state of groups and transactions: pure state machines, and what loads, writes and answers for them."""

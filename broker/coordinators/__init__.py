"""Coordinators of groups and transactions: a state machine per partition, and what loads, writes and answers for it."""

"""Quotas of clients: which limit applies to a client, what the client has used, and for how long it is throttled."""

"""Fetch: sessions, a pass over what is asked, the fast path, requests that wait, and the rules that they share."""

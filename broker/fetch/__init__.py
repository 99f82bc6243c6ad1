"""Reading for fetches: sessions, one pass over what is asked, the fast path, requests that wait."""

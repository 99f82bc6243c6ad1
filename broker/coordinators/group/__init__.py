"""The group coordinator: a state machine that is handed requests, records, time and ids, and does nothing by itself."""

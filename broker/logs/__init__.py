"""All logs of this broker: loading, closing, background tasks, what retention waits for."""

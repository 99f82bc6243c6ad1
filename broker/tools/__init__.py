"""The offline tools: `ottla dump` shows data directories, `ottla verify` checks them; and `ottla health`."""

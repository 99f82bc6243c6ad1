"""Whether the files of a data directory are whole: what `ottla verify` and `ottla pipeline audit` both ask."""

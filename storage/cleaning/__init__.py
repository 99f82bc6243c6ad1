"""Compaction: of a log's records with the same key, only the last is kept (KIP-58, KIP-98, KIP-354, KIP-534).

A cleaning round has three steps. `round` performs the first two in a process of its own; the broker performs the third.

1. The offset map: for each key of the dirty records, the last offset that has it.
2. Segments are copied, several into one, without the records that the map makes superfluous.
3. The copies take the place of the segments (`storage.log.Log.begin_swap`).
"""

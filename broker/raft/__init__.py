"""The metadata log on disk: its batches, snapshots and voters, and the formatting of new directories."""

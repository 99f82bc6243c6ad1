"""The metadata log on disk: its batches, snapshots, voters, and how a new directory is formatted."""

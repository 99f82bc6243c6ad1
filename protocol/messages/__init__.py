"""One file for each family of APIs, with declarations only."""

"""One file per API family: each asks the room that owns the matter, and answers."""

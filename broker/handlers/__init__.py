"""One file per API family: each asks the package that owns the subject, and answers."""

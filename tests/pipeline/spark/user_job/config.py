"""A user's own module, with the name of one of our packages."""

PREFIX = "theirs: "

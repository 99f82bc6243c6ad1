"""Exchange: the tokens of one authentication, by whichever mechanism; it knows no connection and no time."""

from typing import NamedTuple, Protocol


class AuthenticationFailed(Exception):
    """A client has not proved who it is. The text is for the client, in Kafka's words."""


class InvalidCredentials(Exception):
    """The same where the client is told no more than that. The text says what was wrong, for the log only."""


class Proven(NamedTuple):
    """Who the client is."""

    user: str
    expires_at_ms: int | None = None
    """When the credential ends (wall clock), where the client has shown one that does."""
    is_by_token: bool = False
    """The client has shown a delegation token of the user's."""


class Exchange(Protocol):
    """The broker's side of one authentication."""

    proven: Proven | None
    """Who the client is, once the exchange is over."""

    def respond(self, token: bytes) -> bytes:
        """The answer to the client's next token. Raises `AuthenticationFailed`, `InvalidCredentials`."""

"""What each API asks of an authorizer, as requests and the operations that each of them needs."""

"""counted: a number with its noun, as log lines have it."""


def counted(number: int, noun: str) -> str:
    """``1 batch``, ``0 batches``, ``2 batches``: for nouns whose plural has an s."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun}{'es' if noun.endswith(('s', 'x', 'ch', 'sh')) else 's'}"

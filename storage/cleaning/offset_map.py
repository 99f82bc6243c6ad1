"""The last offset of each key, in an amount of memory that is known beforehand.

An open-addressing hash table of slots of 24 bytes each:

    i64 first hash of the key
    i64 second hash of the key
    i64 offset + 1              0: the slot is empty

The keys themselves are not kept. Two keys with both hashes equal would count as one key; with 124 bits of hash and a
hundred million keys the chance of that is 1 in 10^21. Apache Kafka's map has the same size, and MD5 in place of the two
hashes.
"""

from typing import Final

SLOT_BYTES: Final = 24
_FIELDS: Final = 3
_POSITIVE: Final = (1 << 62) - 1
"""Hashes have 62 bits, the numbers that compiled code handles without an object."""
_SALT: Final = b"\x9e"


class OffsetMap:
    """The last offset of each key."""

    __slots__ = ("_slots", "_table", "latest_offset", "most_keys", "size")

    def __init__(self, slots: int, load_factor: float) -> None:
        """``slots`` of `SLOT_BYTES` bytes, of which at most the part ``load_factor`` is used (over 0, up to 1)."""
        self._slots = slots
        self._table = memoryview(bytearray(SLOT_BYTES * slots)).cast("q")
        self.most_keys = min(int(slots * load_factor), slots - 1)
        """How many keys the map takes."""
        self.size = 0
        """How many keys the map has."""
        self.latest_offset = -1
        """The last offset that the map knows about; records behind it are not cleaned."""

    @property
    def utilization(self) -> float:
        """The used part of all slots."""
        return self.size / self._slots

    def put(self, key: bytes, offset: int) -> bool:
        """Note that ``offset`` has this key; offsets come in rising order. False if the map is full: nothing is noted.

        A full map takes no offset at all, also for a key that it has: what lies behind is left to the next round.
        """
        table = self._table
        first = hash(key) & _POSITIVE
        second = hash(key + _SALT) & _POSITIVE
        at = first % self._slots * _FIELDS
        end = self._slots * _FIELDS
        if self.size >= self.most_keys:
            return False
        while True:
            stored: int = table[at + 2]
            if not stored:
                table[at] = first
                table[at + 1] = second
                self.size += 1
                break
            one: int = table[at]
            if one == first:
                two: int = table[at + 1]
                if two == second:
                    break
            at += _FIELDS
            if at == end:
                at = 0
        table[at + 2] = offset + 1
        return True

    def get(self, key: bytes) -> int:
        """The last offset with this key; -1 if no offset has it."""
        table = self._table
        first = hash(key) & _POSITIVE
        second = hash(key + _SALT) & _POSITIVE
        at = first % self._slots * _FIELDS
        end = self._slots * _FIELDS
        while True:
            stored: int = table[at + 2]
            if not stored:
                return -1
            one: int = table[at]
            if one == first:
                two: int = table[at + 1]
                if two == second:
                    return stored - 1
            at += _FIELDS
            if at == end:
                at = 0

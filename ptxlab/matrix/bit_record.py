"""Words made of named fields of bits: how descriptors are written down, encoded and read back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

FieldValue = int | str


@dataclass(frozen=True, slots=True)
class BitField:
    """``bits`` bits of a word from bit ``low`` on.

    They hold a number in steps of ``unit``, or where there are ``codes`` the code of a word such as
    ``bf16``. ``least`` is the smallest number allowed. A field left out is ``default``, and one that is
    ``fixed`` can have no other value.
    """

    name: str
    low: int
    bits: int
    unit: int = 1
    codes: Mapping[str, int] | None = None
    default: FieldValue = 0
    least: int = 0
    fixed: bool = False

    @property
    def high(self) -> int:
        """The highest bit."""
        return self.low + self.bits - 1

    def encode(self, value: FieldValue) -> int:
        """Return the bits of ``value``, in place. Raises ValueError for one it cannot have."""
        if self.fixed and value != self.default:
            raise ValueError(f"{self.name} is {self.default} here, not {value}")
        if self.codes is not None:
            if value not in self.codes:
                known = ", ".join(self.codes)
                raise ValueError(f"{self.name} {value} has no code here; it is {known}")
            return self.codes[str(value)] << self.low
        number = int(value)
        if number % self.unit:
            raise ValueError(f"{self.name} {number} is no multiple of {self.unit}")
        largest = ((1 << self.bits) - 1) * self.unit
        if not self.least <= number <= largest:
            raise ValueError(f"{self.name} {number} is not from {self.least} to {largest}")
        return number // self.unit << self.low

    def stored(self, word: int) -> int:
        """Return the field's bits of ``word`` as a number."""
        return word >> self.low & ((1 << self.bits) - 1)

    def decode(self, word: int) -> FieldValue:
        """Return the value. Raises ValueError for bits that mean none."""
        stored = self.stored(word)
        if self.codes is None:
            value: FieldValue = stored * self.unit
            valid = stored * self.unit >= self.least
        else:
            words = [name for name, code in self.codes.items() if code == stored]
            value = words[0] if words else stored
            valid = bool(words)
        if not valid or (self.fixed and value != self.default):
            raise ValueError(f"bits {self.low} to {self.high}, {self.name}, cannot be {stored}")
        return value


def choice(name: str, low: int, codes: Mapping[str, int], bits: int = 1) -> BitField:
    """Return the field of words with ``codes``, of which the first stands where it is left out."""
    return BitField(name, low, bits, codes=codes, default=next(iter(codes)))


@dataclass(frozen=True, slots=True, eq=False)
class BitRecord:
    """A word of ``width`` bits made of ``fields``; all other bits are reserved and zero.

    ``section`` is the title of the PTX ISA's section on it. Raises ValueError when fields overlap.
    """

    name: str
    width: int
    section: str
    fields: tuple[BitField, ...]

    def __post_init__(self) -> None:
        masks = [((1 << f.bits) - 1) << f.low for f in self.fields]
        if sum(masks) != self.used or self.used >> self.width:
            raise ValueError(f"{self.name}: fields overlap or reach over {self.width} bits")

    @property
    def used(self) -> int:
        """The bits that belong to a field, as a mask."""
        used = 0
        for field in self.fields:
            used |= ((1 << field.bits) - 1) << field.low
        return used

    def field(self, name: str) -> BitField:
        """Return the field of that name. Raises ValueError when there is none."""
        for field in self.fields:
            if field.name == name:
                return field
        known = ", ".join(field.name for field in self.fields)
        raise ValueError(f"{self.name} has no field {name}; it has {known}")

    def encode(self, values: Mapping[str, FieldValue]) -> int:
        """Return the word. Raises ValueError for a field it does not have or a value it cannot have."""
        for name in values:
            self.field(name)
        word = 0
        for field in self.fields:
            word |= field.encode(values.get(field.name, field.default))
        return word

    def decode(self, word: int) -> dict[str, FieldValue]:
        """Return the value of every field. Raises ValueError for a word that is none of these."""
        if not 0 <= word < 1 << self.width:
            raise ValueError(f"{word:#x} is no word of {self.width} bits")
        stray = word & ~self.used
        if stray:
            bits = ", ".join(str(bit) for bit in range(self.width) if stray >> bit & 1)
            raise ValueError(f"{self.name} {word:#x} has reserved bits set: {bits}")
        return {field.name: field.decode(word) for field in self.fields}

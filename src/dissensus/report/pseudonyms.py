"""Make stable pseudonyms: an annotator has the same one in every report, and it reveals nothing about the name.

A pseudonym is a keyed hash (BLAKE2b) of the name. Without a secret `salt`, a guessed name can be verified; with a salt,
pseudonyms stay the same as long as the salt does.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

PSEUDONYM_ALPHABET = "0123456789BCDFGHJKLMNPQRSTVWXZ"  # Without vowels and Y, a pseudonym cannot be a word.
PSEUDONYM_LENGTH = 5  # characters, unless two annotators of a table would get the same pseudonym
MAX_PSEUDONYM_LENGTH = 16


def make_pseudonyms(names: Sequence[Any], salt: str = "") -> list[str]:
    """Return a different pseudonym for each name.

    >>> make_pseudonyms(["ann", "bob"])
    ['A76JD9', 'ASGS5F']
    """
    codes = [_hash_name(name, salt) for name in names]
    result = [code[:PSEUDONYM_LENGTH] for code in codes]
    for length in range(PSEUDONYM_LENGTH + 1, MAX_PSEUDONYM_LENGTH + 1):
        shared = Counter(result)
        if len(shared) == len(result):
            break
        result = [code[:length] if shared[short] > 1 else short for code, short in zip(codes, result, strict=True)]
    return [f"A{code}" for code in result]


def _hash_name(name: Any, salt: str) -> str:
    key = blake2b(salt.encode(), digest_size=32).digest()
    number = int.from_bytes(blake2b(str(name).encode("utf-8", "surrogatepass"), digest_size=16, key=key).digest())
    code = ""
    for _ in range(MAX_PSEUDONYM_LENGTH):
        number, digit = divmod(number, len(PSEUDONYM_ALPHABET))
        code += PSEUDONYM_ALPHABET[digit]
    return code

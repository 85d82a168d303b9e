"""Which types of keys a sketch was given, so that ``3`` and ``"3"``, which are different keys, are not confused without notice.

A sketch counts hashes, and a key of another type has another hash: asked for ``"3"`` where all keys are integers, it would
answer 0, and be certain of it.
"""

import numpy as np

from lately.core.errors import InputError
from lately.core.keys import DictionaryKeys, HashedKeys, IntegerKeys, Keys, MixedKeys, TextKeys

#: The types that were given; None if unknown: keys came as hashes, or the sketch was read from bytes.
KeyTypes = frozenset[type] | None

NO_KEYS: KeyTypes = frozenset()

_INTEGERS, _TEXT, _BYTES = (frozenset[type]({kind}) for kind in (int, str, bytes))


def types_of_keys(keys: Keys) -> KeyTypes:
    """The types in a column: int, str, bytes or tuple.

    Parameters
    ----------
    keys
        The column.

    >>> from lately.core.keys import key_column
    >>> [kind.__name__ for kind in types_of_keys(key_column([1, 2]))], types_of_keys(HashedKeys(key_column([]).values))
    (['int'], None)
    """
    if isinstance(keys, TextKeys):
        return _TEXT if keys.text else _BYTES
    if isinstance(keys, IntegerKeys):
        return _INTEGERS if len(keys) else NO_KEYS  # an empty column is read as integers
    if isinstance(keys, HashedKeys):
        return None if keys.source is None else types_of_keys(keys.source)
    if isinstance(keys, DictionaryKeys):
        return types_of_keys(keys.values)
    if isinstance(keys, MixedKeys):
        return union(*(types_of_keys(key) for key in keys.keys))
    return frozenset({tuple})


def union(*types: KeyTypes) -> KeyTypes:
    """All types of several columns or sketches; None if those of one are not known.

    Parameters
    ----------
    types
        The types of each.
    """
    if None in types:
        return None
    return frozenset[type]().union(*(kinds for kinds in types if kinds is not None))


def check_key_types(keys: Keys, counted: KeyTypes) -> None:
    """Refuse a question for a number written as text where all keys are integers, or for an integer where all are text.

    Parameters
    ----------
    keys
        The keys of the query.
    counted
        The types of the keys that were counted.

    >>> from lately.core.keys import key_column
    >>> check_key_types(key_column(["3"]), frozenset({int}))
    Traceback (most recent call last):
    lately.core.errors.InputError: the key '3' is text, and all keys of this sketch are integers; ask for 3
    """
    if counted not in (_INTEGERS, _TEXT):  # of several types, or of bytes and tuples, which have no other spelling
        return
    types = types_of_keys(keys)
    if types is None or types == counted or not types & {int, str} - counted:
        return
    for key in keys.pick(np.arange(len(keys))):
        if counted == _TEXT and isinstance(key, int):
            raise InputError(f"the key {key} is an integer, and all keys of this sketch are text", remedy=f"ask for '{key}'")
        if counted == _INTEGERS and isinstance(key, str) and _is_number(key):
            raise InputError(f"the key {key!r} is text, and all keys of this sketch are integers", remedy=f"ask for {int(key)}")


def _is_number(text: str) -> bool:
    """Whether this is an integer as Python writes it, of 64 bits at most.

    >>> [_is_number(text) for text in ("3", "-7", "007", "3.0", "x", "9" * 30)]
    [True, True, False, False, False, False]
    """
    digits = text.removeprefix("-")
    return len(text) <= 20 and digits.isdecimal() and digits.isascii() and str(int(text)) == text

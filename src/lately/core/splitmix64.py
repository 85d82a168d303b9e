"""SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): 64-bit words that look random, from a counter and two multiplications.

    word(i) = mix(seed + i · GAMMA)        mix is a bijection, so different inputs give different words

``mix`` is for kernels; ``random_words`` is the generator itself, in NumPy. What they return is part of stored sketches:
hash functions and positions of merged cells follow from it.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lately.core.jit import helper

#: 2**64 over the golden ratio, made odd: its multiples spread evenly over all words.
GAMMA = np.uint64(0x9E3779B97F4A7C15)

_MIX1, _MIX2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


def _mix(word: Any) -> Any:
    """The finalizer: neighbouring words become unrelated ones."""
    word = (word ^ (word >> _30)) * _MIX1
    word = (word ^ (word >> _27)) * _MIX2
    return word ^ (word >> _31)


#: The finalizer for kernels, inlined into them; it takes and returns one unsigned 64-bit word.
mix = helper(_mix)


def random_words(seed: int, size: int) -> NDArray[np.uint64]:
    """The first ``size`` words of the generator that starts from ``seed``.

    >>> hex(random_words(0, 1)[0])
    '0xe220a8397b1dcdaf'
    """
    words: NDArray[np.uint64] = _mix(np.arange(1, size + 1, dtype=np.uint64) * GAMMA + np.uint64(seed % 2**64))
    return words

"""Keys in every form that a column of them may come in, and what they must hash to."""

import struct
from collections import deque

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import xxhash
from hypothesis import strategies as st

from lately.core.keys import SEED


def identity(key, seed=SEED):
    """What a key must hash to, one key at a time."""
    if isinstance(key, tuple):
        for part in key:
            seed = identity(part, seed)
        return seed
    raw = key if isinstance(key, bytes) else key.encode() if isinstance(key, str) else struct.pack("<q", key)
    return xxhash.xxh64_intdigest(raw, seed)


def identities(keys):
    return [identity(key) for key in keys]


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=50)
integers = st.integers(-(2**63), 2**63 - 1)

WORDS = ["", "a", "Grüße", "日本語", "a\0b", "\0", "x" * 31, "x" * 32, "x" * 33, "y" * 100, "a"]
NUMBERS = [0, 1, -1, 42, 2**31, -(2**31), 2**63 - 1, -(2**63), 42]

TEXT_COLUMNS = {
    "list": WORDS,
    "numpy objects": np.array(WORDS, object),
    "Arrow string": pa.array(WORDS, pa.string()),
    "Arrow large_string": pa.array(WORDS, pa.large_string()),
    "Arrow string_view": pa.array(WORDS, pa.string_view()),
    "Arrow binary": pa.array([w.encode() for w in WORDS], pa.binary()),
    "Arrow large_binary": pa.array([w.encode() for w in WORDS], pa.large_binary()),
    "Arrow binary_view": pa.array([w.encode() for w in WORDS], pa.binary_view()),
    "Arrow dictionary": pa.array(WORDS).dictionary_encode(),
    "Arrow dictionary of large_string": pa.array(WORDS, pa.large_string()).dictionary_encode(),
    "Arrow dictionary with int8 codes": pa.array(WORDS).dictionary_encode().cast(pa.dictionary(pa.int8(), pa.string())),
    "chunked Arrow": pa.chunked_array([WORDS[:3], [], WORDS[3:]], pa.string()),
    "chunked Arrow dictionaries": pa.chunked_array(
        [pa.array(WORDS[:4]).dictionary_encode(), pa.array(WORDS[4:]).dictionary_encode()]
    ),
    "pandas objects": pd.Series(WORDS, dtype=object),
    "pandas string": pd.Series(WORDS, dtype="string"),
    "pandas string of Arrow": pd.Series(WORDS, dtype="string[pyarrow]"),
    # From codes, because pandas itself takes "a" and "a\0b" for one.
    "pandas category": pd.Series(pd.Categorical.from_codes([*range(10), 1], WORDS[:10])),
    "pandas index": pd.Index(WORDS),
    "pandas with another index": pd.Series(WORDS, index=range(5, 5 + len(WORDS))),
    "polars": pl.Series(WORDS),
    "polars categorical": pl.Series(WORDS, dtype=pl.Categorical),
    "polars enum": pl.Series(WORDS, dtype=pl.Enum(sorted(set(WORDS)))),
    "polars binary": pl.Series([w.encode() for w in WORDS]),
    "a generator": lambda: (w for w in WORDS),
}

NUMBER_COLUMNS = {
    "list": NUMBERS,
    "numpy": np.array(NUMBERS),
    "numpy, every second": np.array([n for n in NUMBERS for _ in (0, 1)])[::2],
    "numpy objects": np.array(NUMBERS, object),
    "Arrow": pa.array(NUMBERS),
    "chunked Arrow": pa.chunked_array([NUMBERS[:2], NUMBERS[2:]]),
    "Arrow dictionary": pa.array(NUMBERS).dictionary_encode(),
    "pandas": pd.Series(NUMBERS),
    "pandas nullable": pd.Series(NUMBERS, dtype="Int64"),
    "pandas of Arrow": pd.Series(NUMBERS, dtype="int64[pyarrow]"),
    "pandas category": pd.Series(NUMBERS, dtype="category"),
    "pandas index": pd.Index(NUMBERS),
    "polars": pl.Series(NUMBERS),
}

ROWS = list(zip(WORDS, range(len(WORDS)), strict=True))
TABLE = pa.table({"a": WORDS, "b": range(len(WORDS))})
MIXED = ["a", 1, b"a", ("a", 1), (("a", b"b"), -1), 2**63 - 1, "Grüße", 1]
WIDTHS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]

#: Every form with the keys that it must give back.
COLUMNS = {
    **{f"text: {name}": (c, [w.encode() for w in WORDS] if "binary" in name else WORDS) for name, c in TEXT_COLUMNS.items()},
    **{f"integers: {name}": (c, NUMBERS) for name, c in NUMBER_COLUMNS.items()},
    **{f"integers: numpy {width}": (np.array([0, 5, 127], width), [0, 5, 127]) for width in (*WIDTHS, ">i4", ">u8")},
    **{f"integers: Arrow {width}": (pa.array([0, 5, 127], width), [0, 5, 127]) for width in WIDTHS},
    "integers: a range": (range(5), [0, 1, 2, 3, 4]),
    "integers: a list of NumPy's": ([np.int8(1), np.int64(2)], [1, 2]),
    "text: numpy U": (np.array(["ab", "", "Grüße"]), ["ab", "", "Grüße"]),
    "text: numpy S": (np.array([b"ab", b"", b"abcde"]), [b"ab", b"", b"abcde"]),
    "text: a list of NumPy's": ([np.str_("a"), np.str_("b")], ["a", "b"]),
    "text: a list of NumPy's bytes": ([np.bytes_(b"a"), b"b"], [b"a", b"b"]),
    "text: Arrow fixed-size": (pa.array([b"ab", b"\0\0"], pa.binary(2)), [b"ab", b"\0\0"]),
    "text: Arrow sliced": (pa.array(WORDS).slice(3, 5), WORDS[3:8]),
    "text: Arrow large_string sliced": (pa.array(WORDS, pa.large_string()).slice(3, 5), WORDS[3:8]),
    "text: Arrow string_view sliced": (pa.array(WORDS, pa.string_view()).slice(3, 5), WORDS[3:8]),
    "text: Arrow dictionary sliced": (pa.array(WORDS).dictionary_encode().slice(3, 5), WORDS[3:8]),
    "text: Arrow dictionary of 200, by int8": (
        pa.DictionaryArray.from_arrays(pa.array([127, 0, 126], pa.int8()), [str(i) for i in range(128)]),
        ["127", "0", "126"],
    ),
    "tuples: a list": (ROWS, ROWS),
    "tuples: numpy objects": (np.array([*ROWS, None], object)[:-1], ROWS),
    "tuples: nested": ([((i, w), w.encode()) for w, i in ROWS], [((i, w), w.encode()) for w, i in ROWS]),
    "tuples: of mixed parts": ([("a", 1), (1, b"a"), (("a",), "a")], [("a", 1), (1, b"a"), (("a",), "a")]),
    "tuples: of NumPy's": ([(np.str_("a"), np.int8(1))], [("a", 1)]),
    "tuples: Arrow table": (TABLE, ROWS),
    "tuples: Arrow table sliced": (TABLE.slice(2, 5), ROWS[2:7]),
    "tuples: Arrow struct sliced": (TABLE.to_struct_array().combine_chunks().slice(2, 5), ROWS[2:7]),
    "tuples: pandas frame": (TABLE.to_pandas(), ROWS),
    "tuples: polars frame": (pl.from_arrow(TABLE), ROWS),
    "tuples: polars structs": (pl.from_arrow(TABLE).to_struct(), ROWS),
    "tuples: a frame of one column": (pd.DataFrame({"a": WORDS}), [(w,) for w in WORDS]),
    "tuples: a frame with a category": (pd.DataFrame({"b": NUMBERS, "a": pd.Categorical(NUMBERS)}), [(n, n) for n in NUMBERS]),
    "mixed": (MIXED, MIXED),
    "mixed: numpy objects": (np.array([*MIXED, None], object)[:-1], MIXED),
    "mixed: pandas objects": (pd.Series(MIXED, dtype=object), MIXED),
    "mixed: text and bytes": (["a", b"a", "b"], ["a", b"a", "b"]),
    "mixed: a generator of text and bytes": (lambda: (k for k in ("a", b"a", "b")), ["a", b"a", "b"]),
    "mixed: a deque of text and bytes": (deque(["a", b"a", "b"]), ["a", b"a", "b"]),
    "mixed: NumPy's": ([np.int8(1), np.str_("a"), np.bytes_(b"a")], [1, "a", b"a"]),
    "one integer": (7, [7]),
    "one text": ("Grüße", ["Grüße"]),
    "one key of bytes": (b"a", [b"a"]),
    "one tuple": (("a", (1, b"b")), [("a", (1, b"b"))]),
    "one of NumPy's": (np.str_("a"), ["a"]),
    "one of Arrow's": (pa.scalar("a"), ["a"]),
    "none": ([], []),
    "no text": (pa.array([], pa.string()), []),
}

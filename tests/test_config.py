"""A pipeline file is read as it is meant, and every mistake in it is told with its line and with what to do."""

import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lately import monitor
from lately.config import Config, Exact, load, of, parse
from lately.core.errors import LatelyError, ParameterError
from lately.sketches.dyadic import Dyadic
from lately.sketches.ecm import EcmSketch
from lately.sketches.quantiles import Quantiles
from lately.sketches.topk import TopK
from lately.sketches.windowed_ams import WindowedAmsSketch
from lately.toml_lines import TomlLines, dotted

PAGE = Path(__file__).parent.parent / "docs" / "pipeline.md"
EXAMPLES = [
    block for block in re.findall(r"(?ms)^```toml\n(.*?)^```", PAGE.read_text()) if re.match(r"name =|\[source\]", block)
]
CLASSES = {"ecm": EcmSketch, "topk": TopK, "quantiles": Quantiles, "dyadic": Dyadic, "ams": WindowedAmsSketch}

SMALL = """\
name = "shop"
[source]
format = "kafka"
[columns]
time = "ts"
key = "url"
[window]
length = "1h"
[store]
path = "store"
[run]
checkpoint = "state"
[[queries]]
name = "hot"
kind = "top"
"""


def mistakes(text):
    with pytest.raises(ParameterError) as caught:
        parse(text)
    return str(caught.value).replace("pipeline.toml:", "").splitlines()


def asking(*lines):
    """The small file with another query, whose lines are from 15 on."""
    return SMALL.replace('kind = "top"\n', "".join(f"{line}\n" for line in lines))


def watching(*lines):
    """The small file with a monitor: its header is line 16, its lines are from 18 on."""
    return SMALL + '[[monitors]]\nname = "watch"\n' + "".join(f"{line}\n" for line in lines)


# -- what is right -----------------------------------------------------------------------------------------------------


def test_the_page_has_examples_and_each_is_valid():
    assert len(EXAMPLES) == 3
    for text in EXAMPLES:
        assert isinstance(parse(text), Config)


def test_the_page_has_every_key():
    text = PAGE.read_text()
    tables = [
        Config,
        *(field.annotation for field in Config.model_fields.values() if hasattr(field.annotation, "model_fields")),
    ]
    queries = [type(query) for example in EXAMPLES for query in parse(example).queries]
    for table in {*tables, *queries, type(parse(EXAMPLES[0]).monitors[0])}:
        for key in table.model_fields:
            assert re.search(rf"(?m)`(\w+\.)?{key}`|^\[+{key}\]|^{key} = ", text), f"{table.__name__}.{key}"


def test_the_complete_example_says_what_it_says():
    config = parse(EXAMPLES[0])
    assert config.name == "shop"
    assert config.source.options == {"maxFilesPerTrigger": 100}
    assert config.run.spark == {"spark.sql.shuffle.partitions": 8}
    assert config.run.processing_time == "5000 milliseconds"
    assert [query.kind for query in config.queries] == ["top", "top", "counts", "quantiles", "join", "exact"]
    assert config.queries[3].q == [0.5, 0.95, 0.99]


def test_names_with_dots_need_no_quotes():
    options = parse(EXAMPLES[2]).source.options
    assert options == {"kafka.bootstrap.servers": "broker:9092", "subscribe": "flows", "startingOffsets": "earliest"}
    assert parse(SMALL.replace("[[", '[run.spark]\nspark.ui.enabled = false\n"spark.a.b" = 1\n[[')).run.spark == {
        "spark.ui.enabled": False,
        "spark.a.b": 1,
    }


def test_sketches_are_what_queries_need():
    config = parse(EXAMPLES[0].replace("eps = 0.05", "eps = 0.05\ndelta = 0.2"))
    base = {"window": "1h", "tick": "1s", "lateness": "30s", "eps": 0.01, "delta": 0.01}
    numbers = {"lo": 0, "hi": 60_000, "resolution": 1, "outside": "clip"}
    assert [config.sketch_of(query) for query in config.queries] == [
        ("topk", base | {"k": 20}),
        ("topk", base | {"k": 10}),
        ("ecm", base | {"query": "point"}),
        ("quantiles", base | numbers),
        ("ams", base | {"eps": 0.05, "delta": 0.2}),
        None,
    ]
    ports, skew, _ = map((flows := parse(EXAMPLES[2])).sketch_of, flows.queries)
    assert ports == ("dyadic", {"window": "10m", "eps": 0.01, "delta": 0.01, "universe": 65_536})
    assert skew == ("ams", {"window": "10m", "eps": 0.05, "delta": 0.01})


@pytest.mark.parametrize(("guarantee", "own", "eps"), [(0.01, None, 0.1), (0.2, None, 0.2), (0.01, 0.02, 0.02)])
def test_joins_have_an_eps_of_their_own_as_theirs_is_a_share_of_the_norms(guarantee, own, eps):
    text = asking('kind = "self-join"', *([] if own is None else [f"eps = {own}"])) + f"\n[guarantee]\neps = {guarantee}\n"
    config = parse(text)
    assert config.sketch_of(config.queries[0]) == ("ams", {"window": "1h", "eps": eps, "delta": 0.01})


@pytest.mark.parametrize("text", EXAMPLES)
def test_sketches_windows_and_monitors_can_be_built(text):
    config = parse(text)
    for query in config.queries:
        if isinstance(query, Exact):
            windows = config.windows()
            what, options = config.exact_of(query)
            windows.add(query.name, what, **options)
            assert windows.queries == (query.name,)
        else:
            kind, options = config.sketch_of(query)
            assert CLASSES[kind](**options).eps == options["eps"]
    for watch in config.monitors:
        assert isinstance(config.monitor_of(watch), monitor.Monitor)


@pytest.mark.parametrize(
    ("lines", "shown"),
    [
        (('aggregate = "count"',), "count()"),
        (('aggregate = "sum"', 'of = "price * n"'), "sum('price * n')"),
        (('aggregate = "quantile"', 'of = "ms"', "q = 0.9"), "quantile('ms', 0.9)"),
        (('aggregate = "max"', 'of = "ms"', 'per = "site"', "above = 5"), "max('ms') > 5.0"),
        (('aggregate = "count"', 'per = "site"', "below = 5", 'last = "10m"'), "count() < 5.0"),
    ],
)
def test_exact_queries_are_what_windows_take(lines, shown):
    config = parse(asking('kind = "exact"', *lines))
    (query,) = config.queries
    what, options = config.exact_of(query)
    assert str(what) == shown
    assert options == {"last": query.last or "1h", "per": query.per}


def test_monitors_are_what_the_file_says():
    config = parse(
        watching('kind = "count"', "key = 7", "above = 10", 'last = "10m"', "theta = 0.2", "eps = 0.05", 'scheme = "geometric"')
    )
    (built,) = map(config.monitor_of, config.monitors)
    assert built.names == ("watch",)
    assert built.scheme == "geometric"
    assert built.sketch == monitor.Ecm(window="10m", eps=0.05, delta=0.1, seed=built.seed)
    assert built.queries == (monitor.Count(key=7, above=10, theta=0.2),)
    for kind, built in (
        (("count", "key = 7"), monitor.Count(key=7, below=5, theta=0.1)),
        (("self-join", ""), monitor.SelfJoin(below=5, theta=0.1)),
        (("join", 'left = "a"', 'right = "b"'), monitor.InnerProduct(of=("left", "right"), below=5, theta=0.1)),
    ):
        config = parse(watching(f'kind = "{kind[0]}"', *kind[1:], "below = 5"))
        assert config.monitor_of(config.monitors[0]).queries == (built,)
    frequent = parse(watching('kind = "frequent"', "tau = 100"))
    assert frequent.monitor_of(frequent.monitors[0]).frequent == ("watch", monitor.Frequent(tau=100, theta=0.1))


def test_a_window_in_integers_makes_all_lengths_integers():
    config = parse(SMALL.replace('"1h"', "3600\ntick = 10\nlateness = 30") + "last = 600\n")
    assert config.window.window.kind == "integer"
    assert config.window.future is None
    assert config.sketch_of(config.queries[0])[1]["window"] == 3600
    assert parse(asking('kind = "exact"', 'aggregate = "count"').replace('"1h"', "3600")).windows().queries == ()


def test_a_store_keeps_all_or_at_least_the_window():
    assert parse(SMALL).store.keep is None
    for keep in ("1h", "60m", "7d"):
        assert parse(SMALL.replace('"store"', f'"store"\nkeep = "{keep}"')).store.keep == keep
    assert parse(SMALL.replace('"1h"', "3600").replace('"store"', '"store"\nkeep = 3600')).store.keep == 3600


def test_groups_may_have_a_lateness_of_nothing():
    text = asking('kind = "exact"', 'aggregate = "count"', 'per = "url"', "above = 3")
    assert parse(text.replace('"1h"', '"1h"\nlateness = "0s"')).queries[0].per == "url"


def test_the_future_may_be_any_number_of_odd_ticks_when_nobody_gave_it():
    assert parse(SMALL.replace('"1h"', '"70s"\ntick = "7s"')).window.future == "5m"


# -- what is wrong -----------------------------------------------------------------------------------------------------

WRONG = {
    "an empty file": (
        "",
        [
            '1: missing section [source]; add it with format = "parquet"',
            '1: missing section [columns]; add it with time = "ts" and key = "url"',
            '1: missing section [window]; add it with length = "1h"',
            '1: missing section [store]; add it with path = "store"',
        ],
    ),
    "a key that is missing": (SMALL.replace("length", "#"), ['7: [window] has no length; add length = "1h"']),
    "a key that a query misses": (
        asking('kind = "quantiles"', "lo = 0", "hi = 1"),
        ["13: queries[0] has no resolution; add resolution = 0.01"],
    ),
    "a list that a query misses": (asking('kind = "counts"'), ['13: queries[0] has no keys; add keys = ["/cart", "/pay"]']),
    "a query without a kind": (
        asking("k = 3"),
        ["13: queries[0] has no kind; give one of counts, top, quantiles, ranges, self-join, join, exact"],
    ),
    "a monitor without a kind": (watching("tau = 3"), ['16: monitors[0] has no kind; add kind = "self-join"']),
    "a kind that there is not": (
        SMALL + '[[queries]]\nname = "b"\n\nkind = "tops"\n',
        ['19: queries[1].kind = "tops": must be one of counts, top, quantiles, ranges, self-join, join, exact'],
    ),
    "a kind misspelt": (asking('knd = "top"'), None),
    "a key misspelt": (SMALL.replace("format", 'pth = "x"\nformat'), ["3: unknown key pth in [source]; did you mean path?"]),
    "a needed key misspelt, told once": (
        SMALL.replace("length", "lenght"),
        ["8: unknown key lenght in [window]; did you mean length?"],
    ),
    "a table misspelt": (SMALL.replace("[window]", "[windw]"), ["7: unknown section [windw]; did you mean [window]?"]),
    "a key of another table": (
        SMALL.replace('"1h"', '"1h"\neps = 0.1'),
        ["9: unknown key eps in [window]; it belongs in [guarantee]"],
    ),
    "a key that nobody knows": (
        SMALL.replace('"state"', '"state"\n"zürich hb" = 1'),
        ['13: unknown key "zürich hb" in [run]; use one of checkpoint, trigger, master, seed, lease, spark'],
    ),
    "a word that is none of a few": (
        SMALL.replace("format", 'mode = "stream"\nformat'),
        ['3: source.mode = "stream": must be one of batch, available-now, continuous'],
    ),
    "numbers out of bounds": (
        SMALL.replace("[store]", "[guarantee]\neps = 0\ndelta = 1.0\n[store]") + "k = 0\n",
        [
            "10: guarantee.eps = 0: must be greater than 0",
            "11: guarantee.delta = 1.0: must be less than 1",
            "19: queries[0].k = 0: must be at least 1",
        ],
    ),
    "wrong types": (
        asking('kind = "quantiles"', 'q = [0.5, "a",\n  2]', 'lo = "0"', "hi = inf", "resolution = true", "by = 3"),
        [
            '16: queries[0].q[1] = "a": must be a number',
            "17: queries[0].q[2] = 2: must be at most 1",
            '18: queries[0].lo = "0": must be a number',
            "19: queries[0].hi = inf: must be a finite number",
            "20: queries[0].resolution = true: must be a number",
            "21: queries[0].by = 3: must be one of all, site",
        ],
    ),
    "no tables where tables belong": (
        """name = 3
source = "kafka"
columns = { time = "ts" }
window = []
queries = [1]
store = { path = "" }
run.spark = 3
""",
        [
            "1: name = 3: must be text, in quotes",
            '2: source = "kafka": must be a table',
            '3: [columns] has no key; add key = "url"',
            "4: window = []: must be a table",
            "5: queries[0] = 1: must be a table",
            '6: store.path = "": must not be empty',
            "7: run.spark = 3: must be a table of names and values",
        ],
    ),
    "one bracket": (
        SMALL.replace("[[queries]]", "[queries]"),
        ["13: [queries]: must be an array of tables; write [[queries]]"],
    ),
    "a name with odd signs": (
        SMALL.replace('"hot"', '"hot/cold"'),
        [
            '14: queries[0].name = "hot/cold": may contain letters, digits, spaces and _ . - only, '
            "and must start with a letter or digit"
        ],
    ),
    "an endless name": (
        SMALL.replace('"hot"', f'"{"x" * 81}"'),
        [f'14: queries[0].name = "{"x" * 59}…: must have at most 80 characters'],
    ),
    "an empty list": (asking('kind = "counts"', "keys = []"), ["16: queries[0].keys = []: must have at least 1 item"]),
    "keys that are none": (
        asking('kind = "counts"', "keys = [1, 2.5, 9223372036854775808]"),
        [
            "16: queries[0].keys[1] = 2.5: must be a key: text in quotes or a whole number",
            "16: queries[0].keys[2] = 9223372036854775808: must be between -2**63 and 2**63 - 1",
        ],
    ),
    "keys of two types": (
        asking('kind = "counts"', "keys = [\n  1,\n  'a']"),
        ["16: queries[0].keys = […: text and numbers are mixed, but a column has one type; put all in quotes, or none"],
    ),
    "ranges that are none": (
        asking('kind = "ranges"', "universe = 10", "ranges = [[0, 1],", "  [2],", "  [3, 2]]"),
        [
            "18: queries[0].ranges[1] = [2]: must be the first and the last key of a range, such as [0, 1023]",
            "19: queries[0].ranges[2] = [3, 2]: the first key is greater than the last; give the smaller key first",
        ],
    ),
    "ranges outside of the universe": (
        asking('kind = "ranges"', "universe = 10", "ranges = [[0, 9],\n  [0, 10]]"),
        ["18: queries[0].ranges[1] = [0, 10]: keys must be from 0 to 9; correct the range or the universe"],
    ),
    "a universe too large": (
        asking('kind = "ranges"', "universe = 99999999999999999999", "ranges = [[0, 9]]"),
        [
            "13: queries[0]: universe=99999999999999999999 is not an integer from 2 to 2**63; "
            "keys are integers from 0 to universe - 1"
        ],
    ),
    "a duration that is none": (
        SMALL.replace('"1h"', '"1 fortnight"'),
        [
            "8: window.length = \"1 fortnight\": cannot read the duration '1 fortnight'; write a number and one of ns, us, ms, "
            "s, m, h, d, w, as in '10m'"
        ],
    ),
    "a length of neither kind": (
        SMALL.replace('"1h"', "2026-01-01"),
        ['8: window.length = 2026-01-01: must be a duration such as "10m", or a whole number if times are whole numbers'],
    ),
    "a window that its ticks do not fill": (
        SMALL.replace('"1h"', '"1h"\ntick = "7m"'),
        ["7: [window]: window='1h' is not a whole number of ticks of '7m'; make it a multiple of tick="],
    ),
    "lateness and future that do not fit": (
        SMALL.replace('"1h"', '"1h"\nlateness = "2h"\nfuture = "1500ms"'),
        [
            '9: window.lateness = "2h": must be at most 1h, the length of the window',
            "10: window.future = \"1500ms\": '1500ms' is not a whole number of ticks of 1s; ask for a multiple of a tick",
        ],
    ),
    "a text where times are integers": (
        SMALL.replace('"1h"', "3600\nlateness = '1m'\nfuture = 5"),
        [
            "9: window.lateness = '1m': '1m': this window is over integer times; give a whole number",
            "10: window.future = 5: whole numbers cannot be compared with a clock; leave future out",
        ],
    ),
    "ranges of time that do not fit": (
        SMALL + 'last = "61m"\n[[monitors]]\nname = "m"\nkind = "self-join"\nlast = "1500ms"\n',
        [
            '16: queries[0].last = "61m": must be at least 1s and at most 1h, the window',
            "20: monitors[0].last = \"1500ms\": '1500ms' is not a whole number of ticks of 1s; ask for a multiple of a tick",
        ],
    ),
    "a range of nothing": (
        SMALL + 'last = "0s"\n',
        ['16: queries[0].last = "0s": must be at least 1s and at most 1h, the window'],
    ),
    "columns that are not there": (
        asking('kind = "quantiles"', "lo = 0", "hi = 1", "resolution = 0.1", 'by = "site"'),
        [
            '15: queries[0].kind = "quantiles": no column has the values; add value = "column" to [columns]',
            '19: queries[0].by = "site": no column has the sites; add site = "column" to [columns]',
        ],
    ),
    "quantiles of nothing": (
        asking('kind = "quantiles"', "lo = 3", "hi = 2", "resolution = 1").replace('"url"', '"url"\nvalue = "ms"'),
        ["14: queries[0]: lo=3, hi=2, resolution=1; give lo < hi and a resolution of at most hi - lo"],
    ),
    "a sketch too large": (
        asking('kind = "self-join"', "eps = 0.000000002"),
        ["13: queries[0]: eps=2e-09, delta=0.01 need 25,629,621,861,583,308,800 cells; give a larger eps"],
    ),
    "a join with a filter": (
        asking('kind = "join"', 'left = "a"', 'right = "b"', 'where = "c"'),
        ["13: queries[0]: the filters of a join are left and right; leave where out"],
    ),
    "an exact sum of nothing": (
        asking('kind = "exact"', 'aggregate = "sum"'),
        ['13: queries[0]: sum needs a column; add of = "price"'],
    ),
    "an exact quantile without a share": (
        asking('kind = "exact"', 'aggregate = "quantile"', 'of = "ms"'),
        ["13: queries[0]: a quantile needs a share; add q = 0.99"],
    ),
    "groups without a condition": (
        asking('kind = "exact"', 'aggregate = "count"', 'per = "url"'),
        ['13: queries[0]: groups need a column and one threshold; give per = "column" and above or below'],
    ),
    "groups by an average": (
        asking('kind = "exact"', 'aggregate = "avg"', 'of = "ms"', 'per = "url"', "above = 3"),
        ["13: queries[0]: groups are supported for count, sum, min and max, not for avg; leave per out"],
    ),
    "groups of rows that come late": (
        asking('kind = "exact"', 'aggregate = "count"', 'per = "url"', "above = 3").replace('"1h"', '"1h"\nlateness = "1m"'),
        ['18: queries[0].per = "url": groups need rows in order; leave per out, or lateness out of [window]'],
    ),
    "groups that cannot pass": (
        asking('kind = "exact"', 'aggregate = "count"', 'per = "url"', "below = -1"),
        ["13: queries[0]: count() < -1.0: no substream can pass that; give a bound that is not negative"],
    ),
    "an exact answer with an error": (
        asking('kind = "exact"', 'aggregate = "count"', "eps = 0.1"),
        ["13: queries[0]: an exact answer has no error; leave eps and delta out"],
    ),
    "two of a name": (
        SMALL + SMALL[SMALL.index("[[") :],
        ['17: queries[1].name = "hot": queries[0] has the same name; rename one of them'],
    ),
    "nothing asked": (SMALL[: SMALL.index("[[")], ["1: no queries or monitors defined; add [[queries]] or [[monitors]]"]),
    "a stream without a place": (
        SMALL.replace("checkpoint", "#"),
        ['11: [run]: a stream needs a directory for its state; add checkpoint = "directory", or read it as a batch'],
    ),
    "a monitor of a batch": (
        watching('kind = "self-join"').replace("format", "mode = 'batch'\nformat"),
        ['3: source.mode = \'batch\': monitors need a stream; give "available-now" or "continuous", or use queries instead'],
    ),
    "files from nowhere": (
        SMALL.replace("kafka", "csv"),
        ['3: source.format = "csv": a source of files needs a path; add path = "events/"'],
    ),
    "a stream of unknown files": (
        SMALL.replace('"kafka"', '"csv"\npath = "x"'),
        ['3: source.format = "csv": a stream of files needs their columns; add columns = "ts timestamp, url string"'],
    ),
    "options that are none": (
        SMALL.replace('"kafka"', '"kafka"\noptions.kafka.servers = ["a"]'),
        ['4: source.options.kafka.servers = ["a"]: must be text, a number, true or false'],
    ),
    "settings of something else": (
        SMALL.replace('"state"', '"state"\nspark.sql.ansi = true'),
        ["13: [run.spark]: sql.ansi is not a setting of Spark; write the whole name, which begins with spark."],
    ),
    "a trigger that cannot be read": (SMALL.replace('"state"', '"state"\ntrigger = "often"'), None),
    "a lease that cannot be read": (SMALL.replace('"state"', '"state"\nlease = "a while"'), None),
    "a lease that is no text": (SMALL.replace('"state"', '"state"\nlease = 60'), None),
    "a lease that is too short": (
        SMALL.replace('"state"', '"state"\nlease = "999ms"'),
        ['13: run.lease = "999ms": must be at least 1s'],
    ),
    "sketches at odd times": (
        SMALL.replace('"store"', '"store"\nsketches = "often"'),
        ['11: store.sketches = "often": must be "never", "always" or an interval such as "10m"'],
    ),
    "kept too briefly": (
        SMALL.replace('"store"', '"store"\nkeep = "59m"'),
        ['11: store.keep = "59m": must be at least 1h, the length of the window; make it longer or leave it out'],
    ),
    "kept for a text": (
        SMALL.replace('"store"', '"store"\nkeep = "ever"'),
        [
            "11: store.keep = \"ever\": cannot read the duration 'ever'; write a number and one of ns, us, ms, s, m, h, d, w, "
            "as in '10m'"
        ],
    ),
    "kept for a number where times are dates": (
        SMALL.replace('"store"', '"store"\nkeep = 7'),
        ["11: store.keep = 7: 7 is not a duration, and this window is in time; write it like '10m'"],
    ),
    "kept for a part of a tick": (
        SMALL.replace('"store"', '"store"\nkeep = "3601500ms"'),
        ["11: store.keep = \"3601500ms\": '3601500ms' is not a whole number of ticks of 1s; ask for a multiple of a tick"],
    ),
    "kept for a text where times are integers": (
        SMALL.replace('"1h"', "3600").replace('"store"', '"store"\nkeep = "7d"'),
        ["11: store.keep = \"7d\": '7d': this window is over integer times; give a whole number"],
    ),
    "sketches too often": (
        SMALL.replace('"store"', '"store"\nsketches = "0s"'),
        ['11: store.sketches = "0s": must be at least 1s'],
    ),
    "a monitor with two lines": (
        watching('kind = "count"', "key = 7", "above = 3", "below = 2"),
        ["16: monitors[0]: a monitor has one threshold; give above or below, or make two monitors"],
    ),
    "frequent keys below a line": (
        watching('kind = "frequent"', "tau = 3", "below = 2"),
        ["16: monitors[0]: frequent keys have tau instead of above and below; leave above and below out"],
    ),
    "a monitor without its key": (
        watching('kind = "count"', "above = 3"),
        ['16: monitors[0]: a count needs a key; add key = "/cart"'],
    ),
    "a monitor without its tau": (
        watching('kind = "frequent"'),
        ["16: monitors[0]: frequent keys need the count from which a key is frequent; add tau = 1000"],
    ),
    "a monitor that cannot be built": (
        watching('kind = "frequent"', "tau = 0.5"),
        ["16: monitors[0]: Frequent(tau=0.5) is out of range; give a count of at least 1"],
    ),
    "a monitor too fine": (
        watching('kind = "self-join"', "eps = 1e-12"),
        ["16: monitors[0]: eps=1e-12 is not between 0 and 1 (at least 1e-09); give a share, such as 0.01"],
    ),
    "no TOML": (
        "[source]\nformat 3\n",
        ["2: not TOML: Expected '=' after a key in a key/value pair (character 8); write key = \"value\""],
    ),
    "no quotes": ("[columns]\nkey = url\n", ['2: not TOML: Invalid value (character 7); put text in quotes: key = "url"']),
    "no end": ('[source]\nformat = """\n\n', None),
    "a key given twice": (
        "a = 1\n\na = 2\n",
        ["3: not TOML: Cannot overwrite a value (character 6); this key is defined above; keep one of them"],
    ),
}


@pytest.mark.parametrize(
    ("text", "told"), [pair for pair in WRONG.values() if pair[1]], ids=[k for k, v in WRONG.items() if v[1]]
)
def test_mistakes_are_told_with_line_value_and_remedy(text, told):
    assert mistakes(text) == told


@pytest.mark.parametrize("text", [text for text, _ in WRONG.values()], ids=WRONG)
def test_nobody_hears_of_pydantic(text):
    for line in mistakes(text):
        assert re.match(r"\d+: ", line)
        assert not re.search(r"(?i)pydantic|https?:|input should|validation|union|discriminator|NoneType|_error", line)


def test_mistakes_stand_where_they_are_in_inline_tables_and_with_carriage_returns():
    text = SMALL[: SMALL.index("[[")].replace(
        'name = "shop"', 'queries = [\n  { name = "a", kind = "top" },\n  { kind = "top" },\n]'
    )
    assert mistakes(text) == ['3: queries[1] has no name; add name = "hot"']
    assert mistakes(text.replace("\n", "\r\n")) == ['3: queries[1] has no name; add name = "hot"']


def test_many_mistakes_are_cut_short():
    told = mistakes(asking('kind = "counts"', f"keys = {[0.5] * 100}"))
    assert len(told) == 21
    assert told[-1] == " and 80 more mistakes"


@pytest.mark.parametrize("text", ["x = " + "[" * 20_000 + "]" * 20_000, "x = " + "9" * 5_000], ids=["brackets", "digits"])
def test_what_python_cannot_read_is_refused_plainly(text):
    assert len(mistakes(text)) == 1


def test_files_that_cannot_be_read_are_named(tmp_path):
    def refused(path):
        with pytest.raises(ParameterError) as caught:
            load(path)
        return str(caught.value)

    path = tmp_path / "flow.toml"
    assert refused(path) == f"{path}: no such file; give the path of a pipeline file"
    assert refused(tmp_path).startswith(f"{tmp_path}: cannot be read (")
    path.write_bytes(b'name = "a"\n\nkey = "\xff"\n')
    assert refused(path) == f"{path}:3: not UTF-8; save the file as UTF-8"
    path.write_text(SMALL.replace("tick", "tik").replace('"top"', '"tops"'))
    assert refused(str(path)).startswith(f"{path}:15: queries[0].kind")


def test_a_file_is_read_with_or_without_a_mark_of_its_order(tmp_path):
    for name, encoding in (("plain.toml", "utf-8"), ("marked.toml", "utf-8-sig")):
        (tmp_path / name).write_text(SMALL, encoding=encoding)
        assert load(tmp_path / name) == parse(SMALL)


def test_a_pipeline_may_come_from_python():
    content = tomllib.loads(SMALL)
    assert of(content) == parse(SMALL)
    content["queries"][0] |= {"kind": "tops"}
    content["window"] = {"length": "1h", "tik": 3}
    with pytest.raises(ParameterError) as caught:
        of(content)
    assert str(caught.value).splitlines() == [
        "pipeline: unknown key tik in [window]; did you mean tick?",
        "pipeline: queries[0].kind: must be one of counts, top, quantiles, ranges, self-join, join, exact",
    ]


def test_mistakes_are_of_lately():
    with pytest.raises(LatelyError):
        parse("")


# -- lines -------------------------------------------------------------------------------------------------------------


class Writer:
    """Writes a tree of tables, lists and numbers as TOML, in one of the many ways to do so.

    A leaf is a number that occurs once; it is written as a number or as some text that begins with it, and the line in which
    it occurs is the line to be found.
    """

    NOISE = ("", "", "# [no] = {", "\t# it's \"\"\" ''' nothing", " ")
    TEXTS = ('"{} # ]\\" \\\\"', "'{} [[x]] \\'", '"""{}\n[no]\nx = "1" \\" "" ]"""""', "'''{}\n'' [[no]]\n''''", '"""{}"""')
    NUMBERS = ("{}", "{}.5", "-{}", "0x{}", "[{}, [ ]]", '[ "{}\\"]", # ],\n\n ]')

    def __init__(self, random, tree):
        self.random, self.lines = random, []
        self.table(tree, [])
        self.text = "\n".join(self.lines)

    def pick(self, *ways):
        return self.random.choice(ways)

    def line(self, text):
        self.lines.append(self.pick("", "  ", "\t") + text + self.pick(*self.NOISE))
        self.lines += [self.pick(*self.NOISE)] * self.pick(0, 0, 1)

    def key(self, *names):
        dot = self.pick(".", " . ")
        return dot.join(self.one_key(name) for name in names)

    def one_key(self, name):
        bare = [name] if re.fullmatch("[A-Za-z0-9_-]+", name) else []
        literal = [] if "'" in name else [f"'{name}'"]
        escaped = name.replace("\\", "\\\\").replace('"', '\\"')
        return self.pick(*bare, *literal, f'"{escaped}"', '"' + "".join(f"\\u{ord(sign):04x}" for sign in name) + '"')

    def value(self, tree):
        if isinstance(tree, dict):
            return "{ " + ", ".join(f"{self.key(key)} = {self.value(value)}" for key, value in tree.items()) + " }"
        if isinstance(tree, list):
            gap = self.pick(", ", ",\n  ", " , # ]\n")
            return self.pick("[", "[\n") + gap.join(map(self.value, tree)) + self.pick("]", "\n ]")
        return self.pick(*self.TEXTS, *self.NUMBERS).format(tree)

    def table(self, tree, way):
        """The lines of a table: what can be written as pairs first, then tables under headers of their own."""
        later = []
        for key, value in tree.items():
            tables = value if isinstance(value, list) else [value]
            if value and all(isinstance(one, dict) for one in tables) and self.pick(True, False):
                later.append((key, value))
            elif isinstance(value, dict) and value and self.pick(True, False):
                for inner, one in value.items():
                    self.line(f"{self.key(key, inner)} = {self.value(one)}")
            else:
                self.line(f"{self.key(key)} = {self.value(value)}")
        for key, value in later:
            for one in value if isinstance(value, list) else [value]:
                many = isinstance(value, list)
                self.line(f"{'[[' if many else '['}{self.pick('', ' ')}{self.key(*way, key)} {']]' if many else ']'}")
                self.table(one, [*way, key])


def leaves(tree, way=()):
    """The ways to all numbers."""
    if isinstance(tree, int):
        yield way, tree
    else:
        for step, inner in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from leaves(inner, (*way, step))


def numbered(tree, numbers):
    """The tree with other numbers at its ends, each once."""
    if isinstance(tree, dict):
        return {key: numbered(value, numbers) for key, value in tree.items()}
    return [numbered(value, numbers) for value in tree] if isinstance(tree, list) else next(numbers)


KEYS = st.sampled_from(["a", "b", "key", "1", "-", "a.b", "x y", "#", "[q]", "ü", "=", '"', "'", "\\", ""])
TREES = st.dictionaries(
    KEYS,
    st.recursive(
        st.just(0), lambda inner: st.dictionaries(KEYS, inner, max_size=3) | st.lists(inner, max_size=3), max_leaves=12
    ),
    max_size=4,
)


@given(TREES, st.randoms(use_true_random=False))
def test_every_value_is_found_in_its_line(tree, random):
    tree = numbered(tree, iter(range(70_000_000, 80_000_000)))
    text = Writer(random, tree).text
    data = tomllib.loads(text)
    lines = TomlLines(text)
    for way, number in leaves(tree):
        line, written = lines.entries[way]
        assert str(number) in written
        assert line == text[: text.index(str(number))].count("\n") + 1, dotted(way)
        value = data
        for step in way:
            value = value[step]
        assert tomllib.loads(f"it = {written}")["it"] == value
    assert all(line <= text.count("\n") + 1 for line, _ in lines.entries.values())
    assert TomlLines(text.replace("\n", "\r\n")).entries == lines.entries


def test_every_way_to_write_toml_has_its_lines():
    text = """\
a.b = 1
"x y".'z' = \"\"\"several
[no]
\"\"\"""
[[q]]   # a comment
k = [ # ]
  "a]", {u = [1,
  2], v.w = 'x'},
]
[q.sub]
d = 1979-05-27 07:32:32 # when
[[q.n]]
[[q.n]]
v = {}
[[q]]
[q.sub]
d = -inf
[late.table]
[late]
"""
    found = {dotted(path): entry.line for path, entry in TomlLines(text).entries.items() if path}
    assert found == {
        "a": 1, "a.b": 1, '"x y"': 2, '"x y".z': 2,
        "q": 5, "q[0]": 5, "q[0].k": 6, "q[0].k[0]": 7, "q[0].k[1]": 7, "q[0].k[1].u": 7, "q[0].k[1].u[0]": 7,
        "q[0].k[1].u[1]": 8, "q[0].k[1].v": 8, "q[0].k[1].v.w": 8, "q[0].sub": 10, "q[0].sub.d": 11,
        "q[0].n": 12, "q[0].n[0]": 12, "q[0].n[1]": 13,
        "q[0].n[1].v": 14, "q[1]": 15, "q[1].sub": 16, "q[1].sub.d": 17, "late": 19, "late.table": 18,
    }  # fmt: skip


def test_how_far_ahead_rows_may_be_is_a_length_or_any():
    assert parse(SMALL).window.ahead is None
    assert parse(SMALL.replace('"1h"', '"1h"\nahead = "any"')).window.ahead == "any"
    assert parse(SMALL.replace('"1h"', '"1h"\nahead = "2m"')).window.ahead == "2m"
    with pytest.raises(ParameterError, match=r"ahead.*any"):
        parse(SMALL.replace('"1h"', '"1h"\nahead = "soon"'))


def test_the_master_is_one_that_spark_knows():
    for master in (
        "local",
        "local[2]",
        "local[*]",
        "local[4, 2]",
        "local-cluster[2,1,1024]",
        "yarn",
        "spark://a:7077",
        "k8s://b",
    ):
        assert parse(SMALL.replace("[run]", f'[run]\nmaster = "{master}"')).run.master == master
    with pytest.raises(ParameterError, match=r'run\.master = "lokal\[2\]": not a master of Spark; give "local\[2\]"'):
        parse(SMALL.replace("[run]", '[run]\nmaster = "lokal[2]"'))

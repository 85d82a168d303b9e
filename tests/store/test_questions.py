"""Questions against exact counts: any sites, any range, any kind of key and time; and what is remembered is never old."""

import threading
from collections import Counter

import numpy as np
import pytest
from store_builder import new_store, put_batch, sketch_rows
from store_cases import WINDOW, StoredStream, about, filled

import lately as lt
from lately.core.errors import InputError, LatelyError, QueryError, RangeError
from lately.sketches.extracts import extract, view_of
from lately.store.errors import UnknownError
from lately.store.questions import Questions
from lately.store.view import View

SITES = [
    None,
    ["lima"],
    ["quiet"],
    ["tokyo"],
    ["paris", "lima", "quiet"],
    ["quiet", "tokyo"],
    ["lima", "paris", "quiet", "tokyo"],
]
LASTS = [None, 0, 50, 399, 400, 700, 1000]
BETWEENS = [(1000, 0), (900, 500), (450, 350), (100, 100), (400, 399)]
FORMS = {"integers": ("integer", "integer"), "text at times": ("timestamp", "text"), "text": ("integer", "text")}


@pytest.fixture(scope="module", params=FORMS.values(), ids=FORMS)
def stream(request, tmp_path_factory):
    time_type, keys = request.param
    stream = filled(tmp_path_factory.mktemp("store"), time_type=time_type, keys=keys)
    stream.finish(0)
    return stream


@pytest.fixture(scope="module")
def questions(stream):
    return Questions(View(stream.store.path))


def ranges(stream):
    """Every range, as it is asked for and as it is counted."""
    for last in LASTS:
        yield {"last": stream.length(last)}, {"last": last}
    for older, newer in BETWEENS:
        yield (
            {"between": (stream.length(older), stream.length(newer))},
            {"between": (older, newer) if newer else None, "last": older},
        )


def every(stream):
    for options, counted in ranges(stream):
        for sites in SITES:
            yield options | {"sites": sites}, counted | {"sites": sites}


# -- the truth lies within the bounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [None, "ecm coarse", "funnel", "topk", "hot", "ecm inner", "dyadic"])
def test_counts(stream, questions, of):
    if of == "dyadic" and stream.keys != "integer":
        return
    for options, counted in every(stream):
        exact = stream.exact(**counted)
        keys = [*range(1, 9), 63]
        rows = questions.counts([stream.key(key) for key in keys], of=of, **options)
        for key, (named, estimate) in zip(keys, rows, strict=True):
            assert named == stream.key(key)
            assert exact[key] in estimate, (options, key)
            assert questions.count(named, of=of, **options) == estimate


def test_the_default_is_the_finest_sketch_of_all_rows(stream, questions):
    total = stream.exact(last=400).total()
    estimate = questions.count(stream.key(1), last=stream.length(400))
    assert estimate == questions.count(stream.key(1), last=stream.length(400), of="ecm fine")
    assert abs(estimate.value - stream.exact(last=400)[1]) <= 0.02 * total
    assert questions.answerable() == ["count", "top", "quantiles", "range", "self-join", "inner-product", "total"]


def test_totals(stream, questions):
    for options, counted in every(stream):
        assert stream.exact(**counted).total() in questions.total(**options)


def test_top(stream, questions):
    for options, counted in every(stream):
        exact = stream.exact(**counted)
        rows = questions.top(5, **options)
        listed = {key for key, _ in rows}
        assert all(exact[key] in estimate for key, estimate in ((k, e) for k in exact for n, e in rows if n == stream.key(k)))
        rest = max((count for key, count in exact.items() if stream.key(key) not in listed), default=0)
        assert rest <= rows.missed
        assert len(rows) <= 5


def test_quantiles(stream, questions):
    for options, counted in every(stream):
        values = np.sort(np.array([7 * key for key in stream.exact(**counted).elements()]))
        rows = questions.quantile([0.1, 0.5, 0.99], **options)
        if not values.size and not len(rows):
            continue
        for q, estimate in rows:
            assert estimate.low <= estimate.value <= estimate.high
            if values.size:
                assert estimate.low <= values[max(int(np.ceil(q * values.size - 1e-9)), 1) - 1] <= estimate.high


def test_nothing_in_the_range_has_no_quantiles(stream, questions):
    assert list(questions.quantile([0.5], last=stream.length(0), sites=["tokyo"])) == []
    assert list(questions.quantile([], last=stream.length(100))) == []


def test_ranges_of_keys_and_of_values(stream, questions):
    for options, counted in every(stream):
        exact = stream.exact(**counted)
        inside = sum(count for key, count in exact.items() if 2 <= key <= 7)
        assert inside in questions.count_range(2, 7, **options)
        assert inside in questions.count_range("14", "49.5", of="slow", **options)


def test_self_joins(stream, questions):
    for options, counted in every(stream):
        exact = sum(count**2 for count in stream.exact(**counted).values())
        for of in (None, "ecm inner", "topk", "ecm fine"):
            estimate = questions.self_join(of=of, **options)
            assert estimate.low - 1e-6 <= exact <= estimate.high + 1e-6, (options, of)


def test_two_streams_are_joined(stream, questions):
    for options, counted in every(stream):
        even = stream.exact(**counted, where=lambda times: times % 2 == 0)
        odd = stream.exact(**counted, where=lambda times: times % 2 == 1)
        exact = sum(count * odd[key] for key, count in even.items())
        estimate = questions.inner_product("pairs", **options)
        assert estimate.low - 1e-6 <= exact <= estimate.high + 1e-6
        assert questions.inner_product("pairs", "pairs", **options) == estimate
        assert questions.inner_product("ecm inner where even", "ecm inner where odd", **options) == estimate


# -- ranges --------------------------------------------------------------------------------------------------------------


def test_last_says_what_the_answers_of_the_pipeline_say(stream, questions):
    """Which are the sum of what the sites extract when all have come to the store's time; here sketch by sketch."""
    for last in LASTS:
        for sites in SITES:
            for name in ("ecm fine", "topk", "quantiles", "dyadic"):
                extract_of_sites = None
                for site in sorted(stream.events) if sites is None else sites:
                    twin = stream.sketches[site][name].copy()
                    twin.advance(stream.time(stream.now))
                    part = extract(twin, stream.length(last))
                    extract_of_sites = part if extract_of_sites is None else extract_of_sites + part
                expected = view_of(stream.sketches["lima"][name], extract_of_sites)
                options = {"last": stream.length(last), "sites": sites, "of": name}
                assert questions.total(**options) == expected.total()
                if name == "quantiles":
                    if expected.total().high:
                        assert list(questions.quantile([0.5, 0.9], **options)) == list(expected.quantile([0.5, 0.9]))
                elif name == "dyadic":
                    assert questions.count_range(1, 5, **options) == expected.count_range(1, 5)
                else:
                    keys = [stream.key(key) for key in (1, 2, 3, 50)]
                    assert list(questions.counts(keys, **options).count) == list(expected.counts(keys))
                if name == "topk":
                    assert list(questions.top(3, **options)) == list(expected.top(3))


def test_between_is_asked_of_the_merged_sketches(stream, questions):
    sketches = [stream.sketches[site]["ecm fine"] for site in sorted(stream.events)]
    merged = lt.merge(sketches)
    merged.advance(stream.time(stream.now))
    between = stream.length(900), stream.length(500)
    assert questions.count(stream.key(1), between=between) == merged.count(stream.key(1), between=between)


def test_between_two_times(tmp_path):
    stream = filled(tmp_path, time_type="timestamp", keys="text")
    stream.finish(0)
    questions = Questions(View(stream.store.path))
    ages = questions.count("/page/1", between=("900s", "500s"))
    assert questions.count("/page/1", between=(stream.time(2101), stream.time(2501))) == ages
    texts = tuple(stream.time(tick).isoformat().replace("+00:00", "Z") for tick in (2101, 2501))
    assert questions.count("/page/1", between=texts) == ages
    assert questions.asof == stream.time(3000)
    ahead = tuple(stream.time(tick) for tick in (4000, 5000))
    assert questions.total(between=ahead).value == 0


def test_text_stands_for_numbers_where_times_and_keys_are_numbers(tmp_path):
    stream = filled(tmp_path)
    stream.finish(0)
    questions = Questions(View(stream.store.path))
    assert questions.count("1", last="400") == questions.count(1, last=400) == questions.count(np.int64(1), last=400)
    assert questions.count(1, between=("900", "500")) == questions.count(1, between=[900, 500])
    assert [key for key, _ in questions.counts(["1", 2], last=400)] == [1, 2]
    assert questions.asof == 3000
    for wrong in ("one", "1.5", 1.5, True, None):
        with pytest.raises(InputError, match="keys of this store are integers"):
            questions.count(wrong)
    with pytest.raises(RangeError, match="'10m' is not an integer, but the times of this store are"):
        questions.count(1, last="10m")


def test_numbers_are_text_where_keys_are_text(tmp_path):
    stream = StoredStream(tmp_path, names=["ecm fine"], keys="text")
    stream.key = str
    stream.add("lima", [7, 7, 8], [1, 2, 3])
    stream.finish(0)
    questions = Questions(View(stream.store.path))
    assert questions.count(7).value == questions.count("7").value == questions.count(b"7").value == 2


def test_rows_that_are_held_back_count(tmp_path):
    stream = filled(tmp_path, lateness=30, names=["ecm fine", "topk", "quantiles"])
    stream.finish(0)
    assert any(sketch._reorder_buffer.ticks.size for by_name in stream.sketches.values() for sketch in by_name.values())
    questions = Questions(View(stream.store.path))
    for options, counted in every(stream):
        exact = stream.exact(**counted)
        for of in ("ecm fine", "topk"):
            assert exact[1] in questions.count(1, of=of, **options), options
        assert exact.total() in questions.total(**options)


WRONG = [{"last": last} for last in (1001, -1, 1.5, {})]
WRONG += [{"between": between} for between in ((5, 10), 5, "12", (1, 2, 3), (2000, 10), (10, None))]


@pytest.mark.parametrize("options", [*WRONG, {"last": 5, "between": (10, 5)}], ids=str)
def test_malformed_ranges_are_refused(tmp_path, options):
    stream = StoredStream(tmp_path, names=["ecm fine"])
    stream.add("lima", [7], [1])
    stream.finish(0)
    questions = Questions(View(stream.store.path))
    for _ in range(2):
        with pytest.raises(RangeError):
            questions.count(7, **options)
    assert questions.count(7).value == 1
    assert questions.count(7, last=1).value == 1
    for wrong in (True, 1.0):
        with pytest.raises(RangeError):
            questions.count(7, last=wrong)


# -- which sketch --------------------------------------------------------------------------------------------------------


def test_what_cannot_be_asked_is_told(tmp_path):
    stream = filled(tmp_path)
    stream.finish(0, stored=False)
    view = View(stream.store.path)
    questions = Questions(view)
    with pytest.raises(QueryError, match='no sketches; write sketches = "always"'):
        questions.count(1)
    assert (questions.asof, questions.answerable()) == (None, [])
    stream.finish(1)
    view.refresh()
    with pytest.raises(UnknownError, match="no site 'rome'; there are 'lima', 'paris', 'quiet', 'tokyo'"):
        questions.count(1, sites=["lima", "rome"])
    with pytest.raises(InputError, match="an empty list of sites"):
        questions.count(1, sites=[])
    with pytest.raises(UnknownError, match=r"no query 'cold'; there are 'hot'.* and .* more") as refused:
        questions.count(1, of="cold")
    assert refused.value.what == "query"
    with pytest.raises(QueryError, match="'longest' is exact and keeps no sketch"):
        questions.count(1, of="longest")
    with pytest.raises(QueryError, match="'new' has no sketch in the store yet"):
        questions.top(1, of="new")
    with pytest.raises(
        QueryError, match="'slow' keeps a sketch of the kind 'quantiles', which cannot answer count; name a query"
    ):
        questions.count(1, of="slow")
    with pytest.raises(QueryError, match="cannot answer inner-product"):
        questions.inner_product("hot", "hot")
    with pytest.raises(InputError, match="'many' is not a number"):
        questions.count_range(0, "many")
    assert questions.count(1, sites="lima") == questions.count(1, sites=["lima", "lima"])


def test_a_sketch_of_some_rows_is_asked_only_by_name(tmp_path):
    stream = filled(tmp_path, names=["ecm inner where even", "quantiles"])
    stream.finish(0)
    questions = Questions(View(stream.store.path))
    with pytest.raises(QueryError, match=r"no stored sketch of all rows can answer count; .* of='ecm inner where even'"):
        questions.count(1)
    even = stream.exact(where=lambda times: times % 2 == 0)
    assert even[1] in questions.count(1, of="ecm inner where even")
    with pytest.raises(QueryError, match='can answer top; add a query of the kind "top" to the pipeline file'):
        questions.top()
    assert questions.answerable() == ["quantiles", "range", "total"]


def test_a_site_without_the_sketch_is_left_out(tmp_path):
    """A query that is new has no sketch yet at a site that has been silent since."""
    stream = filled(tmp_path, names=["ecm fine", "topk"])
    del stream.sketches["tokyo"]["topk"]
    stream.finish(0)
    questions = Questions(View(stream.store.path))
    assert stream.exact()[1] in questions.count(1, of="topk")
    assert stream.exact(sites=["lima"])[1] in questions.count(1, of="topk", sites=["lima", "tokyo"])
    with pytest.raises(UnknownError, match="no site with this sketch 'tokyo'; there are 'lima', 'paris', 'quiet'"):
        questions.count(1, of="topk", sites=["tokyo"])


def test_sketches_that_no_row_came_to_count_nothing(tmp_path):
    stream = StoredStream(tmp_path)
    stream.add("lima", [7, 7], [2, 4])  # no odd times
    stream.finish(0)
    questions = Questions(View(stream.store.path))
    for options in ({}, {"last": 10}, {"between": (10, 1)}):
        assert questions.inner_product("pairs", **options).value == 0
        assert questions.total(of="ecm inner where odd", **options) == lt.Estimate(0, 0, 0, 1.0)


# -- what is remembered ----------------------------------------------------------------------------------------------------


def test_a_new_version_is_asked_after_a_refresh(tmp_path):
    stream = filled(tmp_path, names=["ecm fine"])
    stream.finish(0)
    view = View(stream.store.path)
    questions = Questions(view)
    all_options = {"last": 400}, {"between": (400, 0)}, {"last": 400, "sites": ["lima"]}
    before = [questions.count(1, **options) for options in all_options]
    stream.add("lima", [1] * 500, np.arange(3000, 3500))
    stream.finish(1)
    assert [questions.count(1, **options) for options in all_options] == before
    assert (view.refresh(), questions.asof) == (True, 3499)
    for options, counted in zip(all_options, ({"last": 400}, {"last": 400}, {"last": 400, "sites": ["lima"]}), strict=True):
        assert stream.exact(**counted)[1] in questions.count(1, **options)
    stream.finish(2, stored=False)  # sketches are not stored after every batch
    version = view.version()
    assert (view.refresh(), view.batch, view.version() is version, questions.asof) == (True, 2, True, 3499)


def test_a_version_that_is_written_again_is_asked_again(tmp_path):
    """A batch that is run again after a crash has the same number."""
    stream = filled(tmp_path, names=["ecm fine"])
    stream.finish(0)
    view = View(stream.store.path)
    questions = Questions(view)
    before = questions.count(1, last=400)
    stream.store.clear(0)
    stream.add("lima", [1] * 300, np.arange(3000, 3300))
    stream.finish(0)
    assert view.refresh()
    assert questions.count(1, last=400) != before
    assert stream.exact(last=400)[1] in questions.count(1, last=400)


def test_versions_that_have_gone_are_replaced_by_newer_ones(tmp_path):
    """Nobody has refreshed for longer than the store keeps its sketches."""
    stream = filled(tmp_path, names=["ecm fine"])
    stream.finish(0)
    questions = Questions(View(stream.store.path))
    assert questions.asof == 3000  # the version is known, and nothing of it was read
    stream.add("lima", [1] * 10, np.arange(3000, 3010))
    stream.finish(1)
    for file in stream.store.all_files("sketches"):
        if file.last == 0:
            stream.store.remove(file)
    assert stream.exact(last=400)[1] in questions.count(1, last=400)
    assert questions.asof == 3009


def test_with_little_memory_answers_are_the_same(tmp_path):
    stream = filled(tmp_path, names=["ecm fine", "topk"])
    stream.finish(0)
    plenty, tight = (
        Questions(View(stream.store.path)),
        Questions(View(stream.store.path, table_bytes=0, sketch_bytes=0), cache_bytes=0),
    )
    for options, _ in every(stream):
        assert plenty.count(1, **options) == tight.count(1, **options)
        assert list(plenty.top(3, **options)) == list(tight.top(3, **options))


def test_many_ranges_do_not_fill_the_memory(tmp_path):
    stream = filled(tmp_path, names=["ecm fine"])
    stream.finish(0)
    questions = Questions(View(stream.store.path), cache_bytes=200_000)
    for last in range(200):
        questions.count(1, last=last)
    assert questions._sums._used <= 200_000
    assert len(questions._sums._values) < 100


def test_questions_may_be_asked_by_many_threads_while_versions_come(tmp_path):
    stream = filled(tmp_path, names=["ecm fine"])
    stream.finish(0)
    view = View(stream.store.path)
    questions, wrong, done = Questions(view), [], threading.Event()
    values = {stream.exact(last=WINDOW, sites=["paris"])[1]}

    def ask():
        while not done.is_set():
            try:
                estimate = questions.count(1, sites=["paris"])
                if not any(value in estimate for value in list(values)):
                    wrong.append(estimate)
            except LatelyError as error:
                wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for batch in range(1, 12):
        stream.add("paris", [1] * 40, np.arange(3000 + 40 * batch, 3040 + 40 * batch))
        values.add(stream.exact(last=WINDOW, sites=["paris"])[1])
        stream.finish(batch)
        view.refresh()
    done.set()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_store_of_other_keys_tells_them_as_they_are(tmp_path):
    stream = filled(tmp_path, names=["topk"], keys="text")
    stream.store.describe(about("integer", "binary", ["topk"]))
    stream.finish(0)
    questions = Questions(View(stream.store.path))
    assert questions.count("/page/1") == questions.count(b"/page/1")
    assert stream.exact()[1] in questions.count("/page/1")


def test_two_thousand_sites_are_added_up_and_merged(tmp_path):
    """Keys of all sites are listed together; columns of them must not nest as deep as there are sites."""
    info = {"kind": "topk", "eps": 0.1, "delta": 0.1}
    store = new_store(tmp_path, "integer", keys="text", sketches={"topk": info})
    rows, truth = [], Counter()
    for number in range(2_000):
        keys = ["/", f"/{number % 7}"]
        sketch = lt.TopK(window=100, k=1, eps=0.1, delta=0.1)
        sketch.update(keys, [10 + number % 50, 90])
        truth.update(keys)
        rows += sketch_rows(0, 90, f"site-{number}", {"topk": sketch})
    store.put("sketches", 0, rows)
    put_batch(store, 0, 90)
    questions = Questions(View(store.path))
    for when in ({}, {"between": (100, 0)}):
        (key, count), *_ = questions.top(1, **when)
        assert key == "/"
        assert count.low <= truth["/"] <= count.high
        total = questions.total(**when)
        assert total.low <= 4_000 <= total.high

"""Questions against exact counts: any sites, any range, any kind of key and time; and what is remembered is never old."""

import threading
from collections import Counter

import numpy as np
import pytest
from store_cases import WINDOW, Made, about, filled

import lately as lt
from lately.core.errors import InputError, LatelyError, QueryError, RangeError
from lately.sketches.extracts import extract, view_of
from lately.store import Store
from lately.store.errors import UnknownError
from lately.store.questions import Questions
from lately.store.tables import TIME_TYPES
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
def made(request, tmp_path_factory):
    time_type, keys = request.param
    made = filled(tmp_path_factory.mktemp("store"), time_type=time_type, keys=keys)
    made.finish(0)
    return made


@pytest.fixture(scope="module")
def questions(made):
    return Questions(View(made.store.path))


def ranges(made):
    """Every range, as it is asked for and as it is counted."""
    for last in LASTS:
        yield {"last": made.length(last)}, {"last": last}
    for older, newer in BETWEENS:
        yield (
            {"between": (made.length(older), made.length(newer))},
            {"between": (older, newer) if newer else None, "last": older},
        )


def every(made):
    for asked, counted in ranges(made):
        for sites in SITES:
            yield asked | {"sites": sites}, counted | {"sites": sites}


# -- the truth lies within the bounds ------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [None, "ecm coarse", "funnel", "topk", "hot", "ecm inner", "dyadic"])
def test_counts(made, questions, of):
    if of == "dyadic" and made.keys != "integer":
        return
    for asked, counted in every(made):
        exact = made.exact(**counted)
        keys = [*range(1, 9), 63]
        rows = questions.counts([made.key(key) for key in keys], of=of, **asked)
        for key, (named, estimate) in zip(keys, rows, strict=True):
            assert named == made.key(key)
            assert exact[key] in estimate, (asked, key)
            assert questions.count(named, of=of, **asked) == estimate


def test_the_default_is_the_finest_sketch_of_all_rows(made, questions):
    total = made.exact(last=400).total()
    estimate = questions.count(made.key(1), last=made.length(400))
    assert estimate == questions.count(made.key(1), last=made.length(400), of="ecm fine")
    assert abs(estimate.value - made.exact(last=400)[1]) <= 0.02 * total
    assert questions.answerable() == ["count", "top", "quantiles", "range", "self-join", "inner-product", "total"]


def test_totals(made, questions):
    for asked, counted in every(made):
        assert made.exact(**counted).total() in questions.total(**asked)


def test_top(made, questions):
    for asked, counted in every(made):
        exact = made.exact(**counted)
        rows = questions.top(5, **asked)
        listed = {key for key, _ in rows}
        assert all(exact[key] in estimate for key, estimate in ((k, e) for k in exact for n, e in rows if n == made.key(k)))
        rest = max((count for key, count in exact.items() if made.key(key) not in listed), default=0)
        assert rest <= rows.missed
        assert len(rows) <= 5


def test_quantiles(made, questions):
    for asked, counted in every(made):
        values = np.sort(np.array([7 * key for key in made.exact(**counted).elements()]))
        rows = questions.quantiles([0.1, 0.5, 0.99], **asked)
        if not values.size and not len(rows):
            continue
        for q, estimate in rows:
            assert estimate.low <= estimate.value <= estimate.high
            if values.size:
                assert estimate.low <= values[max(int(np.ceil(q * values.size - 1e-9)), 1) - 1] <= estimate.high


def test_nothing_in_the_range_has_no_quantiles(made, questions):
    assert list(questions.quantiles([0.5], last=made.length(0), sites=["tokyo"])) == []
    assert list(questions.quantiles([], last=made.length(100))) == []


def test_ranges_of_keys_and_of_values(made, questions):
    for asked, counted in every(made):
        exact = made.exact(**counted)
        inside = sum(count for key, count in exact.items() if 2 <= key <= 7)
        assert inside in questions.count_range(2, 7, **asked)
        assert inside in questions.count_range("14", "49.5", of="slow", **asked)


def test_self_joins(made, questions):
    for asked, counted in every(made):
        exact = sum(count**2 for count in made.exact(**counted).values())
        for of in (None, "ecm inner", "topk", "ecm fine"):
            found = questions.self_join(of=of, **asked)
            assert found.low - 1e-6 <= exact <= found.high + 1e-6, (asked, of)


def test_two_streams_are_joined(made, questions):
    for asked, counted in every(made):
        even = made.exact(**counted, chosen=lambda times: times % 2 == 0)
        odd = made.exact(**counted, chosen=lambda times: times % 2 == 1)
        exact = sum(count * odd[key] for key, count in even.items())
        found = questions.inner_product("pairs", **asked)
        assert found.low - 1e-6 <= exact <= found.high + 1e-6
        assert questions.inner_product("pairs", "pairs", **asked) == found
        assert questions.inner_product("ecm inner where even", "ecm inner where odd", **asked) == found


# -- ranges --------------------------------------------------------------------------------------------------------------


def test_last_says_what_the_answers_of_the_pipeline_say(made, questions):
    """Which are the sum of what the sites extract when all have come to the store's time; here sketch by sketch."""
    for last in LASTS:
        for sites in SITES:
            for name in ("ecm fine", "topk", "quantiles", "dyadic"):
                known = None
                for site in sorted(made.events) if sites is None else sites:
                    twin = made.sketches[site][name].copy()
                    twin.advance(made.time(made.now))
                    part = extract(twin, made.length(last))
                    known = part if known is None else known + part
                expected = view_of(made.sketches["lima"][name], known)
                asked = {"last": made.length(last), "sites": sites, "of": name}
                assert questions.total(**asked) == expected.total()
                if name == "quantiles":
                    if expected.total().high:
                        assert list(questions.quantiles([0.5, 0.9], **asked)) == list(expected.quantile([0.5, 0.9]))
                elif name == "dyadic":
                    assert questions.count_range(1, 5, **asked) == expected.count_range(1, 5)
                else:
                    keys = [made.key(key) for key in (1, 2, 3, 50)]
                    assert list(questions.counts(keys, **asked).count) == list(expected.counts(keys))
                if name == "topk":
                    assert list(questions.top(3, **asked)) == list(expected.top(3))


def test_between_is_asked_of_the_merged_sketches(made, questions):
    sketches = [made.sketches[site]["ecm fine"] for site in sorted(made.events)]
    merged = lt.merge(sketches)
    merged.advance(made.time(made.now))
    between = made.length(900), made.length(500)
    assert questions.count(made.key(1), between=between) == merged.count(made.key(1), between=between)


def test_between_two_times(tmp_path):
    made = filled(tmp_path, time_type="timestamp", keys="text")
    made.finish(0)
    questions = Questions(View(made.store.path))
    ages = questions.count("/page/1", between=("900s", "500s"))
    assert questions.count("/page/1", between=(made.time(2101), made.time(2501))) == ages
    texts = tuple(made.time(tick).isoformat().replace("+00:00", "Z") for tick in (2101, 2501))
    assert questions.count("/page/1", between=texts) == ages
    assert questions.asof == made.time(3000)
    ahead = tuple(made.time(tick) for tick in (4000, 5000))
    assert questions.total(between=ahead).value == 0


def test_text_stands_for_numbers_where_times_and_keys_are_numbers(tmp_path):
    made = filled(tmp_path)
    made.finish(0)
    questions = Questions(View(made.store.path))
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
    made = Made(tmp_path, names=["ecm fine"], keys="text")
    made.key = str
    made.add("lima", [7, 7, 8], [1, 2, 3])
    made.finish(0)
    questions = Questions(View(made.store.path))
    assert questions.count(7).value == questions.count("7").value == questions.count(b"7").value == 2


def test_rows_that_are_held_back_count(tmp_path):
    made = filled(tmp_path, lateness=30, names=["ecm fine", "topk", "quantiles"])
    made.finish(0)
    assert any(one._reorder_buffer.ticks.size for made_ in made.sketches.values() for one in made_.values())
    questions = Questions(View(made.store.path))
    for asked, counted in every(made):
        exact = made.exact(**counted)
        for of in ("ecm fine", "topk"):
            assert exact[1] in questions.count(1, of=of, **asked), asked
        assert exact.total() in questions.total(**asked)


WRONG = [{"last": last} for last in (1001, -1, 1.5, {})]
WRONG += [{"between": between} for between in ((5, 10), 5, "12", (1, 2, 3), (2000, 10), (10, None))]


@pytest.mark.parametrize("asked", [*WRONG, {"last": 5, "between": (10, 5)}], ids=str)
def test_malformed_ranges_are_refused(tmp_path, asked):
    made = Made(tmp_path, names=["ecm fine"])
    made.add("lima", [7], [1])
    made.finish(0)
    questions = Questions(View(made.store.path))
    for _ in range(2):
        with pytest.raises(RangeError):
            questions.count(7, **asked)
    assert questions.count(7).value == 1
    assert questions.count(7, last=1).value == 1
    for odd in (True, 1.0):
        with pytest.raises(RangeError):
            questions.count(7, last=odd)


# -- which sketch --------------------------------------------------------------------------------------------------------


def test_what_cannot_be_asked_is_told(tmp_path):
    made = filled(tmp_path)
    made.finish(0, stored=False)
    view = View(made.store.path)
    questions = Questions(view)
    with pytest.raises(QueryError, match='no sketches; write sketches = "always"'):
        questions.count(1)
    assert (questions.asof, questions.answerable()) == (None, [])
    made.finish(1)
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
    made = filled(tmp_path, names=["ecm inner where even", "quantiles"])
    made.finish(0)
    questions = Questions(View(made.store.path))
    with pytest.raises(QueryError, match=r"no stored sketch of all rows can answer count; .* of='ecm inner where even'"):
        questions.count(1)
    even = made.exact(chosen=lambda times: times % 2 == 0)
    assert even[1] in questions.count(1, of="ecm inner where even")
    with pytest.raises(QueryError, match='can answer top; add a query of the kind "top" to the pipeline file'):
        questions.top()
    assert questions.answerable() == ["quantiles", "range", "total"]


def test_a_site_without_the_sketch_is_left_out(tmp_path):
    """A query that is new has no sketch yet at a site that has been silent since."""
    made = filled(tmp_path, names=["ecm fine", "topk"])
    del made.sketches["tokyo"]["topk"]
    made.finish(0)
    questions = Questions(View(made.store.path))
    assert made.exact()[1] in questions.count(1, of="topk")
    assert made.exact(sites=["lima"])[1] in questions.count(1, of="topk", sites=["lima", "tokyo"])
    with pytest.raises(UnknownError, match="no site with this sketch 'tokyo'; there are 'lima', 'paris', 'quiet'"):
        questions.count(1, of="topk", sites=["tokyo"])


def test_sketches_that_no_row_came_to_count_nothing(tmp_path):
    made = Made(tmp_path)
    made.add("lima", [7, 7], [2, 4])  # no odd times
    made.finish(0)
    questions = Questions(View(made.store.path))
    for asked in ({}, {"last": 10}, {"between": (10, 1)}):
        assert questions.inner_product("pairs", **asked).value == 0
        assert questions.total(of="ecm inner where odd", **asked) == lt.Estimate(0, 0, 0, 1.0)


# -- what is remembered ----------------------------------------------------------------------------------------------------


def test_a_new_version_is_asked_after_a_refresh(tmp_path):
    made = filled(tmp_path, names=["ecm fine"])
    made.finish(0)
    view = View(made.store.path)
    questions = Questions(view)
    asked = {"last": 400}, {"between": (400, 0)}, {"last": 400, "sites": ["lima"]}
    before = [questions.count(1, **one) for one in asked]
    made.add("lima", [1] * 500, np.arange(3000, 3500))
    made.finish(1)
    assert [questions.count(1, **one) for one in asked] == before
    assert (view.refresh(), questions.asof) == (True, 3499)
    for one, counted in zip(asked, ({"last": 400}, {"last": 400}, {"last": 400, "sites": ["lima"]}), strict=True):
        assert made.exact(**counted)[1] in questions.count(1, **one)
    made.finish(2, stored=False)  # sketches are not stored after every batch
    version = view.version()
    assert (view.refresh(), view.batch, view.version() is version, questions.asof) == (True, 2, True, 3499)


def test_a_version_that_is_written_again_is_asked_again(tmp_path):
    """A batch that is run again after a crash has the same number."""
    made = filled(tmp_path, names=["ecm fine"])
    made.finish(0)
    view = View(made.store.path)
    questions = Questions(view)
    before = questions.count(1, last=400)
    made.store.clear(0)
    made.add("lima", [1] * 300, np.arange(3000, 3300))
    made.finish(0)
    assert view.refresh()
    assert questions.count(1, last=400) != before
    assert made.exact(last=400)[1] in questions.count(1, last=400)


def test_versions_that_have_gone_are_replaced_by_newer_ones(tmp_path):
    """Nobody has refreshed for longer than the store keeps its sketches."""
    made = filled(tmp_path, names=["ecm fine"])
    made.finish(0)
    questions = Questions(View(made.store.path))
    assert questions.asof == 3000  # the version is known, and nothing of it was read
    made.add("lima", [1] * 10, np.arange(3000, 3010))
    made.finish(1)
    for one in made.store.all_files("sketches"):
        if one.last == 0:
            made.store.remove(one)
    assert made.exact(last=400)[1] in questions.count(1, last=400)
    assert questions.asof == 3009


def test_with_little_memory_answers_are_the_same(tmp_path):
    made = filled(tmp_path, names=["ecm fine", "topk"])
    made.finish(0)
    plenty, tight = (
        Questions(View(made.store.path)),
        Questions(View(made.store.path, table_bytes=0, sketch_bytes=0), cache_bytes=0),
    )
    for asked, _ in every(made):
        assert plenty.count(1, **asked) == tight.count(1, **asked)
        assert list(plenty.top(3, **asked)) == list(tight.top(3, **asked))


def test_many_ranges_do_not_fill_the_memory(tmp_path):
    made = filled(tmp_path, names=["ecm fine"])
    made.finish(0)
    questions = Questions(View(made.store.path), cache_bytes=200_000)
    for last in range(200):
        questions.count(1, last=last)
    assert questions._sums._used <= 200_000
    assert len(questions._sums._values) < 100


def test_questions_may_be_asked_by_many_threads_while_versions_come(tmp_path):
    made = filled(tmp_path, names=["ecm fine"])
    made.finish(0)
    view = View(made.store.path)
    questions, wrong, done = Questions(view), [], threading.Event()
    values = {made.exact(last=WINDOW, sites=["paris"])[1]}

    def ask():
        while not done.is_set():
            try:
                found = questions.count(1, sites=["paris"])
                if not any(value in found for value in list(values)):
                    wrong.append(found)
            except LatelyError as error:
                wrong.append(error)

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for one in threads:
        one.start()
    for batch in range(1, 12):
        made.add("paris", [1] * 40, np.arange(3000 + 40 * batch, 3040 + 40 * batch))
        values.add(made.exact(last=WINDOW, sites=["paris"])[1])
        made.finish(batch)
        view.refresh()
    done.set()
    for one in threads:
        one.join()
    assert not wrong


def test_a_store_of_other_keys_tells_them_as_they_are(tmp_path):
    made = filled(tmp_path, names=["topk"], keys="text")
    made.store.describe(about("integer", "binary", ["topk"]))
    made.finish(0)
    questions = Questions(View(made.store.path))
    assert questions.count("/page/1") == questions.count(b"/page/1")
    assert made.exact()[1] in questions.count("/page/1")


def test_two_thousand_sites_are_added_up_and_merged(tmp_path):
    """Keys of all sites are listed together; columns of them must not nest as deep as there are sites."""
    store = Store(str(tmp_path), TIME_TYPES["integer"])
    store.prepare()
    told = {"kind": "topk", "where": None, "eps": 0.1, "delta": 0.1, "query": None}
    store.describe({"name": "many", "time_type": "integer", "keys": "text", "queries": [], "sketches": {"topk": told}})
    rows, truth = [], Counter()
    for number in range(2_000):
        keys = ["/", f"/{number % 7}"]
        sketch = lt.TopK(window=100, k=1, eps=0.1, delta=0.1)
        sketch.update(keys, [10 + number % 50, 90])
        truth.update(keys)
        rows.append({"version": 0, "time": 90, "site": f"site-{number}", "sketch": "topk", "blob": sketch.to_bytes()})
    store.put("sketches", 0, rows)
    store.put("runs", 0, [{"batch": 0, "time": 90}])
    questions = Questions(View(store.path))
    for when in ({}, {"between": (100, 0)}):
        (key, count), *_ = questions.top(1, **when)
        assert key == "/"
        assert count.low <= truth["/"] <= count.high
        total = questions.total(**when)
        assert total.low <= 4_000 <= total.high

"""The registry: every sketch over a window is of one kind, and what a kind says of itself is true."""

import numpy as np
import pytest

import lately as lt
from lately.core.errors import ParameterError
from lately.sketches.kinds import KINDS, QUESTIONS, kind_named, suitability
from lately.sketches.windowed_sketch import WindowedSketch

OPTIONS = {
    "topk": {"phi": 0.3},
    "quantiles": {"lo": 0, "hi": 10, "resolution": 1},
    "dyadic": {"universe": 1000},
}


def build(name, **options):
    return KINDS[name].sketch_class(**({"window": 900, "eps": 0.1, "delta": 0.1} | OPTIONS.get(name, {}) | options))


def concrete(cls):
    """The classes of the library without subclasses; other tests may have made some of their own."""
    of_library = [sub for sub in cls.__subclasses__() if sub.__module__.startswith("lately.")]
    for sub in of_library:
        yield from concrete(sub)
    if not of_library:
        yield cls


def test_every_sketch_over_a_window_is_of_one_kind():
    listed = [cls for kind in KINDS.values() for cls in (kind.variants.values() or [kind.sketch_class])]
    assert len(listed) == len(set(listed))
    assert set(listed) == set(concrete(WindowedSketch))


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_builds_from_its_options_and_takes_its_example_keys(name):
    kind, sketch = KINDS[name], build(name)
    options = OPTIONS.get(name, {}) | {"eps": 0.1, "delta": 0.1, "query": "point"}
    assert set(kind.guarantee) <= set(options)
    sketch.update(kind.example_keys(np.arange(0, 100_000, 997), options), 1)
    assert sketch.total().value == len(range(0, 100_000, 997))


def test_of_every_question_one_kind_is_the_first_choice():
    sizes = [(name, purpose) for name, kind in KINDS.items() for purpose in (None, *kind.purposes)]
    for question in QUESTIONS:
        fits = sorted(fit[:2] for size in sizes if (fit := suitability(question, *size)) is not None)
        assert fits[0] in ((0, 0), (0, -1))
        assert len(fits) == len(set(fits))


def test_what_a_kind_answers_its_class_can_be_asked():
    methods = {
        "count": "count",
        "top": "top",
        "quantiles": "quantile",
        "range": "count_range",
        "self-join": "self_join",
        "inner-product": "inner_product",
        "total": "total",
    }
    for kind in KINDS.values():
        for question in QUESTIONS:
            if kind.suitability(question) is not None:
                assert callable(getattr(kind.sketch_class, methods[question]))


@pytest.mark.parametrize("query", ["point", "inner"])
def test_the_eps_of_merged_ecm_sketches_is_what_their_counters_have(query):
    sites = [build("ecm", query=query, counter="wave") for _ in range(2)]
    for site in sites:
        site.update(list(range(500)), list(range(500)))
    merged = lt.merge(sites)
    eps = KINDS["ecm"].merged_eps({"eps": 0.1, "query": query, "counter": "wave"})
    grown = (1 + merged.error) if query == "point" else (1 + merged.error) ** 2
    assert eps == pytest.approx(max(grown - 1, 0.1 / 1.1 * grown), abs=1e-6)


def test_the_eps_of_merged_ecm_sketches_of_shared_waves_holds():
    """Bounds of merged sketches are no wider than that share of the arrivals, also where every cell is full."""
    rng = np.random.default_rng(0)
    for delta in (0.1, 0.01):
        eps = KINDS["ecm"].merged_eps({"eps": 0.1, "delta": delta})
        assert 0.1 < eps < 0.3
        sites = [lt.EcmSketch(window=5_000, eps=0.1, delta=delta, seed=1) for _ in range(4)]
        for site in sites:
            site.update(rng.integers(0, 3_000, 50_000), np.arange(50_000) // 10)
        answers = lt.merge(sites).counts(np.arange(3_000))
        assert 0 < (answers.high - answers.low).max() <= eps * 200_000


def test_an_unknown_kind_is_refused_with_the_names_of_all():
    with pytest.raises(ParameterError, match="'kmv'; give one of ecm, topk, quantiles, dyadic, wcm, ams"):
        kind_named("kmv")
    assert suitability("count", "kmv") is None

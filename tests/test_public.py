"""Every public name is explained by an example that runs."""

import doctest
import inspect

import pytest

import lately as lt
from lately import monitor

#: Modules that group public functions.
NAMESPACES = {"agg": lt.agg, "counters": lt.counters, "monitor": monitor}

#: Everything that the documentation speaks of.
PUBLIC = {name: getattr(lt, name) for name in lt.__all__ if name not in NAMESPACES} | {
    f"{space}.{name}": getattr(module, name) for space, module in NAMESPACES.items() for name in module.__all__
}


def test_the_public_names_are_sorted_and_exist():
    assert list(lt.__all__) == sorted(lt.__all__)
    assert all(hasattr(lt, name) for name in lt.__all__)
    assert all(list(module.__all__) == sorted(module.__all__) for module in NAMESPACES.values())


def test_nothing_public_is_left_out():
    ours = {n for n, v in vars(lt).items() if not n.startswith("_") and not inspect.ismodule(v)}
    assert ours == set(lt.__all__) - NAMESPACES.keys()


def test_what_is_not_there_is_missed_as_in_any_module():
    assert not hasattr(lt, "Pipelines")
    with pytest.raises(AttributeError, match="module 'lately' has no attribute 'sprak'"):
        _ = lt.sprak


def test_a_pipeline_is_explained_by_an_example():
    pytest.importorskip("pyspark")
    assert doctest.DocTestParser().get_examples(inspect.getdoc(lt.Pipeline))


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_an_example_that_runs(name):
    thing = PUBLIC[name]
    text = inspect.getdoc(thing)
    assert text
    # An error needs no example: it is what refused calls raise.
    is_error = inspect.isclass(thing) and issubclass(thing, lt.LatelyError)
    examples = doctest.DocTestParser().get_examples(text)
    assert examples or is_error, f"{name} has no example"
    assert all(example.source.strip() for example in examples)


@pytest.mark.parametrize("name", [name for name, thing in PUBLIC.items() if inspect.isclass(thing)])
def test_every_public_method_is_explained(name):
    thing = PUBLIC[name]
    for method, value in vars(thing).items():
        if not method.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | classmethod)):
            assert inspect.getdoc(getattr(thing, method)), f"{name}.{method} has no docstring"

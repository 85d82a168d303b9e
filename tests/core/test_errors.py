"""An error carries its message and its remedy as fields, through copies and pickles."""

import copy
import pickle

import pytest

from lately.core import errors

KINDS = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.LatelyError)]


@pytest.mark.parametrize("kind", KINDS)
def test_message_and_remedy_are_fields(kind):
    error = kind("eps=2 is too large", remedy="give less than 1")
    for same in (error, pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(same) is kind
        assert (same.message, same.remedy) == ("eps=2 is too large", "give less than 1")
        assert str(same) == "eps=2 is too large; give less than 1"


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_without_a_remedy_is_its_message(kind):
    error = pickle.loads(pickle.dumps(kind("no such file; sorry")))
    assert (error.message, error.remedy, str(error)) == ("no such file; sorry", None, "no such file; sorry")

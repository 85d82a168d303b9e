"""Messages come back as they were sent, and nothing else does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.monitor.messages import CellsMessage, decode


@given(
    site=st.integers(0, 2**32 - 1),
    sequence=st.integers(1, 2**40),
    arrivals=st.integers(0, 2**40),
    cells=st.lists(st.integers(0, 2**30), max_size=30),
)
def test_there_and_back(site, sequence, arrivals, cells):
    message = CellsMessage(site, sequence, arrivals, np.array(cells, np.int64))
    data = message.to_bytes()
    again = decode(data)
    assert (again.site, again.sequence, again.arrivals, again.cells.tolist()) == (site, sequence, arrivals, cells)
    assert message.nbytes == len(data)


def test_small_numbers_take_little_room():
    assert CellsMessage(1, 1, 5, np.zeros(28, np.int64)).nbytes == 4 + 8 + 28


@given(data=st.binary(max_size=60))
def test_anything_else_is_refused(data):
    try:
        message = decode(data)
    except lt.FormatError:
        return
    assert message.to_bytes() == data or decode(message.to_bytes()).cells.tolist() == message.cells.tolist()


@pytest.mark.parametrize("cut", range(1, 20))
def test_cut_messages_are_refused(cut):
    data = CellsMessage(300, 2, 5, np.arange(6)).to_bytes()
    with pytest.raises(lt.FormatError):
        decode(data[:-cut] if cut < len(data) else b"")


def test_unknown_kinds_say_so():
    with pytest.raises(lt.FormatError, match=r"kind 99.*upgrade"):
        decode(bytes([99, 1, 1]))

"""However messages come, they are read each once and in order."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lately as lt
from lately.monitor import inbox as module
from lately.monitor.inbox import MOST_EARLY, Inbox
from lately.monitor.messages import KeyCountRequest, Message


@st.composite
def deliveries(draw):
    """(how many were sent, the order in which they came, some of them several times)."""
    sent = draw(st.integers(0, 25))
    again = draw(st.lists(st.integers(1, sent), max_size=25)) if sent else []
    return sent, draw(st.permutations([*range(1, sent + 1), *again]))


@given(deliveries())
def test_any_order_and_any_repeats_give_each_once_in_order(delivery):
    sent, order = delivery
    inbox, read, come = Inbox(), [], set()
    for number in order:
        read += [message.sequence for message in inbox.take(KeyCountRequest(3, number, number))]
        come.add(number)
        first_missing = min(set(range(1, sent + 2)) - come)
        # as early as can be: all before the first that is missing, and nothing after
        assert read == list(range(1, first_missing))
        assert inbox.waiting == len(come) - len(read)
    assert read == list(range(1, sent + 1))
    assert inbox.repeated == len(order) - sent
    assert inbox.waiting == 0


def test_the_first_of_two_alike_is_the_one_that_is_read():
    inbox, first, twin = Inbox(), KeyCountRequest(3, 2, 5), KeyCountRequest(3, 2, 5)
    assert inbox.take(first) == inbox.take(twin) == []
    assert inbox.take(KeyCountRequest(3, 1, 5))[1] is first


def test_numbers_start_at_one():
    inbox = Inbox()
    assert inbox.take(Message(1, 0)) == []
    assert inbox.repeated == 1
    assert [message.sequence for message in inbox.take(Message(1, 1))] == [1]


def test_a_carrier_that_lost_one_is_told_which():
    inbox = Inbox()
    for number in range(2, MOST_EARLY + 2):
        assert inbox.take(Message(7, number)) == []
    with pytest.raises(lt.InputError, match=r"10,000 messages of site 7 wait for its message 1, which never arrived; deliver"):
        inbox.take(Message(7, MOST_EARLY + 2))
    assert inbox.waiting == MOST_EARLY
    # those that wait already may come again
    assert inbox.take(Message(7, 5)) == []
    assert inbox.repeated == 1


def test_a_full_inbox_still_takes_the_message_that_it_waits_for(monkeypatch):
    monkeypatch.setattr(module, "MOST_EARLY", 5)
    inbox = Inbox()
    for number in np.arange(2, 7).tolist():
        inbox.take(Message(7, number))
    assert [message.sequence for message in inbox.take(Message(7, 1))] == [1, 2, 3, 4, 5, 6]

"""Where questions are worked out: short ones at once, long ones apart, and none for longer than the limit."""

import asyncio
import threading

import pytest
from patience import PATIENCE, wait_until

from lately.service import executor as module
from lately.service.executor import TimedExecutor
from lately.service.http_errors import HttpError


class Clock:
    """Time as a test has it: a call takes as long as it says, however busy the machine is."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for name in ("perf_counter", "thread_time"):
        monkeypatch.setattr(module, name, clock)
    return clock


def play(scene, limit=PATIENCE):
    """Run a scene with work to be done, and let go of its threads."""

    async def whole():
        work = TimedExecutor(limit)
        try:
            return await scene(work)
        finally:
            work.close()

    return asyncio.run(whole())


def here():
    return threading.current_thread() is threading.main_thread()


def test_what_is_known_to_be_short_is_done_at_once(clock):
    async def scene(work):
        return [await work.run("range", here) for _ in range(3)], await work.run("other", here)

    assert play(scene) == ([False, True, True], False)


@pytest.mark.parametrize("clocks", [["perf_counter"], ["thread_time"]], ids=["waiting", "working"])
def test_what_turns_out_to_be_long_is_done_apart_again(clock, monkeypatch, clocks):
    for name in {"perf_counter", "thread_time"}.difference(clocks):
        monkeypatch.setattr(module, name, Clock())

    def long():
        clock.now += 0.03

    async def scene(work):
        places = [await work.run("range", here) for _ in range(2)]
        await work.run("range", long)
        return [*places, await work.run("range", here)]

    assert play(scene) == [False, True, False]


def test_the_first_question_about_a_range_is_worked_out_once(clock):
    prepared, ready = [], []

    def call():
        if not ready:
            prepared.append(1)
            clock.now += 0.05
            ready.append(1)
        return here()

    async def scene(work):
        return await asyncio.gather(*(work.run("range", call) for _ in range(20)))

    places = play(scene)
    assert prepared == [1]
    assert places.count(True) == 18  # the first prepares, the second finds it short, the others follow at once


def test_what_takes_too_long_goes_on_and_is_there_later():
    done, goes_on = [], threading.Event()

    def call():
        if not done:
            assert goes_on.wait(PATIENCE)
            done.append(1)
        return len(done)

    async def scene(work):
        refused = await asyncio.gather(*(work.run("range", call) for _ in range(3)), return_exceptions=True)
        assert done == []  # nobody has waited for the end
        goes_on.set()
        await asyncio.to_thread(wait_until, lambda: done)
        work._limit = PATIENCE
        return refused, await work.run("range", call)

    refused, found = play(scene, limit=0.05)
    assert {(type(one), one.status, one.code, one.remedy) for one in refused} == {
        (HttpError, 503, "too_slow", "ask again: the answer is being prepared")
    }
    assert found == 1


def test_a_mistake_is_told_to_the_one_who_made_it():
    def wrong():
        raise ValueError("wrong")

    async def scene(work):
        mine, other = await asyncio.gather(work.run("range", wrong), work.run("range", here), return_exceptions=True)
        assert isinstance(mine, ValueError)
        assert other is False
        await work.run("range", here)
        with pytest.raises(ValueError, match="wrong"):
            await work.run("range", wrong)

    play(scene)


def test_only_so_much_is_worked_on_at_once():
    goes_on = threading.Event()

    async def scene(work):
        asked = [asyncio.create_task(work.run(i, lambda: goes_on.wait(PATIENCE))) for i in range(64)]
        await asyncio.sleep(0)
        with pytest.raises(HttpError, match="64 questions"):
            await work.run("one more", here)
        goes_on.set()
        assert await asyncio.gather(*asked) == [True] * 64

    play(scene)

"""Where questions are worked out: short ones at once, long ones apart, and none for longer than the limit."""

import asyncio
import threading
import time

import pytest

from lately.service.failures import RefusalError
from lately.service.work import Work


def play(scene, limit=2.0):
    """Run a scene with work to be done, and let go of its threads."""

    async def whole():
        work = Work(limit)
        try:
            return await scene(work)
        finally:
            work.close()

    return asyncio.run(whole())


def here():
    return threading.current_thread() is threading.main_thread()


def test_what_is_known_to_be_short_is_done_at_once():
    async def scene(work):
        return [await work.do("range", here) for _ in range(3)], await work.do("other", here)

    assert play(scene) == ([False, True, True], False)


def test_what_turns_out_to_be_long_is_done_apart_again():
    async def scene(work):
        places = [await work.do("range", here) for _ in range(2)]
        await work.do("range", lambda: time.sleep(0.03))
        return [*places, await work.do("range", here)]

    assert play(scene) == [False, True, False]


def test_the_first_question_about_a_range_is_worked_out_once():
    prepared, ready = [], []

    def call():
        if not ready:
            prepared.append(1)
            time.sleep(0.05)
            ready.append(1)
        return here()

    async def scene(work):
        return await asyncio.gather(*(work.do("range", call) for _ in range(20)))

    places = play(scene)
    assert prepared == [1]
    assert places.count(True) == 18  # the first prepares, the second finds it short, the others follow at once


def test_what_takes_too_long_goes_on_and_is_there_later():
    done = []

    def call():
        if not done:
            time.sleep(0.2)
            done.append(1)
        return len(done)

    async def scene(work):
        start = time.perf_counter()
        refused = await asyncio.gather(*(work.do("range", call) for _ in range(3)), return_exceptions=True)
        took = time.perf_counter() - start
        await asyncio.sleep(0.3)
        return refused, took, await work.do("range", call)

    refused, took, found = play(scene, limit=0.05)
    assert {(type(one), one.status, one.code, one.remedy) for one in refused} == {
        (RefusalError, 503, "too_slow", "ask again: it is being prepared")
    }
    assert took < 0.15
    assert found == 1


def test_a_mistake_is_told_to_the_one_who_made_it():
    def wrong():
        time.sleep(0.02)
        raise ValueError("wrong")

    async def scene(work):
        mine, other = await asyncio.gather(work.do("range", wrong), work.do("range", here), return_exceptions=True)
        assert isinstance(mine, ValueError)
        assert other is False
        await work.do("range", here)
        with pytest.raises(ValueError, match="wrong"):
            await work.do("range", wrong)

    play(scene)


def test_only_so_much_is_worked_on_at_once():
    async def scene(work):
        asked = [asyncio.create_task(work.do(i, lambda: time.sleep(0.01))) for i in range(64)]
        await asyncio.sleep(0)
        with pytest.raises(RefusalError, match="64 questions"):
            await work.do("one more", here)
        assert await asyncio.gather(*asked) == [None] * 64

    play(scene)

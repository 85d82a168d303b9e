"""Where questions run: short ones in the event loop, long ones in a thread, and none for longer than the limit."""

import asyncio
import threading

import pytest
from patience import PATIENCE, wait_until

from lately.service import executor as module
from lately.service.executor import TimedExecutor
from lately.service.http_errors import HttpError


class Clock:
    """A clock that a test sets: a call takes as long as the test says, on a busy machine as well."""

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
    """Run a coroutine with an executor, and close that."""

    async def with_executor():
        executor = TimedExecutor(limit)
        try:
            return await scene(executor)
        finally:
            executor.close()

    return asyncio.run(with_executor())


def is_main_thread():
    return threading.current_thread() is threading.main_thread()


def test_calls_known_to_be_short_run_in_the_event_loop(clock):
    async def scene(executor):
        return [await executor.run("range", is_main_thread) for _ in range(3)], await executor.run("other", is_main_thread)

    assert play(scene) == ([False, True, True], False)


@pytest.mark.parametrize("clocks", [["perf_counter"], ["thread_time"]], ids=["waiting", "working"])
def test_a_call_that_turns_out_to_be_long_sends_the_next_to_a_thread(clock, monkeypatch, clocks):
    for name in {"perf_counter", "thread_time"}.difference(clocks):
        monkeypatch.setattr(module, name, Clock())

    def long():
        clock.now += 0.03

    async def scene(executor):
        places = [await executor.run("range", is_main_thread) for _ in range(2)]
        await executor.run("range", long)
        return [*places, await executor.run("range", is_main_thread)]

    assert play(scene) == [False, True, False]


def test_the_first_question_about_a_range_runs_once(clock):
    prepared, ready = [], []

    def call():
        if not ready:
            prepared.append(1)
            clock.now += 0.05
            ready.append(1)
        return is_main_thread()

    async def scene(executor):
        return await asyncio.gather(*(executor.run("range", call) for _ in range(20)))

    places = play(scene)
    assert prepared == [1]
    assert places.count(True) == 18  # the first prepares, the second finds it short, the others follow at once


def test_a_call_beyond_the_limit_continues_and_its_result_is_there_later():
    done, may_continue = [], threading.Event()

    def call():
        if not done:
            assert may_continue.wait(PATIENCE)
            done.append(1)
        return len(done)

    async def scene(executor):
        refused = await asyncio.gather(*(executor.run("range", call) for _ in range(3)), return_exceptions=True)
        assert done == []  # no request has waited for the end
        may_continue.set()
        await asyncio.to_thread(wait_until, lambda: done)
        executor._limit = PATIENCE
        return refused, await executor.run("range", call)

    refused, result = play(scene, limit=0.05)
    assert {(type(error), error.status, error.code, error.remedy) for error in refused} == {
        (HttpError, 503, "too_slow", "ask again: the answer is being prepared")
    }
    assert result == 1


def test_an_error_is_raised_only_for_the_call_that_made_it():
    def wrong():
        raise ValueError("wrong")

    async def scene(executor):
        error, other = await asyncio.gather(
            executor.run("range", wrong), executor.run("range", is_main_thread), return_exceptions=True
        )
        assert isinstance(error, ValueError)
        assert other is False
        await executor.run("range", is_main_thread)
        with pytest.raises(ValueError, match="wrong"):
            await executor.run("range", wrong)

    play(scene)


def test_the_number_of_running_calls_is_limited():
    may_continue = threading.Event()

    async def scene(executor):
        calls = [asyncio.create_task(executor.run(i, lambda: may_continue.wait(PATIENCE))) for i in range(64)]
        await asyncio.sleep(0)
        with pytest.raises(HttpError, match="64 questions"):
            await executor.run("one more", is_main_thread)
        may_continue.set()
        assert await asyncio.gather(*calls) == [True] * 64

    play(scene)

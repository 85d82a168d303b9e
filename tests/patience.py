"""How long tests wait before they call something stuck. Never how fast something has to be: a machine may be slow or busy."""

import time

#: Seconds, for anything that a test waits for: the end of a process, an answer, a file that appears.
PATIENCE = 900


def wait_until(condition, trouble=lambda: "", pause=0.02):
    """The first true value of ``condition()``; ``trouble()`` is what the failure says if it never comes."""
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, f"not within {PATIENCE} s: {trouble()}"
        time.sleep(pause)
    return value

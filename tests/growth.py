"""How much work a call does, counted so that it is the same on every machine: instructions of Python, and bytes allocated."""

import gc
import sys
import tracemalloc


def instructions(action):
    """How many instructions of Python's an action runs, loops and comprehensions included."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def allocated(action):
    """How many bytes an action had allocated at one time at the most, NumPy's arrays included."""
    gc.collect()
    tracemalloc.start()
    try:
        action()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def kept(build):
    """How many bytes are still allocated while what ``build`` returns is held, and what that is."""
    build()  # kernels that are compiled on the way stay, too
    gc.collect()
    tracemalloc.start()
    try:
        built = build()
        gc.collect()
        return tracemalloc.get_traced_memory()[0], built
    finally:
        tracemalloc.stop()

"""Builders that the tests of the ECM-sketch share."""

from naive import NaiveWindow

import lately as lt

KINDS = ("time", "integer", "arrivals")


def build(kind, window, **options):
    """An empty sketch over a window of so many ticks of this kind, with its naive twin."""
    options = {"eps": 0.2, "delta": 0.2} | ({"salt": 1} if options.get("counter") == "randwave" else {}) | options
    if kind == "arrivals":
        return lt.EcmSketch(window=lt.arrivals(window), **options), NaiveWindow(window - 1)
    length = f"{window}s" if kind == "time" else window
    return lt.EcmSketch(window=length, **options), NaiveWindow(window)


def feed(sketch, twin, stream, pieces=()):
    for piece in stream.pieces(pieces):
        arrivals = sketch.window.kind == "arrivals"
        times = None if arrivals else piece.ticks
        sketch.update(piece.cells, times, piece.counts)
        for tick, key, count in zip(piece.ticks, piece.cells, piece.weights, strict=True):
            twin.add((twin.now or 0) + 1 if arrivals else tick, int(key), count)


def duration(kind, ticks):
    return f"{ticks}s" if kind == "time" else ticks


def first_tick(kind, twin, age):
    return twin.now - age + 1

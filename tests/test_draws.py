"""What the library would draw from the operating system comes from the name of the test, so that it is the same everywhere."""

import random
import secrets

from lately.counters.randwave import RandomizedWave


def test_seeds_and_salts_come_from_the_name_of_the_test(request):
    expected = random.Random(request.node.nodeid)
    assert secrets.randbits(64) == expected.getrandbits(64)
    assert RandomizedWave(cells=1, span=100, eps=0.5).salt == expected.getrandbits(64)

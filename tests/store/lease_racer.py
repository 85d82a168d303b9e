"""One of many processes that race for leases: ``lease_racer.py folder name rivals rounds``.

In round i all of them try to take the lease in ``folder/i`` at the same moment, as far as a machine can do that: when everybody
has said that it is ready. Whoever gets it writes its name to ``folder/i-winner-name``.
"""

import sys
import time
from pathlib import Path

from lately.core.errors import LeaseError
from lately.store.lease import Lease


def main(folder, name, rivals, rounds):
    folder = Path(folder)
    for number in range(rounds):
        (folder / f"{number}-ready-{name}").touch()
        while len(list(folder.glob(f"{number}-ready-*"))) < rivals:
            time.sleep(0.0005)
        try:
            lease = Lease.take(str(folder / str(number)), seconds=3600)
        except LeaseError:
            continue
        (folder / f"{number}-winner-{name}").write_text(lease.token)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))

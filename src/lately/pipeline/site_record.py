"""What happened to the rows of a site, which the state keeps and the table ``sites`` shows."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class SiteRecord:
    """What happened to the rows of a site since the state began.

    Parameters
    ----------
    counted, late, rejected
        Numbers of rows.
    ahead
        How many of the rejected rows had a time far ahead of the site's other rows.
    seen
        The start of the last batch with a counted row of the site, in microseconds since 1970; None if there was none.
    ahead_seen
        The start of the last batch with a row that was ahead, in microseconds since 1970; None if there was none.
    gap
        The longest gap between its rows, in ticks; it decays, so that old gaps are forgotten.
    """

    counted: int = 0
    late: int = 0
    rejected: int = 0
    ahead: int = 0
    seen: int | None = None
    ahead_seen: int | None = None
    gap: float = 0.0

    def after(self, rows: Sequence[float], began: int) -> "SiteRecord":
        """Return the record after a batch with rows of the site.

        Parameters
        ----------
        rows
            Numbers of rows that were counted, late, rejected and ahead, and the gap.
        began
            The start of the batch, in microseconds since 1970.
        """
        counted, late, rejected, ahead = (int(number) for number in rows[:4])
        return SiteRecord(
            self.counted + counted,
            self.late + late,
            self.rejected + rejected,
            self.ahead + ahead,
            began if counted else self.seen,
            began if ahead else self.ahead_seen,
            float(rows[4]) or self.gap,
        )

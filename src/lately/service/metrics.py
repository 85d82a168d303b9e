"""What Prometheus is told: what the pipeline has done, as far as the store remembers, and what the service has answered."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from lately.core.words import alert_state
from lately.store.site_report import SiteReport

#: Sums over all batches: the column of the table `runs`, the metric, and what it says.
_SUMS = {
    "rows": ("lately_rows", "Rows read"),
    "counted": ("lately_counted_rows", "Rows counted"),
    "late": ("lately_late_rows", "Rows that came too late"),
    "rejected": ("lately_rejected_rows", "Rows that could not be counted"),
    "seconds": ("lately_batch_work_seconds", "Seconds that all batches took"),
    "shipped_bytes": ("lately_shipped_bytes", "Bytes that travelled for answers"),
    "monitor_bytes": ("lately_monitor_bytes", "Bytes that travelled for monitors"),
    "everything_bytes": ("lately_everything_bytes", "Bytes that sending every row would have taken"),
}
#: What the newest batch says.
_NEWEST = {
    "batch": ("lately_newest_batch", "Number of the newest batch"),
    "seconds": ("lately_batch_seconds", "Seconds that the newest batch took"),
    "state_bytes": ("lately_state_bytes", "Bytes of the state after the newest batch"),
    "sites": ("lately_sites", "Sites after the newest batch"),
}
_STATES = {
    "silent": "Sites without a counted row in the newest batches, whose newest row is far behind",
    "ahead": "Sites whose newest row is far ahead of the other sites",
    "behind": "Sites whose rows still come but are far behind the other sites",
}
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def age_of(run: dict[str, Any], now: datetime) -> float:
    """How many seconds ago a batch was done.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> age_of({"began": noon, "seconds": 5.0}, datetime(2026, 1, 1, 12, 1, tzinfo=UTC))
    55.0
    """
    return max(0.0, float((now - run["began"]).total_seconds()) - float(run["seconds"] or 0.0))


class Metrics:
    """Numbers that only grow, and those of the newest batch.

    >>> metrics = Metrics(["/api/count"])
    >>> metrics.ran([{"batch": 0, "rows": 10}], [{"monitor": "skew", "raised": True}])
    >>> [line for line in metrics.text().decode().splitlines() if line.startswith(("lately_rows_total", "lately_alerts"))]
    ['lately_rows_total 10.0', 'lately_alerts_total{monitor="skew",state="firing"} 1.0']
    """

    def __init__(self, paths: Iterable[str]) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter("lately_http_requests", "Requests answered", ["path", "status"], registry=self._registry)
        self._seconds = Histogram(
            "lately_http_request_seconds", "How long requests took", ["path"], registry=self._registry, buckets=_BUCKETS
        )
        self._paths = frozenset(paths)
        self._sums: dict[str, float] = dict.fromkeys(_SUMS, 0.0)
        self._batches, self._newest = 0, dict[str, Any]()
        self._alerts: Tally[tuple[str, str]] = Tally()
        self._sites: SiteReport | None = None
        self.listeners = 0
        self._registry.register(self)

    def ran(self, runs: Iterable[dict[str, Any]], alerts: Iterable[dict[str, Any]]) -> None:
        """Take note of batches that have not been noted yet."""
        for run in runs:
            for name in _SUMS:
                self._sums[name] += run.get(name) or 0
            self._batches += 1
            self._newest = run
        self._alerts.update((alert["monitor"], alert_state(alert["raised"])) for alert in alerts)

    def see_sites(self, report: SiteReport) -> None:
        """Take note of the sites after the newest batch."""
        self._sites = report if report.newest is not None else None

    def saw(self, path: str, status: int, seconds: float) -> None:
        """Take note of a request; 499 is one whose sender did not wait for the answer."""
        # Paths that nobody serves would each become a series of numbers for ever.
        known = path if path in self._paths else "/static" if path.startswith("/static/") else "other"
        self._requests.labels(known, str(status or 499)).inc()
        if known != "/api/stream":
            self._seconds.labels(known).observe(seconds)

    def text(self) -> bytes:
        """All of it in Prometheus' own format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """What the registry asks for: the store's numbers as they are now."""
        for name, (metric, words) in _SUMS.items():
            yield CounterMetricFamily(metric, words, value=self._sums[name])
        yield CounterMetricFamily("lately_batches", "Batches done", value=self._batches)
        for name, (metric, words) in _NEWEST.items():
            if self._newest.get(name) is not None:
                yield GaugeMetricFamily(metric, words, value=self._newest[name])
        if self._newest.get("began") is not None:
            age = age_of({"seconds": None} | self._newest, datetime.now(UTC))
            yield GaugeMetricFamily("lately_batch_age_seconds", "Seconds since the newest batch was done", value=age)
        yield from self._of_sites()
        words = "How often alerts of a monitor began to fire, and how often they were resolved"
        alerts = CounterMetricFamily("lately_alerts", words, labels=["monitor", "state"])
        for (monitor, state), count in self._alerts.items():
            alerts.add_metric([monitor, state], count)
        yield alerts
        yield GaugeMetricFamily("lately_stream_listeners", "Listeners to /api/stream", value=self.listeners)

    def _of_sites(self) -> Iterator[Metric]:
        """Numbers over all sites; none has a label of its own, as there may be thousands."""
        report = self._sites
        if report is None:
            return
        for state, words in _STATES.items():
            yield GaugeMetricFamily(f"lately_{state}_sites", words, value=report.count(state))
        # The unit of integer times is not known.
        name = "lately_site_lag_seconds" if isinstance(report.newest, datetime) else "lately_site_lag"
        words = "How far the site that is furthest behind is behind the newest row of all sites that are not ahead"
        yield GaugeMetricFamily(name, words, value=report.lag or 0)
        refused = sum(row["ahead"] or 0 for row in report.rows)
        yield CounterMetricFamily("lately_ahead_rows", "Rows that were rejected as their time was too far ahead", value=refused)

"""Metrics for Prometheus: the pipeline's work, as far back as the store goes, and the requests to the service."""

from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from lately.store.site_report import SiteReport, SiteState
from lately.store.tables import Alert, Run

#: Counters, summed over all batches: the column of the table `runs`, the name of the metric, and its help text.
_SUMS = {
    "rows": ("lately_rows", "Rows read"),
    "counted": ("lately_counted_rows", "Rows counted"),
    "late": ("lately_late_rows", "Rows that arrived too late to be counted"),
    "rejected": ("lately_rejected_rows", "Rows that were invalid and not counted"),
    "seconds": ("lately_batch_work_seconds", "Seconds of processing, of all batches"),
    "shipped_bytes": ("lately_shipped_bytes", "Bytes sent to compute answers over all sites"),
    "monitor_bytes": ("lately_monitor_bytes", "Bytes that monitors sent"),
    "everything_bytes": ("lately_everything_bytes", "Bytes that sending every row would have taken"),
}
#: Gauges of the newest batch.
_NEWEST = {
    "batch": ("lately_newest_batch", "Number of the newest batch"),
    "seconds": ("lately_batch_seconds", "Seconds of processing of the newest batch"),
    "state_bytes": ("lately_state_bytes", "Bytes of state after the newest batch"),
    "sites": ("lately_sites", "Number of sites after the newest batch"),
}
#: Gauges of the sites: the state that they count, and the help text.
_STATES: dict[SiteState, str] = {
    "silent": "Sites without a counted row in the newest batches, whose newest row is far behind",
    "ahead": "Sites whose newest row is far ahead of the other sites",
    "behind": "Sites whose rows still come but are far behind the other sites",
}
_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


def age_of(run: Run, now: datetime) -> float | None:
    """How many seconds ago a batch finished; None if it is not known when it began.

    Parameters
    ----------
    run
        A row of the table ``runs``.
    now
        The time now.

    >>> noon = datetime(2026, 1, 1, 12, tzinfo=UTC)
    >>> age_of(Run(7, began=noon, seconds=5.0), datetime(2026, 1, 1, 12, 1, tzinfo=UTC))
    55.0
    """
    return None if run.began is None else max(0.0, (now - run.began).total_seconds() - (run.seconds or 0.0))


class Metrics:
    """Counters over all batches and requests, and gauges of the newest batch and of the sites.

    Parameters
    ----------
    paths
        The paths of the service. Requests for all other paths are counted together as "other".

    >>> metrics = Metrics(["/api/count"])
    >>> metrics.add_batches([Run(0, rows=10)], [Alert(None, 0, "skew", state="firing")])
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
        self._batches = 0
        self._newest: Run | None = None
        self._alerts: Tally[tuple[str, str]] = Tally()
        self._sites: SiteReport | None = None
        self.listeners = 0
        self._registry.register(self)

    def add_batches(self, runs: Iterable[Run], alerts: Iterable[Alert]) -> None:
        """Add the rows and alerts of new batches to the counters, each batch once."""
        for run in runs:
            for name in _SUMS:
                self._sums[name] += getattr(run, name) or 0
            self._batches += 1
            self._newest = run
        self._alerts.update((alert.monitor, alert.state) for alert in alerts)

    def set_sites(self, report: SiteReport) -> None:
        """Set the gauges of the sites to those after the newest batch."""
        self._sites = report if report.newest is not None else None

    def observe_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request.

        Parameters
        ----------
        path
            The path as the request has it.
        status
            The HTTP status of the response; 0 if the client disconnected before it, which is counted as 499.
        seconds
            How long the request took. Not recorded for event streams, which last as long as their clients.
        """
        # A label for every path that does not exist would let anybody create metrics without limit.
        label = path if path in self._paths else "/static" if path.startswith("/static/") else "other"
        self._requests.labels(label, str(status or 499)).inc()
        if label != "/api/stream":
            self._seconds.labels(label).observe(seconds)

    def text(self) -> bytes:
        """All metrics in the text format of Prometheus."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """The metrics of the store, for the registry."""
        for name, (metric, help_text) in _SUMS.items():
            yield CounterMetricFamily(metric, help_text, value=self._sums[name])
        yield CounterMetricFamily("lately_batches", "Batches finished", value=self._batches)
        for name, (metric, help_text) in _NEWEST.items():
            if (value := getattr(self._newest, name, None)) is not None:
                yield GaugeMetricFamily(metric, help_text, value=value)
        age = None if self._newest is None else age_of(self._newest, datetime.now(UTC))
        if age is not None:
            yield GaugeMetricFamily("lately_batch_age_seconds", "Seconds since the newest batch finished", value=age)
        yield from self._site_metrics()
        help_text = "How often alerts of a monitor began to fire, and how often they were resolved"
        alerts = CounterMetricFamily("lately_alerts", help_text, labels=["monitor", "state"])
        for (monitor, state), count in self._alerts.items():
            alerts.add_metric([monitor, state], count)
        yield alerts
        yield GaugeMetricFamily("lately_stream_listeners", "Clients connected to /api/stream", value=self.listeners)

    def _site_metrics(self) -> Iterator[Metric]:
        """Gauges over all sites. There is no label for each site, as there may be thousands."""
        report = self._sites
        if report is None:
            return
        for state, help_text in _STATES.items():
            yield GaugeMetricFamily(f"lately_{state}_sites", help_text, value=report.count(state))
        # The unit of integer times is unknown, so the name has none.
        name = "lately_site_lag_seconds" if isinstance(report.newest, datetime) else "lately_site_lag"
        help_text = "The largest lag of a site behind the newest row of all sites that are not ahead"
        yield GaugeMetricFamily(name, help_text, value=report.lag or 0)
        rejected = sum(row.ahead or 0 for row in report.rows)
        help_text = "Rows that were rejected because their time was too far ahead"
        yield CounterMetricFamily("lately_ahead_rows", help_text, value=rejected)

"""Metrics for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from dissensus.serve.service import OUTCOMES, Service

SECOND_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)  # bucket bounds of request durations


class Metrics(Collector):
    """Metrics of the requests to one application, and of its service and projects."""

    def __init__(self, service: Service):
        self.service, self.registry = service, CollectorRegistry()
        requests: dict[str, Any] = {"namespace": "dissensus", "registry": self.registry}
        self.requests = Counter("requests", "Requests by HTTP status", ["status"], **requests)
        self.seconds = Histogram("request_seconds", "Seconds of a request", buckets=SECOND_BUCKETS, **requests)
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the service and of each project."""
        counts = self.service.counts
        events = CounterMetricFamily("dissensus_events", "Events by outcome", labels=["outcome"])
        for outcome in OUTCOMES:
            events.add_metric([outcome], counts[outcome])
        yield events
        for key in ("batches", "failures", "fits"):
            yield CounterMetricFamily(f"dissensus_{key}", f"Number of {key}", counts[key])
        projects = {name: self.service.project(name).metric_values() for name in self.service.project_names()}
        for key in next(iter(projects.values()), {}):
            gauge = GaugeMetricFamily(f"dissensus_{key}", f"{key} of a project", labels=["project"])
            for name, numbers in projects.items():
                gauge.add_metric([name], numbers[key])
            yield gauge

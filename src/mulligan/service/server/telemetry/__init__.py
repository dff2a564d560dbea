"""Metrics and traces: what workers and servers show to Prometheus and OpenTelemetry."""

"""Grafana's boards, declared in Python; `make boards` writes them to docker/grafana/dashboards."""

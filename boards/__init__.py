"""Grafana's boards, declared in Python; `make docs` writes them to docker/grafana/dashboards."""

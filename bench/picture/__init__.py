"""Pictures of the dashboards, from a run of ten minutes in which every panel of every board has data."""

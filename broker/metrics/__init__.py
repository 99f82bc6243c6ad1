"""What the other sources have counted, as Prometheus reads it. They do not know this room: it reads their figures."""

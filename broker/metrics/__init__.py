"""What the other rooms have counted, as Prometheus reads it. They do not know this room: it reads their figures."""

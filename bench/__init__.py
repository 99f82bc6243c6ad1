"""The benchmark: repeatable load on a running broker, compared with the limits of the machine."""

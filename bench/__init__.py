"""Repeatable load on a running broker, beside the limits of the machine it runs on."""

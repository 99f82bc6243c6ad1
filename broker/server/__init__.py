"""The broker server: what it is made of, how it starts and stops, its command line and its APIs."""

"""Simulation: brokers, network, disks and time in one process, from one seed that repeats every run exactly."""

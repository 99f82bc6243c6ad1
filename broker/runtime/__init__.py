"""Services for all packages of the broker: clock, timers, threads, child processes, histograms and rates."""

"""What every part works with: time, timers, threads, processes, measuring."""

"""What chatcodec costs, side by side with what else there is: `python -m benchmarks` prints one table."""

"""Measurements of speed and memory; run one as `python -m benchmarks.heads` from the root."""

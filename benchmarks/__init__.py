"""Measurements of speed and memory; run one as `python -m benchmarks.heads` from the root."""

import os

# Torch's profiler reports its every start and stop on stderr unless told before torch is imported.
os.environ.setdefault("KINETO_LOG_LEVEL", "99")

"""The page of evidence, docs/trust.md: its tables are computed from the results of the benchmarks."""

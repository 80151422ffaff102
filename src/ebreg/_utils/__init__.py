"""Helpers that know nothing of regression: argument checks, stack levels, random state, memory."""

"""Saved files: written atomically, checked by a checksum when read; reading executes nothing."""

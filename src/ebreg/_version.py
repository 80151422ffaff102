"""The version, read by the build and by people."""

__version__ = "0.1.0"

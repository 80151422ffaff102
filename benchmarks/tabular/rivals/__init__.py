"""Methods of other libraries, each with its settings."""

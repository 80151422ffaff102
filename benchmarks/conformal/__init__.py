"""Coverage and size of calibrated intervals and regions, beside those of MAPIE."""

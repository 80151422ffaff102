"""What was tried to fool the stated errors, and how often it did: densities with mass that q misses."""

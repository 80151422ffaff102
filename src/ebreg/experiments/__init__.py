"""The paper's experiments as rows of data: trained, recorded, reported and drawn by one command each."""

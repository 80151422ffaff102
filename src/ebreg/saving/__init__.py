"""Files: written atomically, checked when read; nothing in them is executed."""

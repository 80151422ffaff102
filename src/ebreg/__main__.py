"""``python -m ebreg``."""

from ebreg.cli import main

if __name__ == "__main__":
    raise SystemExit(main())

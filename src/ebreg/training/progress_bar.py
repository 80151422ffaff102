"""The progress bar of a training."""

import sys
from typing import Any

# A training that is over sooner needs no bar.
DELAY = 2.0


def check_progress(name: str, value: object) -> bool | str:
    """Require True, False or "auto"."""
    if isinstance(value, str) and value == "auto":
        return value
    if type(value).__name__ in ("bool", "bool_"):
        return bool(value)
    raise ValueError(f"{name} must be True, False or 'auto', got {value!r}")


def progress_bar(progress: bool | str, name: str, n_steps: int) -> Any:
    """A tqdm bar on stderr, or in the notebook.

    Args:
        progress: True shows it, False does not; "auto" shows it in a terminal or a notebook once the training
            has taken two seconds.
        name: Shown before the bar.
        n_steps: Length of the bar.
    """
    from tqdm.auto import tqdm

    progress = check_progress("progress", progress)
    auto = progress == "auto"
    show = _is_interactive() if auto else bool(progress)
    delay = DELAY if auto else 0.0
    return tqdm(total=n_steps, desc=name, unit="step", disable=not show, mininterval=0.2, delay=delay)


def _is_interactive() -> bool:
    in_terminal = sys.stderr is not None and sys.stderr.isatty()
    return in_terminal or _is_notebook()


def _is_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config

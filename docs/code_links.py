"""Links from the pages to lines of the code: python docs/code_links.py sets their line numbers.

A link whose text is the name of a class, function or constant and whose target is the Python file that
defines it, as in ``[`objectives.nce`](../src/ebreg/objectives.py)``, gets the lines of that definition.
"""

import ast
import re
import sys
from functools import lru_cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGES = sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")])

_LINK = re.compile(r"\[`(?P<name>[\w.]+)`\]\((?P<path>[\w./-]+\.py)(?P<lines>#[\w-]*)?\)")


def with_lines(page: Path) -> str:
    """The text of a page, with the current line numbers in its links.

    Raises:
        LookupError: If there is no such file, or it does not define what the text of a link names.
    """

    def corrected(link: re.Match[str]) -> str:
        name, path = link["name"], link["path"]
        if name.endswith(".py"):  # the whole file
            return f"[`{name}`]({path})"
        first, last = lines_of((page.parent / path).resolve(), name)
        return f"[`{name}`]({path}#L{first}-L{last})"

    return _LINK.sub(corrected, page.read_text(encoding="utf-8"))


def lines_of(path: Path, name: str) -> tuple[int, int]:
    """First and last line of a definition; the name may begin with that of its module or package."""
    if not path.is_file():
        raise LookupError(f"there is no file {path.relative_to(ROOT)} that would define {name}")
    known, parts = _definitions(path), name.split(".")
    for i in range(len(parts)):
        inner = ".".join(parts[i:])
        if inner in known and set(parts[:i]) <= set(path.with_suffix("").parts):
            return known[inner]
    raise LookupError(f"{path.relative_to(ROOT)} does not define {name}")


@lru_cache
def _definitions(path: Path) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}

    def add(body: list[ast.stmt], prefix: str = "") -> None:
        for node in body:
            names: list[str] = []
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = [target.id for target in targets if isinstance(target, ast.Name)]
            for name in names:
                found[prefix + name] = node.lineno, node.end_lineno or node.lineno
            if isinstance(node, ast.ClassDef):
                add(node.body, f"{prefix}{node.name}.")

    add(ast.parse(path.read_text(encoding="utf-8")).body)
    return found


def main() -> None:
    """Rewrite the pages whose line numbers have changed."""
    for page in PAGES:
        try:
            text = with_lines(page)
        except LookupError as error:
            sys.exit(f"{page.relative_to(ROOT)}: {error}; correct the link")
        if text != page.read_text(encoding="utf-8"):
            page.write_text(text, encoding="utf-8")
            print(page.relative_to(ROOT))


if __name__ == "__main__":
    main()

"""Links of the pages: their files exist, their headings too, and lines of code hold what the text names."""

import importlib.util
import re
from functools import lru_cache
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "results").rglob("README.md")]
PAGES = sorted(page for page in PAGES if "_build" not in page.parts)
LINK = re.compile(r"!?\[(?P<text>[^\[\]]*)\]\((?P<target>[^()\s]+)\)")


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.fixture(scope="module")
def code_links() -> ModuleType:
    spec = importlib.util.spec_from_file_location("code_links", ROOT / "docs" / "code_links.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache
def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def links(page: Path) -> list[tuple[str, str]]:
    """Text and target of the links to files and headings of this repository."""
    found = [(link["text"], link["target"]) for link in LINK.finditer(prose(page))]
    return [(text, target) for text, target in found if not re.match(r"[a-z]+:", target)]


@lru_cache
def anchors(page: Path) -> set[str]:
    """Of the headings, as GitHub and the built pages make them."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.*)$", prose(page), flags=re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        repeated = (f"{slug}-{i}" for i in range(1, 100))
        found.add(slug if slug not in found else next(each for each in repeated if each not in found))
    return found


def problems(page: Path) -> list[str]:
    found = []
    for _, target in links(page):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or not file.is_relative_to(ROOT):
            found.append(f"{target}: no such file")
        elif file.suffix == ".md" and anchor and anchor not in anchors(file):
            found.append(f"{target}: no such heading")
    return found


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_targets_exist(page: Path):
    assert problems(page) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_of_code_hold_what_the_text_names(page: Path, code_links):
    assert code_links.with_lines(page) == page.read_text(encoding="utf-8"), "run `make format`"
    # A link to lines by another text could not be checked.
    lines = [(text, target) for text, target in links(page) if "#L" in target]
    assert [target for text, target in lines if not re.fullmatch(r"`[\w.]+`", text)] == []
    for text, target in lines:
        path, first, last = re.fullmatch(r"(.*)#L(\d+)-L(\d+)", target).groups()
        code = (page.parent / path).read_text(encoding="utf-8").splitlines()[int(first) - 1 : int(last)]
        name = text.strip("`").rpartition(".")[2]
        assert re.match(rf"\s*((def|class) )?{name}\b", code[0]), text
        assert code[-1].strip()


class TestMistakesAreFound:
    def page(self, tmp_path: Path, text: str, monkeypatch) -> Path:
        monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
        (tmp_path / "other.md").write_text("# The paper's one\n\n## Twice\n\n## Twice\n")
        (tmp_path / "page.md").write_text(text)
        return tmp_path / "page.md"

    @pytest.mark.parametrize(
        ("target", "problem"),
        [
            ("other.md#the-papers-one", None),
            ("other.md#twice-1", None),
            ("#here", None),
            ("https://example.org/page#x", None),
            ("other.md#the-paper-s-one", "no such heading"),
            ("other.md#twice-2", "no such heading"),
            ("#there", "no such heading"),
            ("missing.md", "no such file"),
            ("../other.md", "no such file"),
        ],
    )
    def test_in_targets(self, target: str, problem: str | None, tmp_path: Path, monkeypatch):
        page = self.page(tmp_path, f"# Here\n\nA [link]({target}).\n", monkeypatch)
        assert problems(page) == ([] if problem is None else [f"{target}: {problem}"])

    def test_in_lines(self, tmp_path: Path, monkeypatch, code_links):
        monkeypatch.setattr(code_links, "ROOT", tmp_path)
        (tmp_path / "module.py").write_text("A = 1\n\n\nclass B:\n    def c(self):\n        return 2\n")
        names = {"module.A": "L1-L1", "B": "L4-L6", "B.c": "L5-L6"}
        page = tmp_path / "page.md"
        page.write_text(" ".join(f"[`{name}`](module.py#L9)" for name in names))
        expected = " ".join(f"[`{name}`](module.py#{lines})" for name, lines in names.items())
        assert code_links.with_lines(page) == expected
        for wrong in ("c", "other.A", "module.D"):
            page.write_text(f"[`{wrong}`](module.py)")
            with pytest.raises(LookupError, match=rf"module\.py does not define {wrong}"):
                code_links.with_lines(page)
        page.write_text("[`A`](moved.py#L1-L1)")
        with pytest.raises(LookupError, match=r"there is no file moved\.py that would define A"):
            code_links.with_lines(page)


# Sections, tables, figures and appendices of the paper.
PARTS = """
1, 2.1, 2.2, 3.1, 3.2, 3.2.1, 3.2.2, 3.3, 4, 5.1, 5.2, 6,
A, B, C, D, E, F, G,
""".replace("\n", "")


class TestMap:
    section = (ROOT / "README.md").read_text(encoding="utf-8").split("## From the paper to the code")[1]
    rows = re.findall(
        r"^\| (.*?) \| (.*) \|$", section.split("\n## ")[0].replace(r"\|", "/"), flags=re.MULTILINE
    )

    @pytest.mark.parametrize("part", [part.strip() for part in PARTS.split(",") if part.strip()])
    def test_every_section_has_a_row(self, part: str):
        assert any(left.startswith(f"{part}, ") for left, _ in self.rows)

    @pytest.mark.parametrize("kind", ["Eq.", "Table", "Figure"])
    def test_every_number_is_named(self, kind: str):
        named = {
            "Eq.": {str(i) for i in range(1, 9)},
            "Table": {str(i) for i in range(1, 7)},
            "Figure": {"1", "2", "3", "S1", "S2", "S3", "S4"},
        }
        lists = re.findall(
            rf"{re.escape(kind)}s? ((?:S?\d(?:, | and )?)+)", " ".join(left for left, _ in self.rows)
        )
        assert {number for each in lists for number in re.findall(r"S?\d", each)} >= named[kind]

    def test_every_row_has_a_link(self):
        without = [left for left, right in self.rows if "](" not in right]
        assert without == ["in the paper", "---"] * 3

"""How large the library is, layer by layer, and what it costs to start.

    python -m benchmarks.house [SOURCE] [--since COMMIT]        # default: src/dissensus of this checkout

A code token is one of `tokenize`, without comments, docstrings, line ends and indentation. Start-up is processor time
(user and system, of the process and its children) of `import dissensus` and of `dissensus --help`, the least of
several runs, with files and compiled code in the system's memory. With `--since`, how many lines of this checkout's
package are as old as a commit (`git blame`, moved lines too), newer in files of then, and in files that came later.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import subprocess
import sys
import tokenize
from collections import defaultdict
from pathlib import Path

from reproductions import record

SOURCE = record.ROOT / "src" / "dissensus"
LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENCODING,
    tokenize.ENDMARKER,
}  # fmt: skip
STARTS = {"import dissensus": ["-c", "import dissensus"], "dissensus --help": ["-m", "dissensus", "--help"]}
RUNS = 5


def docstring_lines(text: str) -> set[int]:
    """Numbers of the lines on which docstrings begin."""
    owners = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, owners) and node.body and isinstance(first := node.body[0], ast.Expr):
            if isinstance(first.value, ast.Constant) and isinstance(first.value.value, str):
                found.add(first.lineno)
    return found


def code_tokens(text: str) -> int:
    """Tokens of a file that are code."""
    documented = docstring_lines(text)
    return sum(
        token.type not in LAYOUT and not (token.type == tokenize.STRING and token.start[0] in documented)
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
    )


def sizes(source: Path) -> dict[str, list[int]]:
    """Layer → files, lines and code tokens."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for path in sorted(source.rglob("*.py")):
        text, layer = path.read_text(encoding="utf-8"), path.relative_to(source).parts[0].removesuffix(".py")
        for layer_name in (layer, "all"):
            count = counts[layer_name]
            count[0] += 1
            count[1] += len(text.splitlines())
            count[2] += code_tokens(text)
    return counts


def processor_seconds(source: Path, arguments: list[str]) -> float:
    """Least processor time of several runs of this Python."""
    spent = []
    for _ in range(RUNS):
        before = os.times()
        environment = os.environ | {"PYTHONPATH": str(source.parent)}
        subprocess.run([sys.executable, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)
        after = os.times()
        spent.append(after.children_user - before.children_user + after.children_system - before.children_system)
    return min(spent)


def ages(source: Path, since: str) -> list[tuple[str, int]]:
    """Lines of the package as old as a commit, newer ones in files that it has, and those of later files."""

    def git(*words: str) -> list[str]:
        run = subprocess.run(["git", *words], capture_output=True, text=True, check=True, cwd=source)
        return run.stdout.splitlines()

    old = set(git("rev-list", since))
    later = set(git("diff", "-M40%", "--name-only", "--diff-filter=A", "--relative", since, "HEAD", "--", "."))
    counts = dict.fromkeys(("as old", "newer, in files of then", "in later files"), 0)
    for path in git("ls-files", "*.py"):
        for line in git("blame", "-M", "-C", "-l", "-s", path):
            kept = line.split(maxsplit=1)[0].lstrip("^") in old
            counts["as old" if kept else "in later files" if path in later else "newer, in files of then"] += 1
    return list(counts.items())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, nargs="?", default=SOURCE, help="the folder of the package")
    parser.add_argument("--since", metavar="COMMIT", help="also count the lines that are as old as a commit")
    asked = parser.parse_args()
    source = asked.source.resolve()
    found = sizes(source)
    rows = [
        [layer, *(f"{number:,}" for number in found[layer])] for layer in sorted(found, key=lambda name: name == "all")
    ]
    print(record.markdown_table(["layer", "files", "lines", "code tokens"], rows))
    print()
    if asked.since:
        print(
            record.markdown_table(
                ["lines", "number"], [[name, f"{number:,}"] for name, number in ages(source, asked.since)]
            )
        )
        print()
    rows = [[name, f"{processor_seconds(source, words):.2f}"] for name, words in STARTS.items()]
    print(record.markdown_table(["start", "processor s"], rows))


if __name__ == "__main__":
    main()

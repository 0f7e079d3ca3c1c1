"""List the benchmarks and their durations; with a name, run that benchmark.

    python bootstrap/bench.py [NAME | all] [OPTIONS OF THE BENCHMARK…]

A benchmark declares how long it takes (`TAKES`) and whether it needs Kafka (`NEEDS_KAFKA`) in plain
assignments, which are read without importing the benchmark.
"""

import ast
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from run import print_line
from steps import run

FOLDER = Path(__file__).resolve().parent.parent / "benchmarks"


@dataclass(frozen=True)
class Benchmark:
    """The declarations in a benchmark's file."""

    name: str
    module: str
    about: str  # the first line of its docstring
    takes: str  # such as "3 minutes"
    needs_kafka: bool


def read(file: Path) -> Benchmark:
    """Return the declarations of a file in `benchmarks/`."""
    tree = ast.parse(file.read_text())
    plain = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    about = (ast.get_docstring(tree) or "").partition("\n")[0]
    takes = str(plain.get("TAKES", "an unknown time"))
    module = ".".join(file.relative_to(FOLDER.parent).with_suffix("").parts)
    return Benchmark(file.stem, module, about, takes, bool(plain.get("NEEDS_KAFKA")))


def benchmarks() -> list[Benchmark]:
    """Return all benchmarks by name."""
    files = (file for file in FOLDER.rglob("*.py") if not file.name.startswith("_"))
    return sorted(map(read, files), key=lambda one: one.name)


def measure(benchmark: Benchmark, options: list[str]) -> None:
    """Start prerequisites, run the benchmark, and print the expected and actual duration."""
    print_line(
        f"\n{benchmark.name}: {benchmark.about}\n  takes about {benchmark.takes} on two quiet cores"
    )
    if benchmark.needs_kafka:
        run(sys.executable, str(FOLDER.parent / "bootstrap" / "fetch.py"), "kafka", "--jars")
    began = time.monotonic()
    run(sys.executable, "-m", benchmark.module, *options)
    # On stderr: the last line of the output is the benchmark's JSON.
    sys.stderr.write(f"{benchmark.name} took {time.monotonic() - began:.0f} s\n")


def main(arguments: list[str]) -> None:
    """List the benchmarks, or run the named one."""
    by_name = {benchmark.name: benchmark for benchmark in benchmarks()}
    if not arguments:
        for benchmark in by_name.values():
            print_line(f"  make bench {benchmark.name:<16}{benchmark.takes:<12}{benchmark.about}")
        print_line(
            '\nmake bench all runs them one after the other; ARGS="--help" shows one\'s options.'
        )
        return
    name, options = arguments[0].replace("-", "_"), arguments[1:]
    if name == "all":
        for benchmark in by_name.values():
            measure(benchmark, options)
    elif name in by_name:
        measure(by_name[name], options)
    else:
        sys.exit(f"There is no benchmark {name}. There are: {', '.join(by_name)}, and all.")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Benchmarks side by side: `python -m benchmarks [--rows NAME ...] [--out DIR] [--quick]`.

Each row runs in a process of its own. Prints the table as Markdown and, with --out, writes
`benchmarks.md` and `benchmarks.json` there, after each row. Exits with 0 whatever the ratios, which
are numbers of this machine and no checks, and with 1 if a row failed. The baselines need PyTorch:
`pip install 'gdln_jax[bench]'`.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from benchmarks.rows import JOBS
from benchmarks.table import Row, as_json, folder, machine, markdown
from gdln_jax._files import write


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure the rows asked for and show the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    names = f"which of {', '.join(JOBS)}; default all"
    parser.add_argument(
        "--rows", nargs="+", metavar="NAME", choices=sorted(JOBS), default=list(JOBS), help=names
    )
    parser.add_argument("--out", type=folder, metavar="DIR", help="folder for the table")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it runs")
    chosen = parser.parse_args(arguments)
    if find_spec("torch") is None and {"image", "gradient"} & set(chosen.rows):
        parser.error("image and gradient need PyTorch: pip install 'gdln_jax[bench]'")
    rows: list[Row] = []
    failed = []
    for name in chosen.rows:
        print(f"{name} ...", file=sys.stderr, flush=True)
        try:
            rows += measured(name, quick=chosen.quick)
        except RuntimeError as error:
            print(error, file=sys.stderr, flush=True)
            failed.append(name)
        if chosen.out is not None:  # the next row may take minutes
            write(chosen.out / "benchmarks.md", f"{markdown(rows)}\n\n{_where()}\n")
            write(chosen.out / "benchmarks.json", as_json(rows))
    print(f"{markdown(rows)}\n\n{_where()}\n")
    if failed:
        raise SystemExit(f"without the rows that failed: {', '.join(failed)}")


def measured(name: str, *, quick: bool) -> list[Row]:
    """The rows of one job, from a fresh process."""
    command = [sys.executable, "-m", "benchmarks.alone", name, *(["--quick"] if quick else [])]
    root = Path(__file__).resolve().parent.parent
    # As PyTorch's: threads of LAPACK on small matrices wait actively, and slow one another down.
    one_thread = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        command, check=False, stdout=subprocess.PIPE, text=True, cwd=root, env=one_thread
    )
    if done.returncode:
        raise RuntimeError(f"the row {name!r} failed with exit code {done.returncode}; see above")
    rows = [Row(**record) for record in json.loads(done.stdout)]
    if quick:  # the goals are for the full sizes
        rows = [replace(row, goal=None, cold_goal=None, limit=None) for row in rows]
    return rows


def _where() -> str:
    return ", ".join(f"{key} {value}" for key, value in machine().items())


if __name__ == "__main__":
    main()

"""Every coefficient of every shipped and every published scheme replaced by -1, 0, 1 and 1/2: how often the proof and the oracle agree.

Every mutant goes through the gate's own arithmetic, its rank-one difference added to the residual of the scheme; an even sample of
`--whole` mutants of each scheme is proved from the beginning too.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from common import parser_of, save
from mutants import Oracle, expanded, mutant, mutations, verdicts
from published import published

from bilinear.frontend import load
from bilinear.frontend.algorithms import shipped
from bilinear.ir.scheme import Scheme
from bilinear.verify.scheme import prove_scheme


def _shipped(name: str) -> Scheme:
    return load(name).scheme


def measure(name: str, whole: int) -> dict[str, Any]:
    """The counts of one scheme's mutants, and the seconds that they took."""
    scheme = expanded(schemes()[name]())
    oracle, began = Oracle(scheme), time.perf_counter()
    count = correct = disagreements = 0
    for mutation, holds in verdicts(scheme, mutations(scheme)):
        count, correct = count + 1, correct + holds
        disagreements += holds != oracle.is_correct(mutation)
    middle = time.perf_counter()
    sample = list(islice(mutations(scheme), 0, None, max(1, count // whole)))
    wrong = sum(prove_scheme(mutant(scheme, mutation)).holds != oracle.is_correct(mutation) for mutation in sample)
    return {
        "scheme": name,
        "format": scheme.format,
        "ring": str(scheme.ring),
        "holds": prove_scheme(scheme).holds,
        "mutants": count,
        "still correct": correct,
        "disagreements": disagreements,
        "seconds": round(middle - began, 3),
        "whole proofs": len(sample),
        "disagreements of whole proofs": wrong,
        "seconds of whole proofs": round(time.perf_counter() - middle, 3),
    }


def schemes() -> dict[str, Callable[[], Scheme]]:
    """How to read every scheme there is, by its name."""
    return {f"algorithms/{name}": partial(_shipped, name) for name in shipped()} | published()


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--whole", type=int, default=400, help="mutants of each scheme that are proved from the beginning")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    with get_context("fork").Pool(options.processes) as pool:
        rows = list(pool.imap(partial(measure, whole=options.whole), schemes(), chunksize=1))
    for row in rows:
        print(f"{row['mutants']:7} {row['disagreements']:3} {row['disagreements of whole proofs']:3}  {row['scheme']}")
    total = {key: sum(row[key] for row in rows) for key in rows[0] if isinstance(rows[0][key], int | float) and key != "holds"}
    print(f"{len(rows)} schemes: {total}")
    save("mutations", rows, options.json)


if __name__ == "__main__":
    main()

"""Products of residues beside the fastest of cuBLAS, cublasLt, CuPy and PyTorch: checked first, then timed launch by launch, with errors.

Every way must be exact on integers, and keep its certain bound on sampled rows and columns of normal data and of nine decades, beside sums
in double-double; one Inf must give what the classical multiply gives. One call does all of it, and prints a line for each way.
`--architecture compute_80` builds the kernels by which chips without warpgroups multiply, and runs them on this one.
"""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any

from common import Call, build_for, classical, cupy, need_gpu, parser_of, queued, save

from bilinear.backends.machine import target_here
from bilinear.ir.matrix import layout_of
from bilinear.ir.tile import RESIDUE_TILES
from bilinear.methods.digits.binding import digit_multiply_of
from bilinear.methods.digits.choice import Digits
from bilinear.methods.digits.launches import CutMultiply
from bilinear.planner.plan import Candidate
from bilinear.planner.profiles import portfolio

ROUNDS, IN_A_ROW = 7, 2
SAMPLED = 64
TERMS, SPLIT = 512, 134217729.0
"""Terms whose products are held at once, and the factor that splits a double into halves, 2^27 + 1."""
Row = dict[str, Any]


def drawn(n: int, dtype: str, decades: int, seed: int) -> Any:
    """Normal numbers, each times a power of ten of its own, from 10^(-decades/2) to 10^(decades/2)."""
    generator = cupy.random.default_rng(seed)
    x = generator.standard_normal((n, n), dtype=dtype)
    if decades:
        x *= 10 ** (decades * (generator.random((n, n), dtype=dtype) - x.dtype.type(0.5)))
    return x


def exact_sums(left: Any, right: Any) -> tuple[Any, Any]:
    """Rows of `left` times columns of `right` as a high and a low part: products and sums in double-double, `TERMS` at a time by halves."""
    high, low = (cupy.zeros((len(left), right.shape[1])) for _ in "hl")
    for begin in range(0, left.shape[1], TERMS):
        x, y = left[:, begin : begin + TERMS, None], right[None, begin : begin + TERMS]
        product, (x_high, y_high) = x * y, (v * SPLIT - (v * SPLIT - v) for v in (x, y))
        tail = ((x_high * y_high - product) + x_high * (y - y_high) + (x - x_high) * y_high) + (x - x_high) * (y - y_high)
        while product.shape[1] > 1:
            half = product.shape[1] // 2
            rest = product[:, 2 * half :], tail[:, 2 * half :]  # of an odd number one is left over
            product, lost = exact_sum(product[:, :half], product[:, half : 2 * half])
            tail = tail[:, :half] + tail[:, half : 2 * half] + lost
            product, tail = (cupy.concatenate(pair, axis=1) for pair in ((product, rest[0]), (tail, rest[1])))
        high, lost = exact_sum(high, product[:, 0])
        low = low + lost + tail[:, 0]
    return high, low


def exact_sum(x: Any, y: Any) -> tuple[Any, Any]:
    """x + y as it is rounded, and what rounding lost."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def errors(c: Any, sampled: Any, exact: tuple[Any, Any], size: float) -> tuple[float, float]:
    """Of some rows and columns: the error by norm, and the largest over `size`, max|A| max|B|."""
    off = (c[sampled][:, sampled].astype("float64") - exact[0]) - exact[1]
    return float(cupy.linalg.norm(off) / cupy.linalg.norm(exact[0])), float(abs(off).max() / size)


def ways(a: Any, b: Any, c: Any, names: list[str]) -> dict[str, tuple[CutMultiply, Candidate]]:
    """Products of residues of the arrays' type, with the levels of the portfolio inside."""
    found = {}
    for name in names:
        for levels in portfolio().digits if RESIDUE_TILES[name].of.name == str(a.dtype) else ():
            multiply = digit_multiply_of(layout_of(a), layout_of(b), layout_of(c), Digits(levels, name))
            if multiply is not None:
                found[f"{name} {' '.join(levels)}".strip()] = multiply, Candidate(Digits(levels, name))
    return found


def checked(multiply: CutMultiply, a: Any, b: Any, c: Any) -> bool:
    """Whether a way is exact on integers, and that of the classical multiply where there is an Inf."""
    draw = cupy.random.default_rng(5)
    most = 2**15 if a.dtype == "float64" else 15  # sums are exact in the type
    left, right = (draw.integers(-most, most + 1, a.shape).astype(a.dtype) for _ in "AB")
    wanted, run = cupy.matmul(left, right), partial(multiply, left.data.ptr, right.data.ptr, c.data.ptr, 1, 0)
    c[...] = cupy.nan
    run()
    if not (c == wanted).all():
        return False
    left[3, 5] = cupy.inf
    run()
    return bool((c[4:] == wanted[4:]).all() and not cupy.isfinite(c[3]).any())


def launch_ms(multiply: CutMultiply, a: Any, b: Any, c: Any) -> dict[str, float]:
    """The median milliseconds of each launch."""
    workspace, found = cupy.empty(multiply.workspace, a.dtype), dict[str, float]()
    bases = a.data.ptr, b.data.ptr, c.data.ptr, workspace.data.ptr
    names = [launch.kernel.name for launch, _ in multiply.launches(True, cupy.cuda.Device().attributes["MultiProcessorCount"])]
    with multiply.bound(True).ready(bases, 1.0, 0.0, cupy.cuda.get_current_stream().ptr) as calls:
        for name, call in zip(names, calls, strict=True):
            times = []
            for _ in range(ROUNDS):
                begin, end = cupy.cuda.Event(), cupy.cuda.Event()
                begin.record()
                call()
                end.record()
                end.synchronize()
                times.append(cupy.cuda.get_elapsed_time(begin, end))
            found[f"{len(found)} {name}"] = round(median(times), 4)
    return found


def measure(n: int, dtype: str, decades: int, names: list[str]) -> Row:
    """One size: each way checked, timed beside the libraries, and its errors beside its bound."""
    c = cupy.empty((n, n), dtype)
    a, b = drawn(n, dtype, decades, 1), drawn(n, dtype, decades, 2)
    own = ways(a, b, c, names)
    right = {name: checked(multiply, a, b, c) for name, (multiply, _) in own.items()}
    calls: dict[str, Call] = {**classical(a, b, c)}
    calls |= {name: partial(multiply, a.data.ptr, b.data.ptr, c.data.ptr, 1, 0) for name, (multiply, _) in own.items()}
    sampled, size = cupy.linspace(0, n - 1, SAMPLED).astype(int), float(abs(a).max()) * float(abs(b).max())
    exact = exact_sums(a[sampled].astype("float64"), b[:, sampled].astype("float64"))
    ms = {name: round(median(values), 4) for name, values in queued(calls, ROUNDS, IN_A_ROW).items()}
    found = {}
    for name, call in calls.items():
        c[...] = cupy.nan
        call()
        found[name] = errors(c, sampled, exact, size)
    bounds = {name: candidate.choice.bound(n, dtype) for name, (_, candidate) in own.items()}
    right = {name: held and found[name][1] <= bounds[name] for name, held in right.items()}
    library = min(value for name, value in ms.items() if name not in own)
    row: Row = {
        "n": n,
        "architecture": str(target_here()),
        "dtype": dtype,
        "decades": decades,
        "ms": ms,
        "ratio": {name: round(library / ms[name], 3) for name in own},
    }
    return row | {"errors": found, "bounds": bounds, "right": right, "launches": {k: launch_ms(m, a, b, c) for k, (m, _) in own.items()}}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--sizes", default="2048,4096,8192,16384", help="comma-separated")
    parser.add_argument("--residues", default="residues7,residues8,residues14,residues15", help="comma-separated")
    parser.add_argument("--decades", default="0,9", help="comma-separated: 0 for normal data, 9 for data of nine decades")
    parser.add_argument("--architecture", default="", help="what the kernels are built for, such as compute_80 (default: this GPU)")
    asked = parser.parse_args()
    need_gpu()
    build_for(asked.architecture)
    rows = []
    for n in map(int, asked.sizes.split(",")):
        for dtype in ("float64", "float32"):
            for decades in map(int, asked.decades.split(",")):
                row = measure(n, dtype, decades, asked.residues.split(","))
                rows.append(row)
                for name, ms in row["ms"].items():
                    norm, largest = row["errors"][name]
                    wrong = "" if row["right"].get(name, True) else "WRONG"
                    ratio = f"x{row['ratio'][name]:.2f}" if name in row["ratio"] else ""
                    print(f"{n:6} {dtype} {decades} {name:32} {ms:9.3f} ms {ratio:6} {norm:.2e} {largest:.2e} {wrong}", flush=True)
                for name, launches in row["launches"].items():
                    print(f"       {name}: {', '.join(f'{launch} {ms:.3f}' for launch, ms in launches.items())}", flush=True)
                cupy.get_default_memory_pool().free_all_blocks()
    save("residues", rows, asked.json)


if __name__ == "__main__":
    main()

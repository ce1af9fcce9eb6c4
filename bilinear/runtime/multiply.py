"""Multiply arrays of one kind: decide what runs, run it, and keep it to be repeated. What a plan cannot run, the library multiplies."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Unpack

import numpy as np

from bilinear.backends.capture import LARGE
from bilinear.errors import BilinearError, fail
from bilinear.ir.element import HALVES, IN_ARRAYS
from bilinear.ir.matrix import Array, layout_of
from bilinear.ir.placement import COLOURS
from bilinear.methods.registry import bind
from bilinear.runtime.arrays import Kind, gpu_executor
from bilinear.runtime.complex_parts import formed, require_complex
from bilinear.runtime.decide import Decision, check_library_accuracy, decide
from bilinear.runtime.operands import Layouts, fit, layouts_of
from bilinear.runtime.options import Options, ProductOptions, check_options
from bilinear.runtime.repeat import CupyRepeat, Key, LibraryRepeat, PlacementRepeat, is_kept, keep_repeat
from bilinear.runtime.run import adds_with, by_library, library_of, ready_schedule, require_out

log = logging.getLogger("bilinear")


def multiply(asked: Options, kind: Kind, key: Key | None, a: Array, b: Array, out: Array) -> Array:
    """alpha * a @ b + beta * out on arrays of one kind, with the options asked for. What ran is kept under `key`, to be repeated."""
    require_complex(asked.algorithm, a, b, out)
    if asked.contention != COLOURS and not (kind.on_gpu and all(str(x.dtype) in IN_ARRAYS for x in (a, b))):
        what = f"contention={asked.contention!r} has no meaning here: only a GPU's float32 and float64 are added atomically"
        raise fail("E557", what, "leave it out, or multiply such arrays")
    if asked.reproducible is not None:
        from bilinear.runtime.same_bits import by_same_bits, is_exact  # most calls need none of it

        if not is_exact(a, b, out):
            result, repeat = by_same_bits(asked, kind, a, b, out)
            if key is not None and repeat is not None:
                keep_repeat(key, asked, repeat)
            return result
        asked = asked._replace(reproducible=None)
    cpu = asked.described_cpu(kind, a, b)
    if cpu is None and asked.accuracy is None and asked.is_plain(kind):
        log.debug("matmul %s by %s: the library's multiply (algorithm is auto, or levels is 0)", a.shape, b.shape)
        try:
            return np.matmul(*formed(asked.conjugated, a, b), out=out)
        except (TypeError, ValueError):
            fit(layouts_of(a, b, out))  # which says it with a code
            raise
    if kind.on_gpu and a.dtype.kind in "biu" and b.dtype.kind in "biu":
        from bilinear.runtime.integers import by_counts, by_residues  # most calls need none of it

        whole = (by_counts if a.dtype == b.dtype == bool else by_residues)(asked, kind, a, b, out)
        if whole is not None:
            return whole
    if str(a.dtype) in HALVES:
        from bilinear.runtime.half import by_half, element_of  # most calls need none of it

        element = element_of(a, b, out)
        half = None if element is None else by_half(asked, kind, element, a, b, out)
        if half is not None:
            return half
    options = asked.settled(kind, cpu)
    layouts = layouts_of(a, b, out)
    decision = decide(options, layouts)
    require_out(kind, out)
    with nullcontext() if decision.turn is None else decision.turn.timed():
        return _run(asked, options, kind, key, decision, layouts, a, b, out)


def _run(
    asked: Options, options: Options, kind: Kind, key: Key | None, decision: Decision, layouts: Layouts, a: Array, b: Array, out: Array
) -> Array:
    if decision.recipe is None:
        result = None
        try:
            result = by_library(options, decision, a, b, out, layouts.overlaps, decision.choice)
        except (BilinearError, MemoryError) as error:  # our own kernels raise them before anything is written
            if not options.is_automatic or not decision.choice.has_kernels:
                raise
            log.info("matmul %s by %s: %s cannot run (%s)", a.shape, b.shape, decision.choice.title, error)
            less = _less(options, decision, error)
        if result is None and less is not None:
            return multiply(asked._replace(workspace=less), kind, key, a, b, out)
        if result is None:
            check_library_accuracy(options.accuracy, layouts.extents[1], decision.dtype)
            return by_library(options, decision, a, b, out, layouts.overlaps)
        if not layouts.overlaps:  # the key does not tell of overlap, and arrays that do not overlap may run by a schedule
            _keep(asked, kind, key, decision, a, b, result)
        return result
    result = options.kind.module.empty(decision.shape, decision.dtype) if out is None else out
    try:
        ready_schedule(options, decision, decision.recipe, a, b, result)()
    except (BilinearError, MemoryError) as error:  # raised before anything was written, unless A and B are consumed
        if not options.is_automatic or (isinstance(error, MemoryError) and decision.recipe.promise == "consume"):
            raise
        log.info("matmul %s by %s: %s cannot run (%s)", a.shape, b.shape, decision.recipe.loaded.name, error)
        less = _less(options, decision, error)
    else:
        _keep(asked, kind, key, decision, a, b, result)
        return result
    if less is None:
        return by_library(options, decision, a, b, result, layouts.overlaps)
    del result
    return multiply(asked._replace(workspace=less), kind, key, a, b, out)


def _less(options: Options, decision: Decision, error: Exception) -> int | None:
    """The bytes that another plan may take after one could not be allocated, because memory is free in pieces; None for the library."""
    if decision.turn is not None:
        decision.turn.fails()
    is_large = decision.workspace >= LARGE and options.buffer is None
    return decision.workspace // 2 if isinstance(error, MemoryError) and is_large else None


def _keep(asked: Options, kind: Kind, key: Key | None, decision: Decision, a: Array, b: Array, out: Array) -> None:
    """Keep what ran, to be repeated: the library's multiply, or a placement on three matrices where they lie."""
    if key is None or decision.is_interim or is_kept(key):
        return
    placement, layouts = decision.placement, (layout_of(a), layout_of(b), layout_of(out))
    if decision.recipe is None:
        known, choice = (kind.module, decision, layouts), decision.choice
        if not choice.suits(layouts[2], asked.beta):
            return  # it ran aside from out
        own = bind(choice, *layouts) if asked.alpha != 0 else None
        if own is None and asked.plan is not None and choice.is_bound and asked.alpha != 0:
            return  # it ran on vectors as matrices
        direct = own or (library_of(layouts, choice) if asked.alpha != 0 else None)
        workspace = 0 if own is None else own.workspace * decision.dtype.itemsize
        keep_repeat(key, asked, CupyRepeat(*known) if direct is None else LibraryRepeat(*known, direct, workspace))
    elif placement is None or placement.schedule.is_complex:
        return
    elif a.ndim == b.ndim == out.ndim == 2 and adds_with(asked, placement):
        repeat = PlacementRepeat(kind.module, gpu_executor(), decision, placement, decision.recipe.promise, layouts)
        keep_repeat(key, asked, repeat)


def looked_at(kind: Kind, a: Array, b: Array, out: Array = None, **given: Unpack[ProductOptions]) -> Array:
    """`matmul` of arrays of one kind without multiplying: what would be refused is refused, and the result is `out` as it is, or zeros.

    A chain of products is looked through by it, before the first one writes its operands.
    """
    asked = Options()._replace(**given).as_named()
    check_options(asked, out)
    return look(asked, kind, a, b, out)


def look(asked: Options, kind: Kind, a: Array, b: Array, out: Array) -> Array:
    """The same for options that were checked."""
    require_complex(asked.algorithm, a, b, out)
    if asked.reproducible is not None:
        from bilinear.runtime.same_bits import look_at_same_bits

        return kind.module.zeros(*look_at_same_bits(kind, a, b, out)) if out is None else out
    if out is not None and kind.on_gpu and a.dtype.kind in "iu" and b.dtype.kind in "iu":
        from bilinear.runtime.integers import look_at_residues  # most calls need none of it

        if look_at_residues(asked, kind, a, b, out):
            return out
    options = asked.settled(kind, asked.described_cpu(kind, a, b))
    decision = decide(options, layouts_of(a, b, out))
    result = kind.module.zeros(decision.shape, decision.dtype) if out is None else out
    if decision.recipe is not None and not options.is_automatic:
        ready_schedule(options, decision, decision.recipe, a, b, result)
    return result

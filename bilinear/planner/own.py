"""The user's portfolio: add an algorithm of one's own to those that compete, or remove it."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from pathlib import Path

from bilinear.errors import BilinearError, fail
from bilinear.ir.element import IN_ARRAYS
from bilinear.places import require_kept, sealed
from bilinear.planner.profiles import OutlineEntry, OwnRecord, entry_of, outline_of, way_key
from bilinear.planner.ways import Way, algorithm_named, forget_changed_files, forget_names, full_names, hashes
from bilinear.resources import implementation_sha256, own_folder
from bilinear.writing import make_folder, write_files

HOME = "set XDG_DATA_HOME to a folder that can be written"
MIXED = "winograd"  # The shipped algorithm that is tried above and below the user's own.


def add(file: str) -> tuple[str, Path]:
    """Keep the algorithm of a `.bl` file, proved, as one of the user's own; returns its name and place.

    It is written as text that needs no other file. Raises `BilinearError`: E576 if its name is reserved or no name, E612
    if nothing can be written, E528 if float32 cannot hold its coefficients, and the errors of what cannot be read, proved or run.
    """
    from bilinear.frontend.algorithms import is_file_name

    if Path(file).is_dir():
        raise fail("E576", f"{file!r} is a folder, and one algorithm is added at a time", "name a .bl file in it")
    if not is_file_name(file):
        raise fail("E576", f"{file!r} is not a .bl file", "`bilinear import` writes one from a published table")
    folder = own_folder()
    if folder is None:
        raise fail("E612", "there is no home folder to keep algorithms in", HOME)
    require_kept(folder, HOME)
    forget_changed_files()
    (path,) = full_names((file,))
    name, text = _written(path)
    data = text.encode()
    record: OwnRecord = {
        "algorithm_sha256": hashlib.sha256(data).hexdigest(),
        "implementation_sha256": implementation_sha256(),
        "outlines": _outlines(path, name),
    }
    make_folder(folder, HOME)
    place = folder / f"{name}.bl"
    write_files({place: data, place.with_suffix(".json"): sealed(record)})
    forget_names()
    return name, place


def remove(name: str) -> Path:
    """Remove one of the user's own algorithms, and return where it was. Raises `BilinearError` (E577) if there is none of that name."""
    from bilinear.frontend.files import own

    place = own().get(name)
    if place is None:
        raise fail("E577", f"{name!r} is none of your own algorithms", f"these are: {', '.join(own()) or 'none'}")
    try:
        place.unlink()
        place.with_suffix(".json").unlink(missing_ok=True)
    except OSError as error:
        raise fail("E612", f"{place} cannot be removed: {error.strerror or error}") from None
    forget_names()
    return place


def reserved_names() -> set[str]:
    """The names that mean something already: shipped files of every kind, products of plans, and words of options and of the language."""
    from bilinear.frontend.files import shipped_of_all_kinds
    from bilinear.ir.rounded import ROUNDINGS
    from bilinear.ir.tile import FLOAT_TILES, RESIDUE_TILES, RESIDUES
    from bilinear.planner.plan import LIBRARIES

    return {*shipped_of_all_kinds(), *FLOAT_TILES, RESIDUES, *RESIDUE_TILES, *ROUNDINGS, *LIBRARIES, "auto", "rotate", "transpose"}


def _written(file: str) -> tuple[str, str]:
    """The name and the text of the algorithm of a file; the text needs no other file and means the same."""
    from bilinear.algebra.maps import on_blocks
    from bilinear.analysis.identity import schedule_hash, scheme_hash
    from bilinear.frontend import parse_source
    from bilinear.frontend.printer import print_schedule, readable_text
    from bilinear.source import Source

    loaded = algorithm_named(file)
    name = loaded.scheme.name if loaded.schedule is None else loaded.schedule.name
    if name in reserved_names() or not name.isidentifier():
        raise fail("E576", f"{name!r} cannot be the name of an algorithm of your own", "give it another one in its header")
    text = readable_text(on_blocks(loaded.scheme))  # the language can write only changes of basis from blocks to as many values
    if loaded.schedule is not None:
        text += f"\n{print_schedule(loaded.schedule)}"
    module = parse_source(Source(f"{name}.bl", text))
    again = scheme_hash(module.schemes[0]), schedule_hash(module.schedules[0]) if module.schedules else ""
    assert again == hashes((file,))[0], f"the text of {name} does not mean what {file} does"
    return name, text


def _outlines(file: str, name: str) -> dict[str, OutlineEntry]:
    """The outlines of all ways by an algorithm, proved, by their keys under its name. A single level must be able to run."""
    from bilinear.lowering.prepare import natural_inputs

    natural = natural_inputs(algorithm_named(file).schedule)
    promises = {"preserve": ["preserve"], "restore": ["restore", "consume", "preserve"], "consume": ["consume", "preserve"]}[natural]
    found = {way_key(Way((name,), promises[0])): _proved_outline(Way((file,), promises[0]))}
    for inputs in promises:
        for levels in ((file,), (file, file), (file, MIXED), (MIXED, file)):
            with suppress(BilinearError):  # these levels do not stand below each other, or are too many products
                named = tuple(name if level == file else level for level in levels)
                found[way_key(Way(named, inputs))] = _proved_outline(Way(levels, inputs))
    return found


def _proved_outline(way: Way) -> OutlineEntry:
    """The outline of a way. Raises `BilinearError` if a proof fails, the levels cannot run, or there are too many products."""
    from bilinear.lowering.prepare import Level, prepare_levels, require_elements

    loaded = [algorithm_named(name) for name in way.levels]
    schedule = prepare_levels(tuple(Level(x.scheme, x.schedule) for x in loaded), way.inputs)
    for dtype in IN_ARRAYS:  # `auto` weighs it for each of them
        require_elements(loaded[0].scheme, schedule.coefficients, dtype, "f")
    return entry_of(outline_of(way))

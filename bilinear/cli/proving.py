"""compile and verify."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from bilinear.cli import common, completing
from bilinear.cli.answers import Json, Svg, answer, file_of, in_place_of_text, output_option, require_pages, say, write_pages
from bilinear.errors import BilinearError, fail
from bilinear.ir.element import COMPILED, COMPLEX, MULTIPLIED
from bilinear.places import goes_straight, require_files
from bilinear.writing import write_file

if TYPE_CHECKING:
    from bilinear.artifact.write import Compiled
    from bilinear.frontend import Loaded, LoadedComplex, LoadedDigits, LoadedGram
    from bilinear.frontend.algorithms import AnyLoaded
    from bilinear.measure.check_multiply import Check
    from bilinear.reporting.examine import AnyReport
    from bilinear.reporting.map_report import DigitReport
    from bilinear.reporting.report import Report

WRITTEN = "algorithm.bl, sources, cubins, PTX, manifest, report"


def compile(
    algorithm: common.AlgorithmName,
    output: Annotated[
        Path | None, output_option("--output", "-o", help="Folder for sources, images, manifest and report (default: build/NAME).")
    ] = None,
    levels: common.SomeLevels = "1",
    dtype: common.Dtypes = "float64,float32",
    arch: Annotated[
        str,
        typer.Option(
            help="Architectures: sm_NN (cubin), compute_NN (PTX), a family such as hopper, or native.",
            autocompletion=completing.architectures,
        ),
    ] = "sm_80,sm_90,compute_90",
    inputs: common.Inputs = None,
    shape: common.Shape = "515,387,259",
    floats: Annotated[
        str,
        typer.Option(
            help="Units for products of floats: own, or doubles (matrix units; faster on an H200).", autocompletion=completing.floats
        ),
    ] = "own",
    mode: Annotated[
        str,
        typer.Option(help="How stages are launched: stage, S-M-T, S-T-M, S-M-M or M-M-M (docs/modes.md).", autocompletion=completing.modes),
    ] = "stage",
    contention: Annotated[
        str,
        typer.Option(
            help="How products that add to one block run: colours (in order), or atomics (at once).", autocompletion=completing.contention
        ),
    ] = "colours",
    emit: Annotated[
        str, typer.Option(help="Also write a library in this language: c (docs/how-to/c-library.md).", autocompletion=completing.emitted)
    ] = "",
    verbose: Annotated[
        bool, output_option("--verbose", "-v", help="Print the whole report: proof, stages, error bounds, kernels and checks.")
    ] = False,
    json_file: Json = None,
) -> None:
    """Prove an algorithm, compile it to CUDA kernels, and check the multiply on real input."""
    from bilinear import driver
    from bilinear.artifact.c_library import require_emitted
    from bilinear.backends.doctor import native_architecture
    from bilinear.codegen.build import dtypes_of
    from bilinear.codegen.names import file_name
    from bilinear.frontend import load_for_arrays
    from bilinear.lowering.prepare import natural_inputs
    from bilinear.measure.check_multiply import require_memory
    from bilinear.places import require_folder
    from bilinear.reporting.report import name_of

    dtypes, size = dtypes_of(common.read_dtypes(dtype, COMPILED)), common.read_shape(shape)
    depth = None if levels == "auto" else common.read_levels(levels)
    require_memory(size)
    require_emitted(emit, dtypes)
    common.check_inputs(inputs)
    loaded = load_for_arrays(algorithm)
    inputs = inputs or ("preserve" if dtypes[0] in COMPLEX else natural_inputs(loaded.schedule))
    targets = [native_architecture() if name == "native" else name for name in common.words(arch)]
    folder = output or Path("build") / file_name(name_of(loaded, inputs))
    require_folder(folder)
    require_files(file_of(json_file))
    depth = depth or common.read_levels_for(levels, loaded.scheme, size)
    with common.progress_bar() as progress:
        compiled = driver.compile(
            loaded,
            levels=depth,
            dtypes=dtypes,
            architectures=targets,
            inputs=inputs,
            progress=progress,
            floats=floats,
            mode=mode,
            contention=contention,
            emit=emit,
        )
        in_arrays = [one for one in dtypes if one in MULTIPLIED]
        checks = common.run_checks(compiled.loaded, size, in_arrays, depth, compiled.options.inputs, common.devices(), progress)
    facts = {**compiled.report.to_json(), "checks": [c.to_json() for c in checks]}
    whole = [str(compiled.report), *(["", common.check_table(checks)] if checks else []), ""]
    answer(json_file, lambda: facts, lambda: "\n".join(whole if verbose or not all(c.passed for c in checks) else _in_short(compiled)))
    common.require(checks)
    compiled.write(folder)
    written = ", ".join([WRITTEN, *["certificate"] * (compiled.prepared is not None), *["C library"] * (emit == "c")])
    further = "" if verbose else f"; `bilinear verify --built {folder}` tests each kernel"
    untested = (f"NumPy has no arrays of {one}: `bilinear verify --built` tests its kernels" for one in dtypes if one not in MULTIPLIED)
    told = [""] if verbose else _told(checks)
    say(*told, *untested, f"written to {folder}: {written}{further}", error=in_place_of_text(json_file))


def _in_short(compiled: Compiled) -> Iterator[str]:
    from bilinear.reporting.map_report import ComplexReport
    from bilinear.reporting.report import numbered, summary

    report, programs = compiled.report, compiled.programs
    yield f"{report.algorithm}: {report.verdict}"
    yield f"  {report.lead if isinstance(report, ComplexReport) else summary(report)}"
    built = ", ".join(target.name for target in compiled.targets)
    kernels, launches = sum(len(program.kernels) for program in programs), len(programs[0].launches)
    runs = f"{numbered(compiled.options.levels, 'level')} in {numbered(launches, 'launch', 'launches')}"
    yield f"built: {kernels} kernels for {built}; {runs}"
    for line in report.kernels:
        if line.spills:
            why = f"lacks registers and moves {line.spills} B a thread through memory (-v: details)"
            yield f"  slow: {line.kernel} on {line.architecture} {why}"


def _told(checks: Sequence[Check]) -> Iterator[str]:
    for device in dict.fromkeys(c.device for c in checks):
        made = [c for c in checks if c.device == device]
        size, held = "x".join(map(str, made[0].shape)), ", ".join(c.dtype for c in made)
        integers = "" if any(c.exact is None for c in made) else "integers exact, "
        kept = {"preserve": "A and B untouched", "restore": "A and B restored", "consume": "A and B consumed"}[made[0].inputs]
        beyond = max(c.workspace_bytes for c in made)
        memory = f"{beyond} B beyond A, B and C" if beyond else "nothing allocated beyond A, B and C"
        yield f"checked on the {device.upper()} at {size} ({held}): {integers}errors within the proved bounds, {kept}, {memory}"


def verify(
    algorithm: common.AlgorithmName = "",
    levels: common.Levels = "1",
    inputs: common.Inputs = None,
    accuracy: Annotated[float | None, typer.Option(help="Report how many levels keep this error, relative to max|A| * max|B|.")] = None,
    built: Annotated[Path | None, typer.Option("--built", help="Test the kernels of an output folder instead of an algorithm.")] = None,
    trust: Annotated[
        bool, typer.Option("--trust", help="With --built: compile and run whatever the folder holds, with your rights (docs/proofs.md).")
    ] = False,
    bits: Annotated[
        bool, typer.Option("--bits", help="Of residues: why their products have the same bits on every device (reproducible=).")
    ] = False,
    json_file: Json = None,
    markdown: Annotated[bool, output_option("--markdown", help="Print Markdown.")] = False,
    html: Annotated[Path | None, output_option("--html", help="Also write the report as an HTML page.")] = None,
    svg: Svg = None,
    certificate: Annotated[Path | None, output_option("--certificate", help="Write a certificate for independent checking.")] = None,
    rocq: Annotated[Path | None, output_option("--rocq", help="Write theorems for the proof assistant Rocq (Coq).")] = None,
    check: Annotated[bool, output_option("--check", help="With --rocq: run coqc on them, and report that it accepts them.")] = False,
) -> None:
    """Prove a scheme and its schedule, and print the report; or test the kernels of an output folder."""
    depth = common.read_levels(levels)
    if (built is None) == (not algorithm):
        raise fail("E507", "name one thing to verify", "bilinear verify ALGORITHM, or bilinear verify --built FOLDER")
    if in_place_of_text(json_file) and markdown:
        raise fail("E507", "--json and --markdown exclude each other", "choose one of them; --html writes a file in addition")
    if check and rocq is None:
        raise fail("E507", "--check runs coqc on theorems, and --rocq writes them", "give --rocq FILE --check")
    other_options = bool(markdown or html or svg or certificate or rocq or inputs or accuracy or bits or depth != 1)
    if built is not None:
        _verify_built(built, trust, json_file, other_options)
        return
    if trust:
        raise fail("E507", "--trust is about the code in a folder", "give --built FOLDER --trust")
    from bilinear.frontend import Loaded, load_any
    from bilinear.lowering.prepare import natural_inputs
    from bilinear.reporting.certificate import require_file_name
    from bilinear.reporting.examine import certificate_of, examined
    from bilinear.reporting.report import Report

    common.check_inputs(inputs)
    if accuracy is not None and not 0 < accuracy < math.inf:
        raise fail("E507", f"{accuracy} is not an accuracy", "give the largest error, such as 1e-6")
    try:
        loaded = load_any(algorithm)
    except BilinearError as unread:
        raise _if_published(algorithm, unread) from None
    if not isinstance(loaded, Loaded):
        _require_options_of_maps(loaded, depth, any((svg, rocq and not bits, inputs, accuracy)))
    require_pages(html, svg, certificate, rocq, file_of(json_file))
    if rocq is not None and not goes_straight(rocq):
        require_file_name(rocq)
    inputs = inputs or (natural_inputs(loaded.schedule) if isinstance(loaded, Loaded) else "preserve")
    with common.waiting("proving"):
        report, error = examined(loaded, depth, inputs, accuracy)
    theorems = ""
    if bits:
        report, theorems = _with_bits(report, loaded, rocq is not None, check)
    elif error is None and isinstance(loaded, Loaded) and isinstance(report, Report):
        report, theorems = _with_theorems(report, loaded, depth, inputs, rocq is not None, check)
    write_pages(report.html, html, svg)
    if error is None or markdown or in_place_of_text(json_file):
        answer(json_file, report.json, report.markdown if markdown else lambda: str(report))
    elif json_file is not None:
        write_file(json_file, report.json())
    if error is not None:
        raise error
    if certificate is not None:
        write_file(certificate, certificate_of(loaded, depth, inputs))
    if rocq is not None:
        write_file(rocq, theorems)


def _with_bits(report: AnyReport, loaded: AnyLoaded, wanted: bool, check: bool) -> tuple[DigitReport, str]:
    """The report of residues with the argument about their bits, and its theorem, if that is wanted. Others are refused (E507)."""
    from bilinear.frontend import LoadedDigits
    from bilinear.reporting.certificate import accepted_by, same_bits_text
    from bilinear.reporting.map_report import INNERS, DigitReport, with_bits

    if not isinstance(loaded, LoadedDigits) or not isinstance(report, DigitReport):
        raise fail("E507", f"--bits is about residues, and {loaded.scheme.name} is none", "bilinear verify residues14 --bits")
    found = with_bits(report, loaded.scheme)
    theorem = same_bits_text(loaded.scheme.representation, INNERS) if wanted else ""
    if check:
        found = replace(found, facts=(*found.facts, ("theorem", f"accepted by {accepted_by(theorem)}")))
    return found, theorem


def _require_options_of_maps(loaded: LoadedDigits | LoadedComplex | LoadedGram, levels: int, others: bool) -> None:
    """Refuse (E507) what has no meaning for an algorithm that multiplies no blocks of matrices."""
    from bilinear.frontend import LoadedComplex, LoadedDigits

    does, more, composed = "computes A*A^T", "", False
    if isinstance(loaded, LoadedDigits):
        does, more, composed = "multiplies digits", ", and --levels of a block scheme above the digits", loaded.scheme.above is not None
    elif isinstance(loaded, LoadedComplex):
        does, composed = "multiplies complex numbers", loaded.scheme.inside is not None
        more = ", and --levels of a block scheme that it is composed with"
    if others or (levels != 1 and not composed):
        hint = f"there are --json, --markdown, --html and --certificate{more}"
        raise fail("E507", f"{loaded.scheme.name} {does}, and its proof has no such option", hint)


def _with_theorems(report: Report, loaded: Loaded, levels: int, inputs: str, wanted: bool, check: bool) -> tuple[Report, str]:
    """The report of a proved algorithm, with how it stands among known ones and who accepted it; and the theorems, if wanted."""
    from bilinear.reporting.certificate import accepted_by, on_record
    from bilinear.reporting.examine import accepted_on_record, rocq_of
    from bilinear.reporting.shipped import compared, same_as

    scheme = loaded.scheme
    known = "".join(compared(scheme.m, scheme.k, scheme.n, scheme.rank, scheme.ring))
    report = replace(report, known=known, same_as=same_as(scheme))
    if not wanted:
        return replace(report, accepted_by=accepted_on_record(loaded, inputs) if levels == 1 else ""), ""
    theorems = rocq_of(loaded, levels, inputs)
    return replace(report, accepted_by=accepted_by(theorems) if check else on_record(theorems)), theorems


def _if_published(algorithm: str, error: BilinearError) -> BilinearError:
    """The error about a file that is not text of the language; if it is in a published format, one that says so (E654)."""
    from bilinear.frontend.files import SUFFIX
    from bilinear.interchange.importing import format_of

    path, span = Path(algorithm), error.diagnostics[0].span
    in_the_language = span is not None and re.match(r"(?:#[^\n]*\n|\s)*(?:scheme|schedule|digits)\b", span.source.text) is not None
    if not error.diagnostics[0].code.startswith(("E1", "E2")) or path.suffix == SUFFIX or not os.path.isfile(path) or in_the_language:
        return error
    try:
        form, _ = format_of(path)
    except BilinearError:
        return error
    read = f"`bilinear import {algorithm}` reads and proves it"
    return fail(
        "E654", f"{algorithm} is not in the language, but in a published format: {form.title}", f"{read}; with -o it writes a .bl file"
    )


def _verify_built(folder: Path, trust: bool, json_file: Path | None, other_options: bool) -> None:
    if other_options:
        raise fail("E507", "the test of a folder has no such option", "with --built there are --trust and --json: the folder says the rest")
    from bilinear.artifact.check_folder import verify_built

    require_files(file_of(json_file))
    with common.progress_bar() as progress:
        check = verify_built(folder, trust=trust, progress=progress)
    answer(json_file, check.to_json, lambda: str(check))
    check.require()

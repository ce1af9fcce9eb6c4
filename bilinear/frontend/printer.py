"""Print schemes and schedules as `.bl` text that parses to the same scheme or schedule."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count

from bilinear.algebra.composition import tensor_complex
from bilinear.algebra.maps import table_of
from bilinear.errors import fail
from bilinear.frontend.algorithms import Loaded
from bilinear.frontend.files import MOST_BYTES
from bilinear.frontend.parse import MOST_EQUATION_TEXT
from bilinear.ir.complex_scheme import ComplexAlgorithm
from bilinear.ir.digits import DigitScheme, digit_names
from bilinear.ir.gram import GramScheme
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.number import Coefficient, Symbolic, is_negative
from bilinear.ir.ring import Ring
from bilinear.ir.schedule import AnySchedule, Block, BlockMap, LinearStage, Product, ScaledSchedule, Space, Stage
from bilinear.ir.scheme import Scheme, block_names
from bilinear.visible import WIDEST, visible

_TITLE = r"[A-Za-z_][A-Za-z0-9_-]{0,199}"
_NAME = r"(?!(?:scheme|schedule|digits|source|restore|stage|basis|lambda)\Z)(?![ABC][1-9][1-9]\Z)[A-Za-z_][A-Za-z0-9_]{0,199}"


def print_scheme(scheme: Scheme) -> str:
    """A scheme as a table, or as equations if it names sums. Raises `BilinearError` (E241) if a name cannot be written."""
    head = _header(scheme)
    _check_names(scheme.products, re.compile(_NAME))
    maps = (scheme.u, scheme.v, scheme.w)
    body = _equations(maps, scheme.products, _blocks(scheme)) if any(linear.steps for linear in maps) else _table(scheme)
    return "\n".join([*head, *_bases(scheme), *body]) + "\n"


def _header(scheme: Scheme, claim: str = "") -> list[str]:
    _check_names((scheme.name,), re.compile(_TITLE))
    ring = "" if scheme.ring == Ring() else f" over {scheme.ring}"
    return [f"scheme {scheme.name} {scheme.format}{ring}{claim}", *_citation(scheme.citation)]


def print_map(scheme: DigitScheme | GramScheme | ComplexAlgorithm) -> str:
    """The text of an algorithm that does not multiply blocks of two matrices."""
    if isinstance(scheme, GramScheme):
        return print_gram(scheme)
    return print_digits(scheme) if isinstance(scheme, DigitScheme) else print_complex(scheme)


def print_gram(gram: GramScheme) -> str:
    """A scheme for A*A^T as equations, without the empty triangle of C. Raises `BilinearError` (E241) if a name cannot be written."""
    scheme = gram.scheme
    head = _header(scheme, ": B = A^T")
    _, *groups, outputs = scheme_equations(scheme)
    wanted = [outputs[i * scheme.m + j] for i, j in gram.outputs]
    return "\n".join([*head, *(f"  {line}" for group in (*groups, wanted) for line in group)]) + "\n"


def print_complex(found: ComplexAlgorithm) -> str:
    """An algorithm for complex numbers as equations, after the block scheme in it. Raises `BilinearError` (E241) for a bad name."""
    core, target, inside = found.core, found.core.target, found.inside
    _check_names((found.name, core.name), re.compile(_TITLE))
    ring = "" if core.ring == Ring() else f" over {core.ring}"
    is_composed = inside is not None or found.name != core.name
    head = [f"scheme {core.name} <1,1,1;{core.rank}>{ring}: of complex numbers", *([] if is_composed else _citation(found.citation))]
    names = found.products or tuple(f"M{number}" for number in range(1, core.rank + 1))
    values = tuple(map(list, (target.left, target.right, target.outputs)))
    text = "\n".join([*head, *_equations((core.u, core.v, core.w), names, values)]) + "\n"
    if not is_composed:
        return text
    return text + _composition(found.name, (core.name, *(part.name for part in found.parts)), found.parts, found.citation)


def print_digits(scheme: DigitScheme) -> str:
    """A scheme that multiplies digits: the declaration of its digits, its products, and the block schemes that it is composed with.

    The last scheme of the text is the one printed. Raises `BilinearError` (E241) if a name cannot be written.
    """
    representation, core = scheme.representation, scheme.core
    _check_names((scheme.name, representation.name, core.name), re.compile(_TITLE))
    text = "\n".join([str(representation), *_citation(representation.citation)]) + "\n"
    if not representation.is_modular:
        left, right = map(list, digit_names(representation))
        citation = scheme.citation if scheme.name == core.name else ""
        head = f"scheme {core.name} <1,1,1;{len(scheme.products)}> over {representation.name}"
        text += "\n".join([head, *_citation(citation), *_equations((core.u, core.v, core.w), scheme.products, (left, right, ["C"]))]) + "\n"
    if not scheme.parts and scheme.name == core.name:
        return text
    parts = {part.name: part for part in scheme.parts}
    if any(parts[part.name] != part for part in scheme.parts):
        raise fail("E241", f"{scheme.name} is made of two schemes that are both called {scheme.parts[0].name}", "rename one of them")
    operands = [part.name for part in (scheme.above, core, scheme.inside) if part is not None]
    return text + _composition(scheme.name, operands, parts.values(), scheme.citation)


def _composition(name: str, operands: Iterable[str], parts: Iterable[Scheme], citation: str) -> str:
    """The block schemes of a composition, and then the composition itself."""
    return "".join(map(print_scheme, parts)) + "\n".join([f"scheme {name} = {' (x) '.join(operands)}", *_citation(citation)]) + "\n"


def print_schedule(schedule: AnySchedule) -> str:
    """A schedule as stages.

    Raises `BilinearError` (E241) if it cannot be written: several levels, a workspace, a map into C or with steps of its own. A schedule
    with explicit scaling may write any block and have temporaries.
    """
    scaled = isinstance(schedule, ScaledSchedule)
    if schedule.levels != 1 or not all(space.is_temporary and scaled for space in schedule.workspaces):
        raise fail("E241", f"schedule {schedule.name} has workspaces or several levels, which the language cannot write")
    _check_names((schedule.name, schedule.scheme), re.compile(_TITLE))
    _check_names((space.name for space in schedule.workspaces), re.compile(_NAME))
    claims = list(_claims(schedule))
    head = f"schedule {schedule.name} of {schedule.scheme}" + (f": {', '.join(claims)}" if claims else "")
    width = len("restore stage") if any(isinstance(s, LinearStage) and s.restores for s in schedule.stages) else len("stage")
    lines = (stage_text(stage, width, scaled) for stage in schedule.stages)
    return "\n".join([head, *_citation(schedule.citation), *lines]) + "\n"


def _claims(schedule: AnySchedule) -> Iterator[str]:
    if isinstance(schedule, ScaledSchedule):
        yield str(schedule.result)
    if schedule.in_place:
        yield "in-place"
    if schedule.restores:
        yield f"restores {' '.join(schedule.restores)}"
    names = [space.name for space in schedule.workspaces if not space.shape]
    if names:
        yield f"{'temporaries' if len(names) > 1 else 'temporary'} {' '.join(names)}"
    yield from (f"temporary {space.name} like {space.shape}" for space in schedule.workspaces if space.shape)


def _check_names(names: Iterable[str], pattern: re.Pattern[str]) -> None:
    for name in names:
        if pattern.fullmatch(name) is None:
            raise fail("E241", f"the name {name[:40]!r} cannot be written in the language", "rename it: a letter, then letters and digits")


def _citation(text: str) -> list[str]:
    """The `source` line; invisible characters use the language's escapes, which are those of `visible`."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return [f'  source "{visible(escaped, len(escaped) * WIDEST)}"'] if text else []


def _blocks(scheme: Scheme) -> tuple[list[str], list[str], list[str]]:
    m, k, n = scheme.m, scheme.k, scheme.n
    return list(block_names("A", m, k)), list(block_names("B", k, n)), list(block_names("C", m, n))


def _bases(scheme: Scheme) -> list[str]:
    if scheme.bases is None:
        return []
    grids = (("A", scheme.m, scheme.k), ("B", scheme.k, scheme.n), ("C", scheme.m, scheme.n))
    lines = []
    for (space, rows, columns), change in zip(grids, (scheme.bases.a, scheme.bases.b, scheme.bases.c), strict=True):
        blocks = Space(space, space, rows, columns).blocks
        if change.inputs != len(blocks) or len(change.outputs) != len(blocks):
            raise fail("E241", f"{scheme.name} changes to a basis of another size, which the language cannot write")
        changed = [step_from(blocks[i], blocks, row, []) for i, row in enumerate(change.matrix) if row != ((i, 1),)]
        lines += [f"  basis {space} {{ {' ; '.join(changed)} }}"] if changed else []
    return lines or ["  basis A { }"]


def scheme_equations(scheme: Scheme) -> tuple[list[str], ...]:
    """A scheme's equations: bases, sums of A, of B, products, sums of products, C. Raises `BilinearError` (E241) for a bad name."""
    _check_names(scheme.products, re.compile(_NAME))
    bases = [line.strip().removeprefix("basis ") for line in _bases(scheme)]
    changes = [step for line in bases for step in line.partition("{")[2].strip(" }").split(" ; ") if step]
    return changes, *grouped_equations((scheme.u, scheme.v, scheme.w), scheme.products, _blocks(scheme))


def _table(scheme: Scheme) -> list[str]:
    columns: list[dict[int, Coefficient]] = [{} for _ in scheme.products]
    for output, row in enumerate(scheme.w.outputs):
        for product, coefficient in row:
            columns[product][output] = coefficient
    titles = _blocks(scheme)
    rows: list[list[list[str]]] = [[list(part) for part in titles]]
    for left, right, column in zip(scheme.u.outputs, scheme.v.outputs, columns, strict=True):
        forms = (dict(left), dict(right), column)
        rows.append([[str(f.get(i, 0)) for i in range(len(part))] for f, part in zip(forms, titles, strict=True)])
    width = max(len(cell) for row in rows for part in row for cell in part)
    labels = ["#", *(f"  {name}:" for name in scheme.products)]
    margin = max(map(len, labels))
    lines = (" | ".join(" ".join(cell.rjust(width) for cell in part) for part in row) for row in rows)
    return [f"{label.ljust(margin)} {line}" for label, line in zip(labels, lines, strict=True)]


def _equations(maps: tuple[LinearMap, LinearMap, LinearMap], names: Sequence[str], values: tuple[list[str], ...]) -> list[str]:
    return [f"  {line}" for group in grouped_equations(maps, names, values) for line in group]


def grouped_equations(
    maps: tuple[LinearMap, LinearMap, LinearMap], names: Sequence[str], values: tuple[list[str], ...]
) -> tuple[list[str], ...]:
    """The equations of products over named values, grouped: sums of A, sums of B, products, sums of products, values of C."""
    u, v, w = maps
    a, b, c = values
    products, free = list(names), set(names)
    left, right = _steps(u.names, len(u.steps), "S", free), _steps(v.names, len(v.steps), "T", free)
    sums = _steps(w.names, len(w.steps), "U", free)
    return (
        [f"{name} = {_sum(f, a + left)}" for name, f in zip(left, u.steps, strict=True)],
        [f"{name} = {_sum(f, b + right)}" for name, f in zip(right, v.steps, strict=True)],
        [f"{name} = {_factor(x, a + left)} * {_factor(y, b + right)}" for name, x, y in zip(products, u.outputs, v.outputs, strict=True)],
        [f"{name} = {_sum(f, products + sums)}" for name, f in zip(sums, w.steps, strict=True)],
        [f"{name} = {_sum(f, products + sums)}" for name, f in zip(c, w.outputs, strict=True)],
    )


def _steps(names: Sequence[str], number: int, letter: str, taken: set[str]) -> list[str]:
    """The names of the steps; missing, duplicate or malformed names are replaced."""
    chosen = []
    for i in range(number):
        name = names[i] if i < len(names) else f"{letter}{i + 1}"
        if name in taken or not (re.fullmatch(_NAME, name) is not None):
            name = next(free for j in count(1) if (free := f"{letter}{i + 1}_{j}") not in taken)
        taken.add(name)
        chosen.append(name)
    return chosen


def _factor(form: Form, names: Sequence[str]) -> str:
    text = _sum(form, names)
    return text if len(form) == 1 and form[0][1] == 1 else f"({text})"


def _sum(form: Form, names: Sequence[str]) -> str:
    """A form as a sum; an empty form becomes zero times the first name, which keeps its type."""
    return signed_sum((coefficient, names[index]) for index, coefficient in form) if form else f"0 {names[0]}"


def signed_sum(terms: Iterable[tuple[Coefficient, str]]) -> str:
    """Signed terms as a sum, those with a plus first."""
    text = ""
    for coefficient, name in sorted(terms, key=lambda term: is_negative(term[0])):
        sign = "-" if is_negative(coefficient) else "+"
        size = -coefficient if sign == "-" else coefficient
        text += f" {sign} " if text else sign.replace("+", "")
        text += name if size == 1 else f"[{size}] {name}" if isinstance(size, Symbolic) else f"{size} {name}"
    return text


def stage_text(stage: Stage, width: int, scaled: bool) -> str:
    """A stage, its first word as wide as `width`; `scaled` for a schedule with explicit scaling."""
    if isinstance(stage, LinearStage):
        word = "restore stage" if stage.restores else "stage"
        steps = [step for block_map in stage.maps for step in _updates(block_map, scaled)]
    else:
        word, steps = "stage", [step for product in stage.products for step in (scaled_product if scaled else _product)(product)]
    return f"  {word.ljust(width)} {{ {' ; '.join(steps)} }}"


def _updates(block_map: BlockMap, scaled: bool) -> Iterator[str]:
    if block_map.map.steps or not (scaled or all(target.space in ("A", "B") for target in block_map.targets)):
        raise fail("E241", "a linear stage into C, or with sub-expressions, cannot be written in the language")
    read = {index for output in block_map.map.outputs for index, _ in output}
    unread = [i for i in range(block_map.map.inputs) if i not in read]
    for number, (target, output) in enumerate(zip(block_map.targets, block_map.map.outputs, strict=True)):
        yield step_from(target, block_map.sources, output, unread if number == 0 else [])


def step_from(target: Block, sources: Sequence[Block], output: Form, unread: Sequence[int]) -> str:
    """The step after which a block holds a form over the sources; `unread` sources are written with coefficient 0."""
    return update_text(target, {sources[i]: coefficient for i, coefficient in output} | {sources[i]: 0 for i in unread})


def update_text(target: Block, terms: Mapping[Block, Coefficient]) -> str:
    """The step after which a block holds a sum over blocks: `+=` or `-=` if the target keeps its value, else `=`."""
    rest, operator = dict(terms), "="
    if rest.get(target) == 1 and len(rest) > 1:
        del rest[target]
        operator = "+="
        if all(map(is_negative, rest.values())):
            operator, rest = "-=", {block: -coefficient for block, coefficient in rest.items()}
    text = signed_sum((coefficient, str(block)) for block, coefficient in rest.items())
    return f"{target} {operator} {text or f'0 {target}'}"


def _product(product: Product) -> list[str]:
    if any(target.block.space != "C" for target in product.targets) or (product.left.space, product.right.space) != ("A", "B"):
        raise fail("E241", "a product with a workspace cannot be written in the language")
    targets = ", ".join(signed_sum([(target.coefficient, str(target.block))]) for target in product.targets)
    return [f"{targets} += {product.left} * {product.right}"]


def scaled_product(product: Product) -> list[str]:
    """A product of a schedule with explicit scaling: one step for each target, or one for all that are only added to."""
    name = f"{product.left} * {product.right}"
    if len(product.targets) == 1 and product.targets[0].accumulates:
        (target,) = product.targets
        sign = "-" if is_negative(target.coefficient) else "+"
        return [f"{target.block} {sign}= {signed_sum([(-target.coefficient if sign == '-' else target.coefficient, name)])}"]
    for operator, alike in (("+=", all(t.accumulates for t in product.targets)), ("=", not any(t.terms for t in product.targets))):
        if alike and len(product.targets) > 1:
            return [f"{', '.join(signed_sum([(t.coefficient, str(t.block))]) for t in product.targets)} {operator} {name}"]
    (target, *more) = product.targets
    if more:
        raise fail(
            "E241", "a product with several targets that are not all overwritten, or all added to, cannot be written in the language"
        )
    terms = [(target.coefficient, name), *((coefficient, str(block)) for block, coefficient in target.terms)]
    return [f"{target.block} = {signed_sum(terms)}"]


def readable_text(scheme: Scheme, head: str = "", *, with_sums: bool = False, hint: str = "compose it of smaller ones") -> str:
    """The scheme after a `head` of comments: with its named sums, or as a table if these are longer than the reader allows.

    Raises `BilinearError` (E641) if the table is too large as well, or, `with_sums`, if the named sums are.
    """
    has_sums = any(linear.steps for linear in (scheme.u, scheme.v, scheme.w))
    text, most = head + print_scheme(scheme), MOST_EQUATION_TEXT if has_sums else MOST_BYTES
    size = len(text.encode())
    if len(text) <= most and size <= MOST_BYTES:
        return text
    if has_sums and not with_sums:
        table = replace(scheme, u=table_of(scheme.u), v=table_of(scheme.v), w=table_of(scheme.w))
        return readable_text(table, head, hint=hint)
    note = f"{len(text)} characters, {size} bytes; at most {most} are read"
    raise fail("E641", f"{scheme.name} {scheme.format} is too large to be written out", hint, notes=(note,))


def loaded_text(loaded: Loaded) -> tuple[str, str]:
    """A loaded algorithm as self-contained text, and its name there among several. Raises `BilinearError` (E241)."""
    core, schedule = loaded.complex_core, loaded.schedule
    if core is not None:  # with a schedule its real products are plain
        whole = ComplexAlgorithm(core.name, core)
        if schedule is not None:
            return print_complex(whole), ""
        composed = tensor_complex(whole, loaded.scheme)
        return print_complex(composed), composed.name
    return print_scheme(loaded.scheme) + ("" if schedule is None else f"\n{print_schedule(schedule)}"), ""

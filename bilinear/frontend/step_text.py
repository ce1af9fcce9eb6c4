"""Signed sums, and the steps of schedules, as the language writes them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bilinear.errors import fail
from bilinear.ir.linear import Form
from bilinear.ir.number import Coefficient, Symbolic, is_negative
from bilinear.ir.schedule import Block, BlockMap, LinearStage, Product, Stage


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

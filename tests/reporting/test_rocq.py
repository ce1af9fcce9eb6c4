"""Theorems for the proof assistant: what is right is accepted without axioms, and what was tampered with is refused."""

from __future__ import annotations

import random
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from each_case import each
from mutants import expanded, mutant, mutations
from reporting.certificates import is_right
from reporting.ring_schemes import in_rings
from reporting.rocq_files import CLOSED, batch, coqc, needs_coqc, tail, verdicts
from shell import Shell

from bilinear.errors import BilinearError
from bilinear.frontend import load
from bilinear.ir.digits import residues_of
from bilinear.ir.element import FLOAT32, FLOAT64
from bilinear.ir.linear import Form, LinearMap
from bilinear.ir.schedule import LinearStage, ProductStage, Schedule, Stage
from bilinear.lowering.prepare import natural_inputs, prepare
from bilinear.passes.order_products import mark_first_writes
from bilinear.reporting.certificate import accepted_by, certificate, rocq_text, same_bits_text
from bilinear.reporting.examine import rocq_of
from bilinear.resources import algorithms_folder, templates_folder

GOLDEN = Path(__file__).parents[1] / "golden" / "msmes.v"
NAMES = sorted(path.stem for path in algorithms_folder().glob("*.bl") if path.stem != "bini")


def text_of(name: str, levels: int = 1) -> str:
    loaded = load(name)
    return rocq_of(loaded, levels, natural_inputs(loaded.schedule))


def codes(raised: pytest.ExceptionInfo[BilinearError]) -> list[str]:
    return [diagnostic.code for diagnostic in raised.value.diagnostics]


def test_the_text_is_the_golden_one(update_golden: bool) -> None:
    found = tail(text_of("msmes"))
    if update_golden:
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


def test_the_prelude_assumes_nothing_and_is_in_every_file() -> None:
    prelude = (templates_folder() / "prelude.v").read_text()
    assert not re.search(r"Axiom|Parameter|Admitted|admit|Conjecture|Int63|Uint63|Hypothes|native", prelude)
    assert prelude in text_of("laderman")


def test_foreign_words_stay_in_their_comment() -> None:
    scheme = replace(load("strassen").scheme, citation='"An (* open *) comment*) Axiom cheat : False. (*\n"')
    line = next(line for line in rocq_text(scheme).splitlines() if "cheat" in line)
    inside = line.removeprefix("(* ").removesuffix(" *)")
    assert len(inside) == len(line) - 6 and not re.search(r'\(\*|\*\)|"', inside)


@needs_coqc
def test_every_shipped_algorithm_is_accepted_without_axioms(tmp_path: Path) -> None:
    texts = {name: text_of(name) for name in NAMES}
    done = coqc(batch({name: tail(text) for name, text in texts.items()}), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == [CLOSED] * sum(text.count("Print Assumptions") for text in texts.values())
    assert all(
        ("scheme_multiplies" in text and "schedule_1_runs" in text) or name in ("accurate_sqrt3", "walk_444_mod2")
        for name, text in texts.items()
    )


@needs_coqc
def test_schemes_over_other_rings_and_two_levels_are_accepted(tmp_path: Path) -> None:
    schemes = [scheme for scheme, _ in in_rings() if not scheme.ring.is_approximate]
    tails = {f"ring{i}": tail(rocq_text(scheme)) for i, scheme in enumerate(schemes)}
    tails |= {f"{name}_twice": tail(text_of(name, 2)) for name in ("msmes", "winograd_in_place")}
    done = coqc(batch(tails), tmp_path)
    assert done.returncode == 0, done.stderr
    rings = {found[1] for text in tails.values() if (found := re.search(r"Eval hnf in (.*)\.\n", text))}
    assert rings == {"integers", "rationals", "(residues 7)", "(residues 2)", "(with_root (3))", "(with_root (-1))"}


@needs_coqc
def test_schemes_with_a_changed_coefficient_are_refused(tmp_path: Path) -> None:
    """One coefficient changed leaves a sum of rank one too many, so each of these is wrong."""
    generator, texts = random.Random(24), []
    for name in ("strassen", "winograd", "laderman", "accurate_halves", "hopcroft_kerr"):
        scheme = expanded(load(name).scheme)
        texts += [rocq_text(mutant(scheme, mutation)) for mutation in generator.sample(list(mutations(scheme)), 40)]
    assert len(texts) == 200
    assert verdicts([text_of("strassen"), *texts], tmp_path) == [True] + [False] * 200


def changed_forms(stage: LinearStage, generator: random.Random) -> LinearStage:
    """The stage with one coefficient of one of its forms negated."""
    index = generator.randrange(len(stage.maps))
    block_map = stage.maps[index]
    rows = list(block_map.map.matrix)
    row = generator.randrange(len(rows))
    place = generator.randrange(len(rows[row]))
    rows[row] = tuple((i, -c if p == place else c) for p, (i, c) in enumerate(rows[row]))
    maps = list(stage.maps)
    maps[index] = replace(block_map, map=LinearMap(block_map.map.inputs, tuple[Form, ...](rows)))
    return replace(stage, maps=tuple(maps))


def changed_products(stage: ProductStage, generator: random.Random) -> ProductStage:
    """The stage with the coefficient of one target negated, or with the operands of another product."""
    products = list(stage.products)
    index = generator.randrange(len(products))
    product = products[index]
    if generator.random() < 0.3:
        products[index] = replace(product, left=generator.choice(products).left)
    else:
        place = generator.randrange(len(product.targets))
        targets = tuple(replace(t, coefficient=-t.coefficient if i == place else t.coefficient) for i, t in enumerate(product.targets))
        products[index] = replace(product, targets=targets)
    return ProductStage(tuple(products))


def changed(schedule: Schedule, generator: random.Random) -> Schedule:
    """The schedule with one step changed, or two neighbouring stages exchanged."""
    stages: list[Stage] = list(schedule.stages)
    index = generator.randrange(len(stages) - 1)
    if generator.random() < 0.2:
        stages[index : index + 2] = stages[index + 1], stages[index]
    else:
        stage = stages[index]
        stages[index] = changed_forms(stage, generator) if isinstance(stage, LinearStage) else changed_products(stage, generator)
    return mark_first_writes(replace(schedule, stages=tuple(stages)))


@needs_coqc
def test_schedules_with_a_changed_step_are_judged_as_by_a_run_on_numbers(tmp_path: Path) -> None:
    generator, texts, expected = random.Random(16), [], []
    for name in ("msmes", "winograd_in_place", "hopcroft_kerr_in_place", "winograd_depth_first"):
        loaded = load(name)
        own = prepare(loaded.scheme, loaded.schedule, 1, natural_inputs(loaded.schedule)).schedule
        for schedule in (own, *(changed(own, generator) for _ in range(30))):
            texts.append(rocq_text(loaded.scheme, [schedule]))
            expected.append(is_right(certificate(loaded.scheme, [schedule]), generator))
    assert expected.count(False) > 90 and expected.count(True) > 4
    assert verdicts(texts, tmp_path) == expected


@needs_coqc
def test_steps_that_disturb_each_other_are_refused(tmp_path: Path) -> None:
    """These have the right result if the steps of a stage run one after the other, which they do not."""
    msmes, overwriting = in_place("msmes"), in_place("winograd_depth_first")
    first, *rest = msmes.stages
    assert isinstance(first, LinearStage)
    twice = replace(msmes, stages=(replace(first, maps=first.maps * 2), *rest))
    *before, product, addition = overwriting.stages
    assert isinstance(product, ProductStage) and isinstance(addition, LinearStage)
    (only,), (block_map,) = product.products, addition.maps
    own = only.right
    assert own.space.startswith("Y") and only.targets[0].block in block_map.sources
    onto_itself = ProductStage((replace(only, targets=(replace(only.targets[0], block=own),)),))
    sources = tuple(own if block == only.targets[0].block else block for block in block_map.sources)
    clobbered = replace(overwriting, stages=(*before, onto_itself, replace(addition, maps=(replace(block_map, sources=sources),))))
    texts = [rocq_text(load(s.scheme).scheme, [s]) for s in (msmes, twice, overwriting, clobbered)]
    assert verdicts(texts, tmp_path) == [True, False, True, False]


def in_place(name: str) -> Schedule:
    loaded = load(name)
    return prepare(loaded.scheme, loaded.schedule, 1, natural_inputs(loaded.schedule)).schedule


NUMBERS = """
Definition numbers : Algebra integers.
Proof.
  refine (@Build_Algebra integers Z 0 Z.add Z.opp Z.mul Z.mul _ _ _ _ _ _ _ _ _ _ _ _ _ _);
    cbv beta iota delta [K nought one plus times same integers]; intros; try ring.
  match goal with E : _ = true |- _ => apply Z.eqb_eq in E; rewrite E; reflexivity end.
Defined.
Corollary on_numbers : forall x, computed numbers scheme x (C 0 0) = x (A 0 0) * x (B 0 0) + x (A 0 1) * x (B 1 0).
Proof. intro x; rewrite (scheme_multiplies numbers x) by auto with arith; unfold classical; simpl; ring. Qed.
"""


@needs_coqc
def test_the_theorem_can_be_used_for_an_algebra(tmp_path: Path) -> None:
    done = coqc(text_of("strassen") + NUMBERS, tmp_path)
    assert done.returncode == 0, done.stderr


@needs_coqc
def test_the_report_names_the_proof_assistant_that_was_run(shell: Shell, tmp_path: Path) -> None:
    place = tmp_path / "msmes.v"
    status, out, err = shell("verify", "msmes", "--rocq", place, "--levels", "2")
    assert status == 0 and not err and "accepted by" not in out and place.read_text() == text_of("msmes", 2)
    page = tmp_path / "msmes.html"
    told = shell.json("verify", "msmes", "--rocq", place, "--check", "--html", page)["accepted_by"]
    assert re.fullmatch(r"(Coq|Rocq) [0-9.]+\S*: 3 theorems, without axioms", told)
    assert told in page.read_text(encoding="utf-8")
    assert told in shell("verify", "msmes", "--rocq", place, "--check")[1]


@needs_coqc
def test_a_wrong_file_and_an_axiom_are_refused() -> None:
    right = text_of("strassen")
    wrong = right.replace("(1, A 1 1)", "(-1, A 1 1)", 1)
    assumed = right.replace("apply check_sound; vm_cast_no_check (eq_refl true)", "apply cheat").replace(
        "Theorem scheme_multiplies", "Axiom cheat : multiplies 2 2 2 scheme.\nTheorem scheme_multiplies"
    )
    for text in (wrong, assumed):
        with pytest.raises(BilinearError) as raised:
            accepted_by(text)
        assert codes(raised) == ["E597"]
    assert "cheat" in str(raised.value)


def test_without_a_proof_assistant_nothing_is_claimed_or_written(shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    place = tmp_path / "strassen.v"
    status, out, err = shell("verify", "strassen", "--rocq", place, "--check")
    assert status == 1 and not out and not place.exists()
    assert "error[E596]: coqc is not installed, so that no proof assistant can check the file" in err


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("exit 3", "error[E596]: {0} does not report its version of Coq or Rocq"),
        ('echo "The Coq Proof Assistant, version 8.16.1"', "error[E597]: Coq 8.16.1 does not accept the theorems"),
        ('echo "The Rocq Prover, version 9.0"; echo no >&2; test "$1" = --version', "error[E597]: Rocq 9.0 does not accept the theorems"),
    ],
)
def test_a_proof_assistant_that_says_nothing_accepts_nothing(
    script: str, told: str, shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, place = tmp_path / "coqc", tmp_path / "strassen.v"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    status, out, err = shell("verify", "strassen", "--rocq", place, "--check")
    assert status == 1 and not out and not place.exists()
    assert told.format(program) in err


def test_what_the_theorems_do_not_speak_of_is_refused(shell: Shell, tmp_path: Path) -> None:
    place = tmp_path / "x.v"
    for words, told in (
        (("bini", "--rocq", place), "error[E595]: bini is approximate, and the theorem for Rocq says that C is exactly A*B"),
        (("strassen", "--check"), "error[E507]: --check runs coqc on theorems, and --rocq writes them"),
    ):
        status, _, err = shell("verify", *words)
        assert status == 1 and told in err and not place.exists()


def test_a_schedule_that_scales_for_itself_is_refused(tmp_path: Path) -> None:
    place = tmp_path / "one.bl"
    place.write_text("""
scheme one <1,1,1;1>
  C11 = A11*B11
schedule plain of one: C = A*B + C
  stage { C11 = A11 * B11 + C11 }
""")
    loaded = load(str(place))
    with pytest.raises(BilinearError) as raised:
        rocq_of(loaded, 1, natural_inputs(loaded.schedule))
    assert codes(raised) == ["E595"] and "plain has explicit scaling" in str(raised.value)


FILE_NAMES = {
    "x.v": "",
    "_4x5x6.v": "",
    "élan.v": "",
    "x'.v": "",
    "4x5x6_m90.v": "scheme_4x5x6_m90.v",
    "grey433-29.v": "grey433_29.v",
    "two.parts.v": "two_parts.v",
    "with space.v": "with_space.v",
    "'x.v": "_x.v",
    "x.txt": "x_txt.v",
    "x": "x.v",
    ".v": "scheme_.v",
}
"""Names of files, and what is advised in place of those that coqc refuses."""


@each("name", FILE_NAMES)
def test_a_file_that_coqc_would_not_take_is_not_written(name: str, shell: Shell, tmp_path: Path) -> None:
    status, _, err = shell("verify", "strassen", "--rocq", tmp_path / name)
    if not FILE_NAMES[name]:
        assert (status, err) == (0, "") and (tmp_path / name).is_file()
        return
    assert status == 1 and not (tmp_path / name).exists()
    assert err.startswith(f"error[E788]: coqc does not take a file of the name {name!r}: ")
    assert f"hint: name it {tmp_path / FILE_NAMES[name]}\n" in err
    assert shell("verify", "strassen", "--rocq", tmp_path / FILE_NAMES[name])[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("name", FILE_NAMES)
def test_coqc_takes_those_names_and_no_others(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("(* nothing *)\n")
    done = subprocess.run(["coqc", "-q", name], cwd=tmp_path, capture_output=True, check=False)
    assert (done.returncode == 0) == (not FILE_NAMES[name])


@needs_coqc
def test_residues_determine_the_sum_in_the_range_and_not_beyond(tmp_path: Path) -> None:
    for count in (7, 9):
        assert accepted_by(same_bits_text(residues_of(FLOAT32, count), (2, 1024))).endswith(": 1 theorem, without axioms")
    text = same_bits_text(residues_of(FLOAT64, 14), (16384, 65536))
    assert accepted_by(text).endswith(": 1 theorem, without axioms")
    for old, new in (("210463539286856", "210463639286856"), ("; 255", "; 254"), ("; 199]", "]")):
        assert old in text
        assert coqc(text.replace(old, new), tmp_path).returncode != 0

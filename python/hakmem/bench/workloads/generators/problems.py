"""Makes problems for solvers, and proofs for a checker."""

from __future__ import annotations

import random
from collections.abc import Iterator

# Clauses for each variable at which random formulas of three literals are hardest.
HARDEST = 4.26


def make_formula(seed: int, variables: int, clauses: int) -> Iterator[str]:
    """Yields a random formula in DIMACS form, three literals in each clause."""
    generator = random.Random(seed)
    yield f"p cnf {variables} {clauses}"
    for _ in range(clauses):
        chosen = generator.sample(range(1, variables + 1), 3)
        yield " ".join(str(each if generator.random() < 0.5 else -each) for each in chosen) + " 0"


def make_schedule(seed: int, jobs: int, machines: int, limits: tuple[int, ...]) -> Iterator[str]:
    """Yields a job shop in SMT-LIB: whether all jobs can be done within each of the limits."""
    generator = random.Random(seed)
    yield "(set-logic QF_LIA)"
    length = {(job, machine): generator.randint(1, 9) for job in range(jobs) for machine in range(machines)}
    for job, machine in length:
        yield f"(declare-const s{job}_{machine} Int)"
        yield f"(assert (>= s{job}_{machine} 0))"
    ends = []
    for job in range(jobs):
        order = generator.sample(range(machines), machines)
        for first, then in zip(order, order[1:]):
            yield f"(assert (>= s{job}_{then} (+ s{job}_{first} {length[job, first]})))"
        ends.append(f"(+ s{job}_{order[-1]} {length[job, order[-1]]})")
    for machine in range(machines):
        for one in range(jobs):
            for other in range(one):
                yield (f"(assert (or (>= s{one}_{machine} (+ s{other}_{machine} {length[other, machine]})) "
                       f"(>= s{other}_{machine} (+ s{one}_{machine} {length[one, machine]}))))")
    for limit in limits:
        yield "(push)"
        yield from (f"(assert (<= {end} {limit}))" for end in ends)
        yield "(check-sat)"
        yield "(pop)"


VARIABLES = ("ph", "ps", "ch", "th", "ta")

AXIOMS = """$c ( ) -> wff |- $.
$v ph ps ch th ta $.
vph $f wff ph $. vps $f wff ps $. vch $f wff ch $. vth $f wff th $. vta $f wff ta $.
wi $a wff ( ph -> ps ) $.
${ min $e |- ph $. maj $e |- ( ph -> ps ) $. ax-mp $a |- ps $. $}
ax-1 $a |- ( ph -> ( ps -> ph ) ) $.
ax-2 $a |- ( ( ph -> ( ps -> ch ) ) -> ( ( ph -> ps ) -> ( ph -> ch ) ) ) $."""

# A formula as its text and as the steps that build it.
Formula = tuple[str, list[str]]


def implies(left: Formula, right: Formula) -> Formula:
    """Returns the implication of two formulas."""
    return f"( {left[0]} -> {right[0]} )", [*left[1], *right[1], "wi"]


def random_formula(generator: random.Random, depth: int) -> Formula:
    """Returns a formula of implications."""
    if depth == 0 or generator.random() < 0.1:
        name = generator.choice(VARIABLES)
        return name, [f"v{name}"]
    return implies(random_formula(generator, depth - 1), random_formula(generator, depth - 1))


def make_proofs(seed: int, theorems: int) -> Iterator[str]:
    """Yields a Metamath database: that a formula implies itself, from the axioms, for so many random formulas."""
    generator = random.Random(seed)
    yield AXIOMS
    for number in range(theorems):
        one = random_formula(generator, 5)
        same = implies(one, one)
        step = implies(one, same)
        middle, last = implies(one, implies(same, one)), implies(step, same)
        proof = [*step[1], *same[1], *one[1], *one[1], "ax-1", *middle[1], *last[1], *one[1], *same[1], "ax-1",
                 *one[1], *same[1], *one[1], "ax-2", "ax-mp", "ax-mp"]
        yield f"t{number} $p |- {same[0]} $= {' '.join(proof)} $."

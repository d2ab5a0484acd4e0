"""Protects the schedule: which block comes next, and when the run is over."""

from collections import Counter
from dataclasses import replace

import pytest
import tool  # noqa: F401  (puts the package on the path)

from hakmem.bench import schedule
from hakmem.bench.schedule import Block, Plan, State

PLAN = Plan(rows=("a", "b"), allocators=("x", "y", "z"), subject="x", copy="x-again", rounds_least=3, rounds_most=6,
            calls=None)


def play(plan, seconds, uncertain=lambda row: 0.0):
    """The blocks of a run in which each takes seconds(block), and their total time."""
    state, blocks, elapsed = State(), [], 0.0
    while (block := schedule.next_block(plan, state, elapsed, uncertain)) is not None:
        elapsed += seconds(block)
        state.add(block, seconds(block), [], [])
        blocks.append(block)
        assert len(blocks) < 1000
    return blocks, elapsed


def test_each_round_begins_with_another_allocator():
    orders = [schedule.rotated(("x", "y", "z"), number, place=1) for number in range(3)]
    assert orders == [["y", "z", "x"], ["z", "x", "y"], ["x", "y", "z"]]
    assert schedule.rotated(("x", "y", "z"), 0, place=0) == ["x", "y", "z"]


def test_rows_take_turns():
    blocks, _ = play(PLAN, lambda block: 1)
    assert blocks == [Block(row, number) for number in range(3) for row in "ab"]


def test_calls_come_early_or_late():
    early, _ = play(replace(PLAN, calls="early", rounds_least=1), lambda block: 1)
    assert early == [Block("a", 0), Block("a", None), Block("b", 0), Block("b", None)]
    late, _ = play(replace(PLAN, calls="late", rounds_least=1), lambda block: 1)
    assert late == [Block("a", 0), Block("b", 0), Block("a", None), Block("b", None)]


def test_rows_that_are_not_known_well_get_more_rounds():
    blocks, _ = play(PLAN, lambda block: 1, uncertain={"a": 0.01, "b": 0.2}.get)
    assert Counter(block.row for block in blocks) == {"a": 3, "b": 6}


@pytest.mark.parametrize("budget", [5, 9.9, 10, 33, 100])
def test_the_time_is_kept(budget):
    """Blocks of 2 and 3 s: none starts that does not fit, and none is left out that fits."""
    blocks, elapsed = play(replace(PLAN, budget_s=budget, rounds_least=50, rounds_most=50),
                           lambda block: 2 if block.row == "a" else 3)
    assert elapsed <= budget
    assert elapsed > budget - 2


def test_a_block_is_expected_to_take_as_long_as_the_last_two():
    state = State()
    assert schedule.estimate(state, Block("a", 0)) == 0
    state.add(Block("a", 0), 10, [], [])
    assert schedule.estimate(state, Block("a", 1)) == 10
    assert schedule.estimate(state, Block("b", 0)) == 10
    state.add(Block("a", None), 20, [], [])
    state.add(Block("b", 0), 3, [], [])
    assert schedule.estimate(state, Block("b", None)) == 6
    for number, seconds in ((1, 9), (2, 4), (3, 5)):
        state.add(Block("a", number), seconds, [], [])
    assert schedule.estimate(state, Block("a", 4)) == 5


def test_time_left():
    state = State()
    state.add(Block("a", 0), 2, [], [])
    state.add(Block("b", 0), 3, [], [])
    assert schedule.time_left(PLAN, state, 5, lambda row: 0) == 2 * 2 + 2 * 3
    assert schedule.time_left(replace(PLAN, budget_s=9), state, 5, lambda row: 0) == 4


def test_as_much_is_warmed_as_the_row_may_need():
    assert schedule.warm_mib(PLAN, []) == 1024
    assert schedule.warm_mib(PLAN, [{"peak_rss_kib": 10240}, {"peak_rss_kib": 20480}, {"status": "crashed"}]) == 124
    assert schedule.warm_mib(PLAN, [{"peak_rss_kib": 10 << 20}]) == 1024


def test_two_failures_are_enough():
    bad, good = {"status": "crashed"}, {"status": "ok"}
    assert not schedule.failed_too_often([bad, good, good])
    assert schedule.failed_too_often([bad, good, bad])


def test_uncertainty_is_that_against_the_best_peer():
    times = {"x": [1.0, 1.1, 0.9], "y": [2.0, 2.0, 2.0], "z": [1.5, 1.5, 1.5], "x-again": [0.1, 5.0, 9.0]}
    state = State(samples=[{"row": "a", "allocator": name, "round": number, "status": "ok", "time_s": time}
                           for name, values in times.items() for number, time in enumerate(values)])
    assert schedule.uncertainty(PLAN, state, "a") == pytest.approx(0.1)
    assert schedule.uncertainty(PLAN, state, "b") == 0

"""The short form of a product of parameters."""

from __future__ import annotations

from itertools import product

from campaigns import covering


def cases(*sizes: int) -> dict[tuple[int, ...], dict[str, int]]:
    return {case: {f"p{place}": value for place, value in enumerate(case)} for case in product(*map(range, sizes))}


def test_of_two_parameters_every_value_of_each_is_met() -> None:
    assert covering(cases(2, 2)) == {(0, 0), (1, 1)}
    chosen = covering(cases(3, 5))
    assert len(chosen) == 5
    assert {one for one, _ in chosen} == {0, 1, 2}
    assert {other for _, other in chosen} == {0, 1, 2, 3, 4}


def test_of_three_parameters_every_pair_of_values_is_met() -> None:
    chosen = covering(cases(2, 2, 2))
    assert len(chosen) == 4
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert len({(case[one], case[other]) for case in chosen}) == 4


def test_parameters_that_are_given_together_are_one() -> None:
    layouts = {(road, layout): {"road": road, "a": layout, "b": layout} for road in (0, 1) for layout in (0, 1)}
    assert covering(layouts) == {(0, 0), (1, 1)}


def test_nothing_is_left_out_of_one_parameter() -> None:
    assert covering(cases(4)) == {(0,), (1,), (2,), (3,)}

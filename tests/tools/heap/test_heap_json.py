"""Protects JSON in pieces: `hakmem heap --json` of many stacks does not hold them all as values at once."""

import json

from hakmem.json_pieces import json_pieces


def test_pieces_are_the_object():
    plain = {"name": "a\nb", "rows": [{"frames": [1, {"x": None}]}, {}, 3], "none": [],
             "last": {"deep": {"deeper": []}}}
    told = "".join(json_pieces({**plain, "rows": iter(plain["rows"]), "none": iter([])}))
    assert json.loads(told) == plain and told == json.dumps(plain, indent=1) + "\n"
    assert json.loads("".join(json_pieces({}))) == {}


def test_an_item_is_made_when_its_turn_comes():
    made = []

    def rows():
        for number in range(100):
            made.append(number)
            yield {"number": number}
    for piece in json_pieces({"first": 1, "rows": rows()}):
        if '"number"' in piece:
            assert json.loads(piece.lstrip("[,"))["number"] == made[-1] == len(made) - 1
    assert len(made) == 100

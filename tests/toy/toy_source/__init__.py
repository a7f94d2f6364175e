"""A source from outside the package: a journal, one JSON object a line.

{"tick": 1, "table": "shop.things", "op": "put", "id": 1, "row": {"name": "a", "note": "x"}}
{"tick": 2, "table": "shop.things", "op": "del", "id": 1}
{"tick": 2, "table": "shop.things", "op": "set", "id": 2, "row": {"note": "y"}}     the other cells stay as they are
{"tick": 2, "op": "resolved"}
"""

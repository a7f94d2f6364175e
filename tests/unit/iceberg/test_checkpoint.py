from __future__ import annotations

import pytest

from frazil.iceberg.system.checkpoints import Checkpoint
from frazil.model.state import TableState


@pytest.mark.parametrize(
    "wrong",
    [{"sync_id": ""}, {"source_collection": ""}, {"documents_processed": -1}],
    ids=lambda wrong: next(iter(wrong)),
)
def test_a_checkpoint_that_cannot_be_true_is_refused(wrong: dict[str, object]) -> None:
    facts = {"sync_id": "shop.orders", "state": TableState.STEADY_STATE, "source_collection": "orders"}
    assert Checkpoint(**facts)  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        Checkpoint(**{**facts, **wrong})  # type: ignore[arg-type]

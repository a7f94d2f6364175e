"""A pipeline over MongoDB where its driver is not installed says which part is missing."""

from __future__ import annotations

import pytest

from frazil.app.assemble import open_source
from frazil.clock import SystemClock
from frazil.config.pipeline_config import PipelineConfig
from frazil.errors import ConfigError
from frazil.sources import registry

CONFIG = {
    "pipeline": "shop",
    "source": {"type": "mongodb", "uri": "mongodb://localhost"},
    "catalog": {"type": "builtin", "warehouse": "w"},
    "tables": [{"source": "shop.orders"}],
}


def test_a_missing_driver_is_named_with_the_command_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def without(name: str) -> object:
        raise ModuleNotFoundError(f"No module named 'bson' for {name}", name="bson")

    monkeypatch.setattr(registry, "import_module", without)
    with pytest.raises(ConfigError, match="bson") as refused:
        open_source(PipelineConfig.model_validate(CONFIG), None, SystemClock(), None)  # type: ignore[arg-type]
    assert refused.value.hint == "pip install 'pymongo>=4.9'"

"""The configuration of a run: what differs from seed to seed, and from one run of a process to the next."""

from __future__ import annotations

from functools import cache

from frazil.config.pipeline_config import PipelineConfig
from frazil.model.ids import JobId

JOB = JobId("shop")


@cache
def configuration(
    deletes: tuple[tuple[str, str], ...],
    mode: str,
    heartbeat: int,
    together: bool,
    epochs_per_job: int,
    epochs_in_flight: int,
    max_first_loads: int,
    checkpoints: bool,
) -> PipelineConfig:
    return PipelineConfig.model_validate(
        {
            "pipeline": JOB.text,
            "source": {"type": "cockroachdb", "feed": "/simulated", "poll_interval": "3s"},
            "catalog": {"type": "builtin", "warehouse": "/nowhere"},
            "tables": [{"source": name, "target": "shop.{table}", "deletes": how} for name, how in deletes],
            "snapshot": mode,
            "heartbeat": f"{heartbeat}s",
            "atomic": "pipeline" if together else "table",
            "checkpoints": checkpoints,
            "limits": {
                "epochs_per_job": epochs_per_job,
                "epochs_in_flight": epochs_in_flight,
                "max_first_loads": max_first_loads,
                "small_epoch_bytes": 0,
            },
        }
    )

"""A process that runs the pipeline: one production `Supervisor` after another, as `app.service` has them follow.

    configuration --> Supervisor.run --stopped, fenced, all tables stopped--> the process ends
          ^               |
          |               +-- to be reloaded --> another configuration
          +---------------+
          |               +-- its session is lost, as with a JVM that died (H56) --> a new one, a little later
          +---------------+

What a run leaves behind, as commits that hang, goes on beside the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import TYPE_CHECKING

from frazil import errors
from frazil.config.pipeline_config import PipelineConfig
from frazil.ingest.loop.supervisor import Outcome, Supervisor
from frazil.ingest.loop.table_state import backoff
from frazil.model.ids import TableName
from frazil.model.state import TableState

from .edges import FiberClock, RunEdges
from .fibers import Fibers

if TYPE_CHECKING:
    from .world import World

_SEEN_GONE_SECONDS = 1.0


class Process:
    def __init__(self, world: World, name: str, configure: Callable[[], PipelineConfig], once: bool = False) -> None:
        self.world = world
        self.name = name
        self.threads = Fibers(world.chance, lambda: world.time)
        self.stop = Event()
        self.reload = False
        self.stalled_until = 0.0
        self.error: Exception | None = None
        self.edges: RunEdges | None = None
        self.run: Supervisor | None = None
        self._configure = configure
        self._once = once
        self._clock = FiberClock(world, self.threads)
        self._judged: dict[str, object] = {}
        self._main = self.threads.start(self._live, name)

    @property
    def is_over(self) -> bool:
        return self._main.done or self.threads.dead

    @property
    def lost_a_session(self) -> bool:
        return self.edges is not None and self.edges.lost

    def _live(self) -> None:
        losses = 0
        while not self.stop.is_set():
            outcome = self._run()
            if outcome is Outcome.FINISHED:
                return
            self.reload = False
            if self.lost_a_session:
                losses += 1
                self._clock.wait(backoff(losses, self._clock.jitter()), self.stop)

    def _run(self) -> Outcome:
        edges = self.edges = RunEdges(self.world, self.name, self.threads, self._configure())
        edges.tell(f"runs with {edges.config_text}")
        run = self.run = Supervisor(edges.components, self._changed, self.stop, lambda: self.reload or edges.lost)
        edges.known = lambda: run.tables
        try:
            return run.run(self._once)
        except Exception as error:
            if not isinstance(error, errors.FrazilError) or isinstance(error, errors.Transient):
                self._clock.wait(_SEEN_GONE_SECONDS)
            if edges.lost and not self.stop.is_set():
                return Outcome.INTERRUPTED
            self.error = error
            return Outcome.FINISHED

    def _changed(self, run: Supervisor) -> None:
        """A table may be in another state: one that stops does so for a reason that the world gave."""
        edges = self.edges
        if edges is None or run is not self.run:
            return
        for name, table in run.tables.items():
            trouble = table.trouble if table.state is TableState.STOPPED else None
            if trouble is not None and self._judged.get(name) is not trouble:
                self._judged[name] = trouble
                self.world.table_stopped(self, edges, TableName.parse(name), trouble)

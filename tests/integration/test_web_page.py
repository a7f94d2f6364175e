"""The daemon's page in a real Chromium: a real server tells, the test looks at what a reader would see."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from servers.chromium import NoChromium, Tab, chromium_tab

from frazil.clock import SystemClock
from frazil.errors import ConfigError
from frazil.model.frontier import LoadProgress
from frazil.model.results import RunProgress, TableProgress
from frazil.model.state import TableState
from frazil.observability.metrics import Metrics
from frazil.serve.http.health import Health
from frazil.serve.http.server import DaemonServer
from frazil.serve.http.timeseries import Timeseries

pytestmark = pytest.mark.servers

TOKEN = "the-token-of-these-tests"
EVIL = '<img src=x onerror="window.hit=1">"><script>window.hit=1</script>\';window.hit=1//'
KINDS = {
    TableState.INITIALIZING: "idle",
    TableState.INITIAL_SYNC: "busy",
    TableState.STEADY_STATE: "good",
    TableState.BACKOFF: "wait",
    TableState.NEEDS_RESYNC: "bad",
    TableState.STOPPED: "bad",
}


def table(name: str = "lake.orders", **facts: Any) -> TableProgress:
    known: dict[str, Any] = {"state": TableState.STEADY_STATE, "resolved": "17.0", "epochs": 3, "rows": 1200,
                             "lag_seconds": 1.5, "snapshot_id": 8_211_034_567_891_234_567, "data_files": 4,
                             "delete_files": 1, "snapshots": 5}  # fmt: skip
    return TableProgress(name, **{**known, **facts})


class Daemon:
    """What a running pipeline would tell. Tests change `tables` and `health` while the page is open."""

    def __init__(self) -> None:
        self.tables: tuple[TableProgress, ...] = (table(),)
        self.health = Health(True, True)
        self.history = Timeseries()
        self.resolved = "17.0"
        self.source_time: datetime | None = None
        self.asked: list[str] = []
        self._server: DaemonServer | None = None

    def start(self, *, token: str | None = None, port: int | None = None) -> DaemonServer:
        self._server = DaemonServer(
            "127.0.0.1",
            port,
            token,
            metrics=Metrics(SystemClock()),
            progress=lambda: RunProgress(
                self.tables,
                self.resolved,
                "shop",
                datetime.now(UTC) - timedelta(hours=2, seconds=5),
                source_time=self.source_time,
            ),
            health=lambda: self.health,
            history=self.history,
            actions=self,
        )
        return self._server

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()

    def remember(self, *past: tuple[TableProgress, ...]) -> None:
        """What was seen every five seconds until now."""
        now = datetime.now(UTC)
        for number, tables in enumerate(past):
            self.history.record(now - timedelta(seconds=5 * (len(past) - number)), RunProgress(tables))

    def reload(self) -> str:
        self.asked.append("reload")
        return "the configuration is read again"

    def resync(self, table: str) -> str:
        if table == "lake.b":
            raise ConfigError("lake.b cannot be loaded anew", hint="its source does not keep what it sent")
        self.asked.append(f"resync {table}")
        return f"{table} is loaded anew"


@pytest.fixture(scope="module")
def browser() -> Iterator[Tab]:
    try:
        with chromium_tab() as tab:
            yield tab
    except NoChromium as error:
        pytest.skip(str(error))


@pytest.fixture
def tab(browser: Tab) -> Iterator[Tab]:
    browser.open("about:blank")
    browser.errors.clear()
    yield browser
    browser.open("about:blank")


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    made = Daemon()
    yield made
    made.stop()


def opened(tab: Tab, daemon: Daemon, **options: Any) -> DaemonServer:
    server = daemon.start(**options)
    tab.open(server.url)
    tab.wait_for(f"document.querySelectorAll('#rows tr').length === {len(daemon.tables)}")
    return server


def cells(tab: Tab) -> dict[str, list[str]]:
    """The table as it is shown: of each line the name, and what stands beside it."""
    lines = tab.run("[...document.querySelectorAll('#rows tr')].map(r => [...r.cells].map(c => c.innerText))")
    return {line[0].split("\n")[0]: line[1:] for line in lines}


def text_of(tab: Tab, selector: str) -> str:
    return str(tab.run(f"document.querySelector({json.dumps(selector)}).innerText"))


def click(tab: Tab, selector: str) -> None:
    tab.run(f"document.querySelector({json.dumps(selector)}).click()")


def shown(selector: str) -> str:
    """An expression: whether it is there to be seen."""
    return f"document.querySelector({json.dumps(selector)}).checkVisibility()"


def test_each_table_is_shown_with_its_state_in_words_and_colour(tab: Tab, daemon: Daemon) -> None:
    daemon.tables = tuple(table(f"lake.{state.value.lower()}", state=state) for state in TableState)
    opened(tab, daemon)
    seen = cells(tab)
    for state, kind in KINDS.items():
        assert seen[f"lake.{state.value.lower()}"][0] == state.value
        found = tab.run(
            f"[...document.querySelectorAll('#rows .pill.{kind}')].some(p => p.textContent === '{state.value}')"
        )
        assert found, state
    assert len(set(tab.run("[...document.querySelectorAll('#rows .pill')].map(p => getComputedStyle(p).color)"))) == 5
    assert tab.errors == []


def test_numbers_are_shown_whole_and_snapshot_ids_exactly(tab: Tab, daemon: Daemon) -> None:
    daemon.remember((table(rows=900),), (table(rows=1100),))
    daemon.tables = (table(rows=1_234_500, deletes=67, lag_seconds=200.4, epochs=1042, data_files=12_345),)
    opened(tab, daemon)
    tab.wait_for("document.querySelector('#rows td:nth-child(4)').innerText !== '–'")
    lag, _, rows, epochs, files, snapshot = cells(tab)["lake.orders"][1:]
    assert (lag, rows, epochs, files) == ("3 min 20 s", "1,234,567", "1,042", "12.3 k + 1 del")
    assert snapshot == "8211034567891234567"
    assert text_of(tab, "#pipeline") == "shop"
    assert text_of(tab, "#uptime").startswith("2 h 0 min")
    assert text_of(tab, "#health") == "publishing"


def test_what_changes_is_seen_without_asking_for_it(tab: Tab, daemon: Daemon) -> None:
    opened(tab, daemon)
    daemon.tables = (table(epochs=4, state=TableState.BACKOFF, error="no answer", hint="wait"), table("lake.new"))
    tab.wait_for("document.querySelectorAll('#rows tr').length === 2")
    assert (cells(tab)["lake.orders"][0], cells(tab)["lake.orders"][4]) == ("BACKOFF", "4")
    daemon.tables = (table("lake.new"),)
    tab.wait_for("document.querySelectorAll('#rows tr').length === 1")
    assert not tab.run(shown("#problems"))
    assert text_of(tab, "#detail-title") == "lake.new"


def test_an_error_is_shown_with_what_to_do(tab: Tab, daemon: Daemon) -> None:
    broken = table("lake.b", state=TableState.STOPPED, error="key [7]: 1e40 does not fit", hint="widen the column")
    daemon.tables = (table(), broken)
    opened(tab, daemon)
    told = text_of(tab, "#problems")
    assert all(part in told for part in ("lake.b", "STOPPED", "key [7]: 1e40 does not fit", "widen the column"))
    assert "lake.orders" not in told
    assert text_of(tab, "#health") == "1 held up"


def test_a_daemon_that_is_not_ready_says_why(tab: Tab, daemon: Daemon) -> None:
    daemon.health = Health(True, False, "1 of 2 tables has not read its ledger")
    opened(tab, daemon)
    assert text_of(tab, "#unready") == "1 of 2 tables has not read its ledger"
    assert text_of(tab, "#health") == "not ready"
    daemon.health = Health(True, True)
    tab.wait_for(f"!({shown('#unready')})")


def test_names_and_messages_are_text_whatever_they_hold(tab: Tab, daemon: Daemon) -> None:
    load = LoadProgress(1, 2)
    daemon.tables = (table(EVIL, source=EVIL, error=EVIL, hint=EVIL, resolved=EVIL, load=load),)
    daemon.health = Health(True, False, EVIL)
    daemon.remember(daemon.tables, daemon.tables, daemon.tables)
    opened(tab, daemon, token=TOKEN)
    click(tab, "#rows button")
    tab.wait_for("document.querySelectorAll('.curve').length > 0")
    assert EVIL in cells(tab)
    assert text_of(tab, "#unready") == EVIL
    assert text_of(tab, "#detail-title") == EVIL
    assert tab.run("document.querySelectorAll('main img, main script').length") == 0
    assert tab.run("typeof window.hit") == "undefined"
    assert tab.errors == []


def test_a_script_that_got_into_the_page_would_not_run(tab: Tab, daemon: Daemon) -> None:
    opened(tab, daemon)
    tab.run("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hit = 1'}))")
    tab.run("document.body.insertAdjacentHTML('beforeend', '<button id=evil onclick=\"window.hit = 1\">x</button>')")
    click(tab, "#evil")
    assert tab.run("typeof window.hit") == "undefined"
    assert any("Content Security Policy" in error for error in tab.errors)


def test_plots_are_drawn_from_the_history(tab: Tab, daemon: Daemon) -> None:
    lags = [1.0, 2.0, 8.0, 4.0, 3.0]
    past = [
        (
            table(
                lag_seconds=lag, rows=1000 * number, data_files=10 + number, delete_files=number, snapshots=20 + number
            ),
        )
        for number, lag in enumerate(lags)
    ]
    daemon.remember(*past)
    daemon.tables = past[-1]
    opened(tab, daemon)
    tab.wait_for("document.querySelectorAll('[data-plot] .curve').length === 6")
    path, rates = tab.run(
        "['lag', 'rate'].map(p => document.querySelector(`[data-plot=${p}] .curve`).getAttribute('d'))"
    )
    points = [tuple(map(float, point.split())) for point in path[1:].split("L")]
    assert len(points) >= len(lags)
    assert [x for x, _ in points] == sorted(x for x, _ in points)
    assert min(points, key=lambda point: point[1]) == points[2]
    bottom = float(tab.run("document.querySelector('[data-plot=lag] .grid').getAttribute('y1')"))
    assert bottom == 154, "nothing is at the foot of the plot"
    heights = [bottom - y for _, y in points]
    assert heights[2] / heights[0] == pytest.approx(8.0, rel=0.05)
    assert rates.count("L") == len(points) - 2
    assert text_of(tab, "[data-plot=files] output") == "14 / 4"
    assert "now" in tab.run("document.querySelector('[data-plot=lag] svg').getAttribute('aria-label')")


def test_the_mouse_over_a_plot_tells_the_value_there(tab: Tab, daemon: Daemon) -> None:
    daemon.remember(*[(table(data_files=files),) for files in (10, 20, 30, 40)])
    daemon.tables = (table(data_files=40),)
    opened(tab, daemon)
    tab.wait_for("document.querySelectorAll('.curve').length > 0")
    tab.run("document.querySelector('[data-plot=files]').scrollIntoView({block: 'center'})")
    box = tab.run("JSON.stringify(document.querySelector('[data-plot=files] svg').getBoundingClientRect())")
    where = json.loads(box)
    tab.call("Input.dispatchMouseEvent", type="mouseMoved", x=where["x"] + 57, y=where["y"] + 50)
    tab.wait_for("document.querySelector('[data-plot=files] output').innerText.endsWith('10 / 1')")
    assert tab.run("document.querySelectorAll('.cursor').length") == 4


def test_a_first_load_has_a_bar_and_a_time_left(tab: Tab, daemon: Daemon) -> None:
    past = [(table(state=TableState.INITIAL_SYNC, load=LoadProgress(done, 100_000)),) for done in (0, 10_000, 20_000)]
    daemon.remember(*past)
    daemon.tables = (table(state=TableState.INITIAL_SYNC, load=LoadProgress(25_000, 100_000)),)
    opened(tab, daemon)
    assert tab.run("document.querySelector('#rows progress').value") == 0.25
    told = tab.wait_for("(t => t.includes('left') && t)(document.querySelector('#rows .load').innerText)")
    assert "25 %" in told.replace("25.0", "25")
    assert "25 k of 100 k" in told
    daemon.tables = (table(),)
    tab.wait_for(f"!({shown('#rows .load')})")


def test_a_load_that_outruns_its_estimate_is_not_more_than_done(tab: Tab, daemon: Daemon) -> None:
    daemon.tables = (
        table("lake.a", state=TableState.INITIAL_SYNC, load=LoadProgress(150, 100)),
        table("lake.b", state=TableState.INITIAL_SYNC, load=LoadProgress(150, 0)),
    )
    opened(tab, daemon)
    assert "99.9 %" in cells(tab)["lake.a"][0]
    assert cells(tab)["lake.b"][0].endswith("150 rows")
    assert tab.run("[...document.querySelectorAll('#rows progress')].map(b => b.position)") == [1, -1]


def test_a_daemon_that_is_gone_is_not_mistaken_for_a_quiet_one(tab: Tab, daemon: Daemon) -> None:
    server = opened(tab, daemon)
    assert not tab.run(shown("#gone"))
    daemon.stop()
    tab.wait_for(shown("#gone"))
    assert "has not answered for" in text_of(tab, "#gone")
    assert text_of(tab, "#health") == "no answer"
    assert "no answer" in tab.run("document.title")
    tab.wait_for("getComputedStyle(document.querySelector('main')).opacity < 1")
    daemon.tables = (table(epochs=77),)
    daemon.start(port=server.port)
    tab.wait_for(f"!({shown('#gone')})")
    assert cells(tab)["lake.orders"][4] == "77"
    assert text_of(tab, "#health") == "publishing"


def test_without_a_token_there_is_nothing_to_press(tab: Tab, daemon: Daemon) -> None:
    opened(tab, daemon)
    assert [tab.run(shown(part)) for part in ("#actions", "#token", "#reload", "#resync")] == [False] * 4


def test_actions_need_the_token(tab: Tab, daemon: Daemon) -> None:
    daemon.tables = (table(), table("lake.b"))
    opened(tab, daemon, token=TOKEN)
    assert [tab.run(shown(part)) for part in ("#token", "#reload")] == [True, False]
    for given, answer in (("wrong", "http.token"), (TOKEN, "the configuration is read again")):
        tab.run("document.querySelector('#token').focus()")
        tab.type(given)
        tab.press("Enter")
        tab.wait_for(shown("#reload"))
        click(tab, "#reload")
        tab.wait_for(f"document.querySelector('#said').innerText.includes({json.dumps(answer)})")
        assert tab.run(shown("#reload")) is (given == TOKEN)
    assert daemon.asked == ["reload"]
    assert TOKEN not in tab.run(
        "document.documentElement.outerHTML + JSON.stringify({...localStorage, ...sessionStorage})"
    )


def test_a_table_is_loaded_anew_only_if_that_is_said_twice(tab: Tab, daemon: Daemon) -> None:
    daemon.tables = (table(), table("lake.b"))
    opened(tab, daemon, token=TOKEN)
    tab.run("document.querySelector('#token').focus()")
    tab.type(TOKEN)
    tab.press("Enter")
    tab.wait_for(shown("#resync"))
    click(tab, "#resync")
    assert text_of(tab, "#resync") == "Really load lake.orders anew?"
    assert daemon.asked == []
    click(tab, "#resync")
    tab.wait_for("document.querySelector('#said').innerText === 'lake.orders is loaded anew'")
    assert daemon.asked == ["resync lake.orders"]
    click(tab, "#rows tr:nth-child(2) button")
    click(tab, "#resync")
    click(tab, "#resync")
    tab.wait_for("document.querySelector('#said').innerText.includes('does not keep what it sent')")
    assert daemon.asked == ["resync lake.orders"]


def test_the_keyboard_is_enough(tab: Tab, daemon: Daemon) -> None:
    daemon.tables = (table("lake.a"), table("lake.b"), table("lake.c"))
    opened(tab, daemon)
    for _ in range(30):
        tab.press("Tab")
        if tab.run("document.activeElement.closest('#rows') !== null"):
            break
    assert tab.run("document.activeElement.innerText") == "lake.a"
    tab.press("ArrowDown")
    tab.press("ArrowDown")
    tab.press("ArrowUp")
    assert text_of(tab, "#detail-title") == "lake.b"
    assert tab.run("document.querySelectorAll('#rows [aria-current=true]').length") == 1
    # The focus stays where it is when the page refreshes and lines change their order.
    daemon.tables = (table("lake.c"), table("lake.b", epochs=9), table("lake.a"))
    tab.wait_for("document.querySelector('#rows tr:nth-child(2) td:nth-child(6)').innerText === '9'")
    assert tab.run("document.activeElement.innerText") == "lake.b"


def test_hundreds_of_tables_can_be_filtered_and_sorted(tab: Tab, daemon: Daemon) -> None:
    many = [table(f"lake.t{number:03}", lag_seconds=float(number % 97), source="") for number in range(300)]
    daemon.tables = (*many, table("lake.odd", state=TableState.STOPPED, lag_seconds=None))
    opened(tab, daemon)
    click(tab, "[data-sort=lag_seconds]")
    lines = list(cells(tab).items())
    assert lines[0][1][1] == "1 min 36 s"
    assert lines[-1][0] == "lake.odd"
    click(tab, "[data-sort=state]")
    assert next(iter(cells(tab))) == "lake.odd"
    tab.run("document.querySelector('#filter').focus()")
    tab.type("T29")
    assert sorted(cells(tab)) == [f"lake.t{number}" for number in range(290, 300)]
    assert not tab.run(shown("#none"))
    tab.type("nothing")
    assert (cells(tab), tab.run(shown("#none"))) == ({}, True)


def test_everything_comes_from_the_daemon_itself(tab: Tab, daemon: Daemon) -> None:
    server = opened(tab, daemon)
    asked = tab.run("performance.getEntriesByType('resource').map(r => r.name)")
    assert {f"{server.url}/{name}" for name in ("page.js", "page.css", "status")} <= set(asked)
    assert [name for name in asked if not name.startswith((f"{server.url}/", "data:"))] == []


def test_it_is_dark_where_the_reader_wants_it_dark(tab: Tab, daemon: Daemon) -> None:
    opened(tab, daemon)
    grounds = []
    for dark in (True, False):
        tab.dark(dark)
        grounds.append(tab.run("getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(14, 20, 26)", "rgb(246, 248, 250)"]


@pytest.mark.parametrize("width", [1280, 420])
@pytest.mark.parametrize("lag", [0.4, 95.0, 1_000.0, 90_000.0, 2_000_000.0])
def test_no_label_of_an_axis_is_cut_off_or_lies_on_another(tab: Tab, daemon: Daemon, lag: float, width: int) -> None:
    tab.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    daemon.tables = (table(lag_seconds=lag, rows=10**9, data_files=123_456, snapshots=9_999_999),)
    past = [
        (table(lag_seconds=lag * n / 10, rows=n * 10**8, data_files=123_456, snapshots=9_999_999),) for n in range(10)
    ]
    daemon.remember(*past)
    opened(tab, daemon)
    tab.wait_for("document.querySelectorAll('[data-plot=lag] svg .curve').length > 0")
    outside = tab.run("""[...document.querySelectorAll('svg.plot')].flatMap(plot => {
        const frame = plot.getBoundingClientRect();
        return [...plot.querySelectorAll('text')].filter(text => {
            const box = text.getBoundingClientRect();
            return box.left < frame.left - 0.5 || box.right > frame.right + 0.5;
        }).map(text => text.textContent);
    })""")
    assert outside == []
    overlapping = tab.run("""[...document.querySelectorAll('svg.plot')].flatMap(plot => {
        const boxes = [...plot.querySelectorAll('text')].map(text => [text.textContent, text.getBoundingClientRect()]);
        return boxes.flatMap(([name, one], at) => boxes.slice(at + 1)
            .filter(([_, other]) => one.left < other.right && other.left < one.right
                && one.top + 2 < other.bottom && other.top + 2 < one.bottom)
            .map(([other]) => name + ' on ' + other));
    })""")
    tab.call("Emulation.clearDeviceMetricsOverride")
    assert overlapping == []


def test_positions_are_shown_as_the_time_they_were_and_exactly(tab: Tab, daemon: Daemon) -> None:
    position = "1795178105353123456.0000000001"
    daemon.source_time = datetime(2026, 11, 20, 12, 35, 5, 353123, UTC)
    daemon.tables = (table(resolved=position, source_time=daemon.source_time),)
    daemon.resolved = position
    opened(tab, daemon)
    assert text_of(tab, "#resolved") == f"2026-11-20 12:35:05.353 Z\n{position}"
    assert f"resolved at 2026-11-20 12:35:05.353 Z ({position})" in text_of(tab, "#detail-facts")
    assert tab.errors == []

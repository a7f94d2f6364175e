"""A real Chromium without a window, driven over its own debugging protocol.

    $FRAZIL_CHROMIUM, or one that is installed
        | none
    Debian's packages: apt-get download (signed, checked by apt) --> unpacked in the cache, nothing is installed
        |
    chromium --remote-debugging-pipe: messages of JSON with a zero byte behind each --> Tab

A page runs in a profile of its own that is thrown away. Chromium reaches the network only where the page leads it.
"""

from __future__ import annotations

import base64
import fcntl
import itertools
import json
import os
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from frazil.paths import cache_home

VARIABLE = "FRAZIL_CHROMIUM"
_INSTALLED = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_PACKAGE = "chromium-headless-shell"
_PATIENCE = 60.0
_FLAGS = (
    "--headless",
    "--no-sandbox",  # refuses to run as root with one; the only page it sees is ours
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
    "--remote-debugging-pipe",
    "--window-size=1280,1000",
)
# Chromium reads its commands from descriptor 3 and answers on 4.
_LAUNCH = (
    "import os,sys\n"
    "for given, wanted in ((int(sys.argv[1]), 3), (int(sys.argv[2]), 4)): os.dup2(given, wanted)\n"
    "os.execv(sys.argv[3], sys.argv[3:])"
)


class NoChromium(Exception):
    """None is installed, and Debian's packages cannot be had here."""


class Tab:
    """One page. Commands are answered in order; what the page logs as an error is kept in `errors`."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to = to_browser
        self._from = from_browser
        self._numbers = itertools.count(1)
        self._rest = b""
        self._session: str | None = None
        self.errors: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.wait_for("document.readyState === 'complete'")

    def run(self, expression: str) -> Any:
        """The value of a JavaScript expression; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(answer["exceptionDetails"].get("exception", {}).get("description", answer))
        return answer["result"].get("value")

    def wait_for(self, expression: str, seconds: float = _PATIENCE) -> Any:
        """Until the expression is true, or anything but false, null, 0 and an empty text."""
        deadline = time.monotonic() + seconds
        while not (value := self.run(expression)):
            if time.monotonic() > deadline:
                raise AssertionError(f"never true: {expression}\n{self.text()}")
            time.sleep(0.05)
        return value

    def text(self) -> str:
        """What a reader sees."""
        return str(self.run("document.body.innerText"))

    def press(self, key: str) -> None:
        """A key, as the keyboard sends it: Tab, Enter, ArrowDown, ..."""
        codes = {"Tab": 9, "Enter": 13, "ArrowUp": 38, "ArrowDown": 40}
        facts = {"key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
        text = {"text": "\r"} if key == "Enter" else {}
        self.call("Input.dispatchKeyEvent", type="keyDown", **facts, **text)
        self.call("Input.dispatchKeyEvent", type="keyUp", **facts)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def dark(self, wanted: bool) -> None:
        scheme = {"name": "prefers-color-scheme", "value": "dark" if wanted else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def screenshot(self, path: Path) -> None:
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(answer["data"]))

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        match event.get("method"), event.get("params", {}):
            case "Runtime.exceptionThrown", {"exceptionDetails": details}:
                self.errors.append(str(details.get("exception", {}).get("description", details)))
            case "Log.entryAdded", {"entry": {"level": "error", "text": text, **rest}}:
                self.errors.append(f"{text} {rest.get('url', '')}")
            case _:
                pass

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + _PATIENCE
        while b"\0" not in self._rest:
            waiting = select.poll()  # unlike select, also where a long test run has thousands of files open
            waiting.register(self._from, select.POLLIN)
            ready = waiting.poll(max(0.0, deadline - time.monotonic()) * 1000)
            chunk = os.read(self._from, 1 << 16) if ready else b""
            if not chunk:
                raise RuntimeError("Chromium does not answer" if not ready else "Chromium has ended")
            self._rest += chunk
        message, self._rest = self._rest.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer


@contextmanager
def chromium_tab() -> Iterator[Tab]:
    """A browser with one empty page. Raises NoChromium if there is none to be had."""
    program, environment = _program()
    profile = Path(tempfile.mkdtemp(prefix="frazil-chromium-"))
    (theirs_in, to_browser), (from_browser, theirs_out) = _high_pipe(), _high_pipe()
    command = [sys.executable, "-c", _LAUNCH, str(theirs_in), str(theirs_out), str(program)]
    with (profile / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(theirs_in, theirs_out),
            stdout=log,
            stderr=log,
            env=environment,
        )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        try:
            yield Tab(to_browser, from_browser)
        except RuntimeError as error:
            raise RuntimeError(f"{error}:\n{(profile / 'log').read_text(errors='replace')[-3000:]}") from error
    finally:
        os.close(to_browser)  # it ends by itself when nobody can command it any more
        os.close(from_browser)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)
        shutil.rmtree(profile, ignore_errors=True)


def _high_pipe() -> tuple[int, int]:
    """Numbers that cannot be in the way of 3 and 4."""
    low = os.pipe()
    high = tuple(fcntl.fcntl(one, fcntl.F_DUPFD_CLOEXEC, 16) for one in low)
    for one in low:
        os.close(one)
    return high[0], high[1]


def _program() -> tuple[Path, dict[str, str]]:
    """The program, and the environment it runs in."""
    environment = dict(os.environ)
    if chosen := os.environ.get(VARIABLE):
        return Path(chosen), environment
    for name in _INSTALLED:
        if found := shutil.which(name):
            return Path(found), environment
    home = _unpacked()
    libraries = sorted({str(path.parent) for path in home.glob("usr/lib/*-linux-gnu*/**/*.so*")})
    environment["LD_LIBRARY_PATH"] = os.pathsep.join([*libraries, environment.get("LD_LIBRARY_PATH", "")]).rstrip(":")
    return home / "usr/lib/chromium" / _PACKAGE, environment


def _unpacked() -> Path:
    """Debian's package and what it needs beyond what is installed, in the cache."""
    home = cache_home() / "servers" / "chromium"
    if (home / "usr/lib/chromium" / _PACKAGE).is_file():
        return home
    if not all(shutil.which(program) for program in ("apt-get", "dpkg-deb")):
        raise NoChromium(f"no Chromium is installed and this is no Debian: set {VARIABLE} to a Chromium or Chrome")
    home.parent.mkdir(parents=True, exist_ok=True)
    making = Path(tempfile.mkdtemp(prefix=".chromium-", dir=home.parent))
    try:
        lists = _lists(making / "apt")
        archives = making / "archives"
        archives.mkdir()
        _apt(*lists, "download", *_missing(lists), cwd=archives)
        for archive in sorted(archives.glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", str(archive), str(making / "root")], check=True)
        (making / "root").replace(home)
    except OSError:
        # Somebody else was faster.
        if not (home / "usr/lib/chromium" / _PACKAGE).is_file():
            raise
    finally:
        shutil.rmtree(making, ignore_errors=True)
    return home


def _lists(private: Path) -> tuple[str, ...]:
    """Options under which apt knows the package: none, or lists of our own where the machine's are empty."""
    try:
        _missing(())
        return ()
    except NoChromium:
        (private / "lists/partial").mkdir(parents=True)
        (private / "cache/archives/partial").mkdir(parents=True)
        options = ("-o", f"Dir::State::Lists={private}/lists", "-o", f"Dir::Cache={private}/cache")
        _apt(*options, "update")
        return options


def _missing(options: tuple[str, ...]) -> list[str]:
    """The packages that would be installed, each as name=version."""
    flags = ("-qq", "-y", "--no-install-recommends", "-o", "Debug::NoLocking=true", "--print-uris")
    listed = _apt(*options, *flags, "install", _PACKAGE).splitlines()
    names = [line.split()[1] for line in listed if line.startswith("'")]
    if not names:
        raise NoChromium(f"apt knows no {_PACKAGE}: set {VARIABLE} to a Chromium or Chrome")
    return ["=".join(name.removesuffix(".deb").split("_")[:2]).replace("%3a", ":") for name in names]


def _apt(*arguments: str, cwd: Path | None = None) -> str:
    command = ["apt-get", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode:
        raise NoChromium(f"{' '.join(command[:8])}: {done.stderr.strip()[-500:]}; or set {VARIABLE}")
    return done.stdout

"""HDFS over HTTP: a small WebHDFS client.

    namenodes (one, or all of an HA service) --the active one answers--> a JSON answer, or where the data goes
         standby, or away: the next one                                     `--> datanode: bytes, pushed or fetched

Ours, because the file system of fsspec overwrites by default, appends block by block, and knows one namenode only.
Redirects are never followed blindly: the namenode is asked for the address (`noredirect`), and an https service that
names a plain http datanode is refused. Kerberos is spoken with the namenode alone; its answers carry a token for the
datanode.
"""

from __future__ import annotations

import getpass
import http.client
import importlib
import json
import ssl
import string
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from frazil.clock import Clock, SystemClock
from frazil.errors import CatalogRefused, ConfigError, FrazilError, StorageUnavailable
from frazil.storage.options import CA_FILE, HDFS_NAMENODES, HDFS_TOKEN, HDFS_USER
from frazil.storage.requests import waits
from frazil.storage.url import scheme_of

KERBEROS = "hadoop.hadoop.security.authentication"
_SERVICES = "hadoop.dfs.ha.namenodes."
_POLICY = "hadoop.dfs.http.policy"
_PORTS = {"http": 9870, "https": 9871}
_TIMEOUT_SECONDS = 60
_NEXT = ("StandbyException", "RetriableException", "SafeModeException", "ConnectException")


class HdfsAnswer(Exception):
    """The service said no: Hadoop's exception name, and its first sentence."""

    def __init__(self, status: int, exception: str, message: str) -> None:
        super().__init__(status, exception, message)
        self.status = status
        self.exception = exception
        self.message = message

    @classmethod
    def of(cls, status: int, body: bytes) -> HdfsAnswer:
        try:
            said = json.loads(body)["RemoteException"]
            message = str(said.get("message") or "").splitlines()
            return cls(status, str(said.get("exception") or ""), message[0] if message else "")
        except (ValueError, KeyError, TypeError):
            return cls(status, "", "")

    def __str__(self) -> str:
        return f"{self.exception} ({self.message})" if self.exception else f"it answered {self.status}"


class WebHdfs:
    """One HDFS service, as one user."""

    def __init__(self, url: str, options: Mapping[str, str], clock: Clock | None = None) -> None:
        self.addresses = web_addresses(url, options)
        self._clock = clock or SystemClock()
        self._token = options.get(HDFS_TOKEN, "")
        self._kerberos = options.get(KERBEROS, "").lower() == "kerberos" and not self._token
        self._user = "" if self._kerberos or self._token else options.get(HDFS_USER) or getpass.getuser()
        self._tls = ssl.create_default_context(cafile=options.get(CA_FILE) or None)
        self._session = _kerberos_session(url, options) if self._kerberos else None
        self._opener = urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=self._tls))

    @property
    def identity(self) -> str:
        if self._token:
            return "the holder of a delegation token"
        return "the Kerberos ticket of this process" if self._kerberos else f"user {self._user}"

    @property
    def endpoint(self) -> str:
        return ", ".join(self.addresses)

    def status(self, path: str) -> Mapping[str, Any]:
        """FileStatus. Raises HdfsAnswer (FileNotFoundException if there is none), StorageUnavailable."""
        found: Mapping[str, Any] = self._ask("GET", path, op="GETFILESTATUS")["FileStatus"]
        return found

    def read(self, path: str, start: int, end: int) -> bytes:
        """Exactly these bytes. Raises HdfsAnswer, StorageUnavailable."""
        pauses = waits(self._clock)
        while True:
            location = self._location("GET", path, op="OPEN", offset=start, length=end - start)
            try:
                connection = self._connect(location)
                try:
                    connection.request("GET", _target(location))
                    data = _checked(connection.getresponse()).read()
                finally:
                    connection.close()
                if len(data) == end - start:
                    return data
                problem = f"{len(data)} bytes came for {end - start}"
            except (OSError, http.client.HTTPException) as error:
                problem = type(error).__name__
            pause = next(pauses, None)
            if pause is None:
                raise self._unavailable(path, problem)
            self._clock.wait(pause)

    def create(self, path: str) -> http.client.HTTPConnection:
        """A connection to the datanode that takes the bytes of a new file, in chunks. The datanode refuses a path that
        exists, with its answer. Raises HdfsAnswer, StorageUnavailable."""
        location = self._location("PUT", path, op="CREATE", overwrite="false")
        connection = self._connect(location)
        try:
            connection.putrequest("PUT", _target(location))
            connection.putheader("Content-Type", "application/octet-stream")
            connection.putheader("Transfer-Encoding", "chunked")
            connection.endheaders()
        except OSError as error:
            connection.close()
            raise self._unavailable(path, type(error).__name__) from error
        return connection

    def _location(self, method: str, path: str, **parameters: Any) -> str:
        location = str(self._ask(method, path, noredirect="true", **parameters)["Location"])
        if self.addresses[0].startswith("https:") and not location.startswith("https:"):
            raise CatalogRefused(
                f"the namenode at {self.addresses[0]} sends data to {_shown(location)}, which is not encrypted",
                hint="Set dfs.http.policy to HTTPS_ONLY on the datanodes too, or name the namenodes by http://.",
            )
        return location

    def _ask(self, method: str, path: str, **parameters: Any) -> Any:
        """The active namenode's JSON answer."""
        if self._token:
            parameters["delegation"] = self._token
        elif self._user:
            parameters["user.name"] = self._user
        target = f"/webhdfs/v1{urllib.parse.quote(path)}?{urllib.parse.urlencode(parameters)}"
        pauses = waits(self._clock)
        while True:
            problem = "no namenode is active"
            for address in self.addresses:
                try:
                    answer = self._answer(method, address + target)
                except HdfsAnswer as said:
                    if said.exception not in _NEXT and said.status < 500:
                        self._prefer(address)
                        raise
                    problem = str(said)
                except (OSError, http.client.HTTPException, ValueError) as error:
                    problem = type(error).__name__
                    if isinstance(getattr(error, "reason", error), ssl.SSLCertVerificationError):
                        raise ConfigError(
                            f"the certificate of {address} is not trusted",
                            hint="Set the volume's ca_file to the PEM file of its authority.",
                        ) from error
                else:
                    self._prefer(address)
                    return answer
            pause = next(pauses, None)
            if pause is None:
                raise self._unavailable(path, problem)
            self._clock.wait(pause)

    def _prefer(self, address: str) -> None:
        """The active namenode first, from now on. A standby would hand out datanodes too, which then fail."""
        self.addresses = (address, *(other for other in self.addresses if other != address))

    def _answer(self, method: str, url: str) -> Any:
        if self._session is not None:
            response = self._session.request(method, url, allow_redirects=False, timeout=_TIMEOUT_SECONDS)
            status, body = response.status_code, response.content
        else:
            request = urllib.request.Request(url, method=method)
            try:
                with self._opener.open(request, timeout=_TIMEOUT_SECONDS) as opened:
                    status, body = opened.status, opened.read()
            except urllib.error.HTTPError as error:
                status, body = error.code, error.read()
        if status >= 300:
            raise HdfsAnswer.of(status, body)
        return json.loads(body)

    def _connect(self, location: str) -> http.client.HTTPConnection:
        parts = urllib.parse.urlsplit(location)
        if parts.scheme == "https":
            return http.client.HTTPSConnection(parts.netloc, timeout=_TIMEOUT_SECONDS, context=self._tls)
        return http.client.HTTPConnection(parts.netloc, timeout=_TIMEOUT_SECONDS)

    def _unavailable(self, path: str, problem: str) -> FrazilError:
        return StorageUnavailable(
            f"cannot reach {path} as {self.identity} at {self.endpoint}: {problem}",
            hint="See whether the namenodes and datanodes can be reached over HTTP from every executor"
            " (dfs.namenode.http-address, dfs.webhdfs.enabled), then run again.",
            path=path,
            endpoint=self.endpoint,
        )


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def web_addresses(url: str, options: Mapping[str, str]) -> tuple[str, ...]:
    """Where the service of an hdfs: or webhdfs: URL answers over HTTP. Pure. Raises ConfigError if it cannot be told.

    In order: the addresses given, the URL's own if it is webhdfs:, Hadoop's settings of the HA service, of the single
    namenode, and Hadoop's usual port.
    """
    scheme = scheme_of(url)
    authority = url.partition("://")[2].partition("/")[0]
    if given := options.get(HDFS_NAMENODES, ""):
        return tuple(_with_scheme(one.strip(), "http") for one in given.split(",") if one.strip())
    if scheme in ("webhdfs", "swebhdfs"):
        web = "https" if scheme == "swebhdfs" else "http"
        return (_with_port(f"{web}://{authority}"),)
    web = "https" if options.get(_POLICY, "").upper() == "HTTPS_ONLY" else "http"
    service = authority or options.get("hadoop.fs.defaultFS", "").partition("://")[2].partition("/")[0]
    setting = f"hadoop.dfs.namenode.{web}-address"
    if nodes := options.get(f"{_SERVICES}{service}", ""):
        names = [f"{setting}.{service}.{node.strip()}" for node in nodes.split(",")]
        missing = [name for name in names if not options.get(name)]
        if missing:
            raise ConfigError(
                f"{url}: the web address of a namenode is not known: {missing[0]} is not set",
                hint="Set `namenodes` of the volume to their web addresses, such as [http://nn1:9870, http://nn2:9870].",
            )
        return tuple(_with_scheme(options[name], web) for name in names)
    if options.get(setting):
        return (_with_scheme(options[setting], web),)
    if not service:
        raise ConfigError(f"{url} names no namenode", hint="Write hdfs://host/path, or set `namenodes` of the volume.")
    host = service.rpartition(":")[0] or service
    return (f"{web}://{host}:{_PORTS[web]}",)


def _with_scheme(address: str, web: str) -> str:
    return _with_port(address.rstrip("/") if "://" in address else f"{web}://{address}")


def _with_port(address: str) -> str:
    parts = urllib.parse.urlsplit(address)
    return address if parts.port else f"{address}:{_PORTS[parts.scheme]}"


def _kerberos_session(url: str, options: Mapping[str, str]) -> Any:
    try:
        requests = importlib.import_module("requests")
        kerberos = importlib.import_module("requests_kerberos")
    except ImportError as error:
        raise ConfigError(
            f"{url}: Kerberos needs a library that is not installed: {error.name}",
            hint="Install it wherever Frazil and its executors run: "
            "pip install 'requests>=2.31' 'requests-kerberos>=0.14'",
        ) from error
    session = requests.Session()
    session.verify = options.get(CA_FILE) or True
    session.auth = kerberos.HTTPKerberosAuth(mutual_authentication=kerberos.REQUIRED)
    return session


def _target(location: str) -> str:
    """What is asked of a datanode. The namenode escapes what a URL may not hold, except for letters beyond ASCII."""
    parts = urllib.parse.urlsplit(location)
    return urllib.parse.quote(f"{parts.path}?{parts.query}", safe=string.punctuation)


def _shown(location: str) -> str:
    parts = urllib.parse.urlsplit(location)
    return f"{parts.scheme}://{parts.netloc}"


def _checked(response: http.client.HTTPResponse) -> http.client.HTTPResponse:
    if response.status >= 300:
        raise HdfsAnswer.of(response.status, response.read())
    return response

"""The jars that Spark needs for Iceberg, downloaded once, checked, and kept.

    coordinate --in the cache?--> path
        | no
    repository/group/artifact/version/file --> temporary file --sha256 right?--> rename --> path

The rename makes a jar appear whole or not at all, so two processes may do this at once. With a filled cache
nothing is asked of the network. `python -m frazil.iceberg.jvm.jars` fills the cache and checks what is there.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pyspark
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from frazil.clock import SystemClock
from frazil.errors import ConfigError, StorageUnavailable
from frazil.iceberg.catalogs.settings import (
    DELEGATION_HEADER,
    CatalogSettings,
    CatalogType,
    iceberg_properties,
)
from frazil.paths import cache_home
from frazil.storage.url import StoreKind, kind_of

REPOSITORY_VARIABLE = "FRAZIL_MAVEN_REPOSITORY"
_IVY_CLASS = "org/apache/ivy/plugins/resolver/IBiblioResolver.class"
_IVY_DEFAULT = re.compile(rb"https://[A-Za-z0-9.-]+(?:/[A-Za-z0-9._-]+)*/maven2/")
_ATTEMPTS = 3
_TIMEOUT_SECONDS = 60
_CHUNK = 1 << 20


@dataclass(frozen=True, slots=True)
class Coordinate:
    """A Maven artifact, written group:artifact:version or group:artifact:version:classifier, then @extension if it is
    not a jar."""

    group: str
    artifact: str
    version: str
    classifier: str = ""
    extension: str = "jar"

    @classmethod
    def parse(cls, text: str) -> Coordinate:
        named, _, extension = text.partition("@")
        parts = named.split(":")
        if len(parts) not in (3, 4) or not all(parts):
            raise ValueError(f"{text!r} is not group:artifact:version[:classifier][@extension]")
        group, artifact, version, classifier = (*parts, "")[:4]
        return cls(group, artifact, version, classifier, extension or "jar")

    @property
    def file_name(self) -> str:
        return "-".join(filter(None, (self.artifact, self.version, self.classifier))) + f".{self.extension}"

    @property
    def repository_path(self) -> str:
        return f"{self.group.replace('.', '/')}/{self.artifact}/{self.version}/{self.file_name}"

    def __str__(self) -> str:
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))


@dataclass(frozen=True, slots=True)
class Jar:
    coordinate: str
    sha256: str


ICEBERG = Jar(
    "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
    "3123c3798af642dd537230923548e013ef41cc28b6626e5225808cf5670a0f82",
)
SQLITE = Jar("org.xerial:sqlite-jdbc:3.53.4.0", "bcb1f51e36f940867e83342f9efbf5968ac44a6bef4d397bb4af7b17b45cd2fb")
AWS = Jar(
    "org.apache.iceberg:iceberg-aws-bundle:1.12.0", "dd7e49ffa4ac9b215bed846581991259e3aec9bb2fa08d6cec029c46cd66d957"
)
GCP = Jar(
    "org.apache.iceberg:iceberg-gcp-bundle:1.11.0", "d9248fc76d94d232e153bf760631229cd3b7c6bc3b20f47d4b2caffe011a8a2f"
)
AZURE = Jar(
    "org.apache.iceberg:iceberg-azure-bundle:1.10.0", "f143be94b94bb380e76d1c45ee9a63e143f4a7f813c6aa1ed72f5bfd44f52d05"
)
POSTGRESQL = Jar(
    "org.postgresql:postgresql:42.7.14", "73914527305a40cce504b0d3d90b23caf565136912d607ae8ae7c5895512332c"
)
MYSQL = Jar(
    "com.mysql:mysql-connector-j:9.5.0",
    "f2ca3dfaf00d4aa311470db7ea3051962944ba0cb60005a2f75467549c39f425",
)
NEEDED = (ICEBERG, SQLITE)
_BY_KIND = {StoreKind.S3: AWS, StoreKind.GCS: GCP, StoreKind.AZURE: AZURE}
_BY_PREFIX = {"s3.": AWS, "glue.": AWS, "rest.sign": AWS, "gcs.": GCP, "adls.": AZURE}
_BY_CLASS = {"org.apache.iceberg.aws.": AWS, "org.apache.iceberg.gcp.": GCP, "org.apache.iceberg.azure.": AZURE}
_BY_DATABASE = {"jdbc:postgresql:": POSTGRESQL, "jdbc:mysql:": MYSQL}


def spark_jars(catalogs: Sequence[CatalogSettings] = (), further: Sequence[Jar] = ()) -> tuple[Path, ...]:
    """What a session with these catalogs has on its class path.

    A running session takes no further jars that everything in it would see, so all catalogs are named at its start.
    """
    return tuple(fetch(jar.coordinate, jar.sha256) for jar in dict.fromkeys((*NEEDED, *jars_of(catalogs), *further)))


def jars_of(catalogs: Sequence[CatalogSettings]) -> tuple[Jar, ...]:
    """The jars that these catalogs need besides those of every session: of their database, cloud and storage. Pure."""
    found = [jar for settings in catalogs for jar in _jars_of(settings)]
    return tuple(dict.fromkeys(found))


def _jars_of(settings: CatalogSettings) -> Iterator[Jar]:
    if settings.type is CatalogType.MEMORY:
        return
    properties = iceberg_properties(settings)
    if settings.type in (CatalogType.GLUE, CatalogType.S3TABLES) or properties.get("rest.auth.type") == "sigv4":
        yield AWS
    if properties.get("rest.auth.type") == "google":
        yield GCP
    for prefix, jar in _BY_DATABASE.items():
        if properties.get("uri", "").startswith(prefix):
            yield jar
    storage = list(_storage_jars(properties))
    yield from storage
    if not storage and properties.get(DELEGATION_HEADER):
        # Where the tables lie is the server's secret until one is loaded; most often it is S3.
        yield AWS


def _storage_jars(properties: Mapping[str, str]) -> Iterator[Jar]:
    if kind := kind_of(properties.get("warehouse", "")):
        yield _BY_KIND[kind]
    for name, value in properties.items():
        yield from (jar for prefix, jar in _BY_PREFIX.items() if name.startswith(prefix))
        yield from (jar for prefix, jar in _BY_CLASS.items() if name == "io-impl" and value.startswith(prefix))


def fetch(coordinate: str, sha256: str, cache: Path | None = None) -> Path:
    """The jar's path in the cache, downloaded if it is not there.

    Raises StorageUnavailable if the repository cannot be reached or does not have it, ConfigError if it gives a file
    with another checksum.
    """
    wanted = Coordinate.parse(coordinate)
    directory = (cache or cache_home()) / "jars"
    path = directory / wanted.file_name
    if path.is_file():
        return path
    _make(directory)
    url = repository_root().rstrip("/") + "/" + wanted.repository_path
    with tempfile.NamedTemporaryFile(dir=directory, prefix=f".{wanted.file_name}.", delete=False) as temporary:
        try:
            _download(url, temporary, wanted)
            temporary.flush()
            os.fsync(temporary.fileno())
            found = digest(Path(temporary.name))
            if found != sha256:
                raise ConfigError(
                    f"{_without_credentials(url)} has SHA-256 {found}, expected {sha256}: it is not the jar we know",
                    hint=f"the repository or something between it and here alters files; set {REPOSITORY_VARIABLE} "
                    f"to one you trust, or put the right jar at {path}",
                )
            Path(temporary.name).chmod(0o644)
            Path(temporary.name).replace(path)
        except BaseException:
            Path(temporary.name).unlink(missing_ok=True)
            raise
    return path


def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def repository_root(environment: Mapping[str, str] = os.environ) -> str:
    """The configured Maven repository, else the one Spark itself would resolve packages from."""
    if chosen := environment.get(REPOSITORY_VARIABLE):
        return chosen
    for ivy in sorted((Path(pyspark.__file__).parent / "jars").glob("ivy-*.jar")):
        with zipfile.ZipFile(ivy) as archive:
            if _IVY_CLASS in archive.namelist() and (found := _IVY_DEFAULT.search(archive.read(_IVY_CLASS))):
                return found[0].decode()
    raise ConfigError(
        "this PySpark does not tell which Maven repository it uses",
        hint=f"set {REPOSITORY_VARIABLE} to the root of a Maven repository",
    )


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(
            f"the cache directory {directory} cannot be made: {error.strerror}",
            hint="set FRAZIL_HOME to a directory that can be written",
        ) from error


def _download(url: str, into: IO[bytes], wanted: Coordinate) -> None:
    """Fills the file. A refusal (404, 403) is final; anything else is tried a few times."""
    clock = SystemClock()
    shown = _without_credentials(url)
    failure: Exception | None = None
    for attempt in range(_ATTEMPTS):
        if attempt:
            clock.wait(2.0**attempt)
        into.seek(0)
        into.truncate()
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer:
                _copy(answer, into, wanted.file_name)
            return
        except urllib.error.HTTPError as error:
            failure = error
            if error.code < 500:
                break
        except (OSError, urllib.error.URLError) as error:
            failure = error
    raise StorageUnavailable(
        f"cannot download {wanted} from {shown}: {failure}",
        hint=f"check the network, set {REPOSITORY_VARIABLE} to a reachable Maven repository, or copy "
        f"{wanted.file_name} into {Path(into.name).parent}",
        url=shown,
    ) from failure


def _copy(answer: Any, into: IO[bytes], name: str) -> None:
    size = int(answer.headers.get("Content-Length") or 0)
    copied = 0
    with _progress(name, size) as advance:
        while chunk := answer.read(_CHUNK):
            into.write(chunk)
            copied += len(chunk)
            advance(len(chunk))
    if size and copied != size:
        raise OSError(f"the connection ended after {copied} of {size} bytes")


@contextmanager
def _progress(name: str, size: int) -> Any:
    """Gives a function that takes bytes done. A bar on a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    if not console.is_terminal:
        nothing: Callable[[int], None] = lambda _: None  # noqa: E731
        yield nothing
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(name, total=size or None)
        yield lambda done: bar.advance(task, done)


def _without_credentials(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//", url)


def main() -> int:
    """Fills the cache; a damaged jar is downloaded again."""
    for jar in NEEDED:
        path = cache_home() / "jars" / Coordinate.parse(jar.coordinate).file_name
        if path.is_file() and digest(path) != jar.sha256:
            path.unlink()
        print(fetch(jar.coordinate, jar.sha256))
    return 0


if __name__ == "__main__":
    sys.exit(main())

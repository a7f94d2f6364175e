"""Opens the Spark session that everything runs in.

    Java found --> jars in the cache --> settings --> one session, quiet, on loopback where it is local
                                            ^
              each catalog registered under its name, Iceberg's SQL extensions, UTC, Arrow

A session that exists already (a notebook, `foreachBatch`) is used as it is: catalogs are added to it, and it must have
been started with Iceberg's jar.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import current_thread, main_thread

from pyspark import SparkContext
from pyspark.sql import SparkSession

from frazil.errors import ConfigError
from frazil.iceberg.catalogs.open_catalog import CatalogSettings, CatalogType, iceberg_properties, prepare, spark_conf
from frazil.iceberg.jvm.drivers import load_driver
from frazil.iceberg.jvm.jars import AWS, AZURE, GCP, ICEBERG, MYSQL, POSTGRESQL, Jar, jars_of, spark_jars
from frazil.iceberg.jvm.java import find_java, launcher_home
from frazil.paths import scratch

EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
DEFAULT_MASTER = "local[*]"
DEFAULT_JVM_MEMORY = "2g"
WARM_START = "frazil.iceberg.jvm.warm_start"
_LOOPBACK = "127.0.0.1"
_LOCAL_DIRECTORIES = "SPARK_LOCAL_DIRS"
_LOCAL = "local"
"""Where Spark keeps what does not fit into memory."""
_CLASS_OF = {
    ICEBERG: "org.apache.iceberg.CatalogUtil",
    AWS: "software.amazon.awssdk.services.s3.S3Client",
    GCP: "com.google.cloud.storage.Storage",
    AZURE: "com.azure.storage.file.datalake.DataLakeFileClient",
    POSTGRESQL: "org.postgresql.Driver",
    MYSQL: "com.mysql.cj.jdbc.Driver",
}
_SECRETS = r"(?i)secret|password|token|access[.-]?key|credential|account-key|sas|\.header\."
_LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
_LATE_OPTIMIZER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
"""Ten times Java's own numbers. Beside tasks that are Python the JVM runs much code a little: optimizing all of it took
a sixth of the processor time of a catch-up. A loop over rows is still optimized within its first second."""
_COLLECTOR = "-XX:+UseParallelGC"
"""No threads that mark beside the work: what goes through the JVM is large and soon gone."""
_COLLECTOR_CHOSEN = re.compile(r"-XX:\+Use\w+GC\b")
_OPTIONS_OF_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "SPARK_SUBMIT_OPTS")


def open_session(
    app_name: str,
    catalogs: Sequence[CatalogSettings] = (),
    master: str | None = None,
    extra: Mapping[str, str] | None = None,
    *,
    jvm_memory: str | None = None,
    active: SparkSession | None = None,
    jars: Sequence[Jar] = (),
) -> SparkSession:
    """A session with these catalogs, the jars they need, and further ones for catalogs that are added later. `extra`
    holds Spark settings and wins over ours.

    Without `active`, a session that already runs in this process is reused too: Spark allows only one. Raises
    ConfigError if Java is missing or a running session was started without Iceberg.
    """
    prepared = [prepare(catalog) for catalog in catalogs]
    running = active or SparkSession.getActiveSession()
    if running is not None or SparkContext._active_spark_context is not None:
        session = running or SparkSession.builder.getOrCreate()
        return _add_to(session, prepared)
    conf = {**session_conf(master or DEFAULT_MASTER, prepared, jvm_memory, jars), **(extra or {})}
    if is_local(conf["spark.master"]):
        os.environ.setdefault("SPARK_LOCAL_IP", _LOOPBACK)
    os.environ["JAVA_HOME"] = str(launcher_home(find_java()))
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.appName(app_name)
    for key, value in conf.items():
        builder = builder.config(key, value)
    with local_directory_told(conf), _handler_of_interrupts_kept():
        session = builder.getOrCreate()
    return _add_to(session, prepared)


@contextmanager
def _handler_of_interrupts_kept() -> Iterator[None]:
    """Spark's own handler of Ctrl-C cancels its jobs. That suits a prompt; a program with a handler keeps it."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if before is not signal.default_int_handler and current_thread() is main_thread():
        signal.signal(signal.SIGINT, before)


def session_conf(
    master: str,
    catalogs: Sequence[CatalogSettings] = (),
    jvm_memory: str | None = None,
    jars: Sequence[Jar] = (),
) -> dict[str, str]:
    """Spark's settings for a new session. The jars that the catalogs need are downloaded if they are not in the cache.

    The catalogs' own settings are not among them: what a session starts with stands on Java's command line, where every
    user of the machine can read it.
    """
    logging = f'"-Dlog4j2.configurationFile={_LOG_SETTINGS.as_uri()}"'
    # Java leaves libraries and folders of sessions in its own one when it is killed.
    own = f'"-Djava.io.tmpdir={scratch("java")}"'
    conf = {
        "spark.master": master,
        "spark.jars": ",".join(map(str, spark_jars(catalogs, jars))),
        "spark.sql.extensions": EXTENSIONS,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
        # A task holds a batch on both sides of the socket; of blocks of changes, few rows make a large one.
        "spark.sql.execution.arrow.maxBytesPerBatch": "8m",
        "spark.sql.catalogImplementation": "in-memory",
        # Where Spark would put tables of its own; we make none, but it creates the directory.
        "spark.sql.warehouse.dir": str(scratch("tables")),
        "spark.ui.enabled": "false",
        "spark.redaction.regex": _SECRETS,
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": logging,
    }
    if is_local(master):
        conf |= {
            "spark.driver.host": _LOOPBACK,
            "spark.driver.bindAddress": _LOOPBACK,
            "spark.driver.memory": jvm_memory or DEFAULT_JVM_MEMORY,
            "spark.driver.extraJavaOptions": f"{logging} {own} {_frugal()}",
            "spark.executor.extraJavaOptions": logging,
            # What a task frees it needs for the next batch: giving it back and asking anew took a tenth of its time.
            "spark.executorEnv.MALLOC_TRIM_THRESHOLD_": str(64 << 20),
            "spark.executorEnv.MALLOC_MMAP_THRESHOLD_": str(32 << 20),
            # Executors elsewhere may get this package only with the task, too late for their daemon.
            "spark.python.daemon.module": WARM_START,
        }
    elif jvm_memory:
        conf["spark.driver.memory"] = jvm_memory
    return conf


def _frugal() -> str:
    """Java does not start with two collectors, and whoever has chosen one has a reason."""
    chosen = any(_COLLECTOR_CHOSEN.search(os.environ.get(name, "")) for name in _OPTIONS_OF_JAVA)
    return _LATE_OPTIMIZER if chosen else f"{_COLLECTOR} {_LATE_OPTIMIZER}"


def is_local(master: str) -> bool:
    """Everything runs on this machine, though `local-cluster` in processes of its own."""
    return master.startswith("local")


def _add_to(session: SparkSession, catalogs: Sequence[CatalogSettings]) -> SparkSession:
    for jar in (ICEBERG, *jars_of(catalogs)):
        if not _has(session, _CLASS_OF[jar]):
            raise ConfigError(
                f"the running Spark session does not have {jar.coordinate} on its class path",
                hint="start it with frazil.iceberg.jvm.session.open_session and all catalogs, or with "
                f"spark.jars.packages={','.join(needed.coordinate for needed in (ICEBERG, *jars_of(catalogs)))}",
            )
    for catalog in catalogs:
        if catalog.type is CatalogType.BUILTIN:
            load_driver(session, iceberg_properties(catalog)["uri"])
        for key, value in spark_conf(catalog).items():
            session.conf.set(key, value)
    return session


def _has(session: SparkSession, name: str) -> bool:
    try:
        session._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except Exception:  # whatever it is: the class is not there
        return False
    return True


def clear_local_directory() -> None:
    """Removes what a JVM that was killed left of its shuffles and spills, if it kept them where we told it to."""
    for left in scratch(_LOCAL).iterdir():
        shutil.rmtree(left, ignore_errors=True)


@contextmanager
def local_directory_told(conf: Mapping[str, str]) -> Iterator[None]:
    """Java gets it with its environment, and only Java: whatever else this process starts is none of its business. The
    environment wins over Spark's settings, so whoever has chosen one there is left alone."""
    if not is_local(conf["spark.master"]) or _LOCAL_DIRECTORIES in os.environ or "spark.local.dir" in conf:
        yield
        return
    os.environ[_LOCAL_DIRECTORIES] = str(scratch(_LOCAL))
    try:
        yield
    finally:
        del os.environ[_LOCAL_DIRECTORIES]

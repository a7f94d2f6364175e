"""A Hive Metastore, started for real: Derby in a directory behind thrift.

    hive-standalone-metastore (cache, checked) + Spark's own Hadoop --> schema made once --> HiveMetaStore --> uri

Hadoop comes with Spark, shaded, so that its libraries and Hive's do not meet.
"""

from __future__ import annotations

import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark
from servers.processes import free_port, listens, running

from frazil.iceberg.jvm.jars import fetch
from frazil.iceberg.jvm.java import find_java
from frazil.paths import cache_home

_ARCHIVE = "org.apache.hive:hive-standalone-metastore:3.1.3:bin@tar.gz"
_SHA256 = "83ddf76717eeb789091d845c069a631c25cad561c3d31ec0843a1ddf21f29409"
_SCHEMA_TOOL = "org.apache.hadoop.hive.metastore.tools.MetastoreSchemaTool"
_MAIN = "org.apache.hadoop.hive.metastore.HiveMetaStore"
_COLLECTIONS = "commons-collections:commons-collections:3.2.2"
_COLLECTIONS_SHA256 = "eeeae917917144a68a741d4c0dff66aa5c5c5fd85593ff217bced3fc8ca783b8"
_FROM_SPARK = ("hadoop-client-", "commons-cli-", "commons-codec-", "commons-io-", "slf4j-api-", "jcl-over-slf4j-")
_START_SECONDS = 180
_SITE = """<configuration>
  <property><name>javax.jdo.option.ConnectionURL</name><value>jdbc:derby:{database};create=true</value></property>
  <property><name>metastore.warehouse.dir</name><value>file:{warehouse}</value></property>
  <property><name>hive.metastore.uris</name><value></value></property>
  <property><name>metastore.task.threads.always</name>
    <value>org.apache.hadoop.hive.metastore.events.EventCleanerTask</value></property>
  <property><name>metastore.expression.proxy</name>
    <value>org.apache.hadoop.hive.metastore.DefaultPartitionExpressionProxy</value></property>
</configuration>
"""


@contextmanager
def hive_metastore(directory: Path) -> Iterator[str]:
    """Gives its address, thrift://..."""
    home = _unpacked()
    conf = directory / "conf"
    conf.mkdir(parents=True)
    site = _SITE.format(database=directory / "db", warehouse=directory / "warehouse")
    (conf / "metastore-site.xml").write_text(site)
    java = [str(find_java().executable), "-Xmx256m", f"-Dderby.stream.error.file={directory}/derby.log"]
    java += ["-cp", os.pathsep.join([str(conf), *_class_path(home)])]
    environment = {**os.environ, "METASTORE_HOME": str(home), "HIVE_HOME": str(home), "METASTORE_CONF_DIR": str(conf)}
    log_file = directory / "hive.log"
    with log_file.open("wb") as log:
        made = subprocess.run(
            [*java, _SCHEMA_TOOL, "-dbType", "derby", "-initSchema"],
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            timeout=_START_SECONDS,
            check=False,
        )
    if made.returncode:
        raise RuntimeError(f"the metastore's schema was not made:\n{log_file.read_text()[-3000:]}")
    port = free_port()
    command = [*java, _MAIN, "-p", str(port)]
    with running(command, log_file, ready=lambda: listens(port), seconds=_START_SECONDS, environment=environment):
        yield f"thrift://127.0.0.1:{port}"


def _unpacked() -> Path:
    """The archive's content, beside it in the cache."""
    home = cache_home() / "servers" / "apache-hive-metastore-3.1.3-bin"
    if not (home / "lib").is_dir():
        home.parent.mkdir(parents=True, exist_ok=True)
        with tarfile.open(fetch(_ARCHIVE, _SHA256)) as archive:
            archive.extractall(home.parent, filter="data")
    return home


def _class_path(home: Path) -> list[str]:
    own = [str(jar) for jar in sorted((home / "lib").glob("*.jar"))]
    own.append(str(fetch(_COLLECTIONS, _COLLECTIONS_SHA256)))
    spark = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    return [*own, *(str(jar) for jar in spark if jar.name.startswith(_FROM_SPARK))]

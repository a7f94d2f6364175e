"""HDFS, started for real: two namenodes, one of them active, and a datanode, in one Java process on loopback.

    jars (cache, checked) + Spark's own --> java HdfsServer.java --> prints its ports --> Hdfs
                                                  ^-- "failover": the other namenode becomes active

Needs a Java with a compiler: the program is run from its source.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import pyspark
from servers.processes import end

from frazil.iceberg.jvm.jars import fetch
from frazil.iceberg.jvm.java import find_java

_PINNED = Path(__file__).with_suffix(".jars")
_PROGRAM = Path(__file__).with_name("HdfsServer.java")
_FROM_SPARK = ("hadoop-client-", "slf4j-api", "log4j-", "jcl-over")


@dataclass(frozen=True, slots=True)
class Hdfs:
    """A running service, called `committer`. `web` and `rpc` are the ports of its two namenodes."""

    web: tuple[int, int]
    rpc: tuple[int, int]
    superuser: str
    _input: IO[str] = field(repr=False)
    _output: IO[str] = field(repr=False)

    @property
    def namenodes(self) -> tuple[str, ...]:
        return tuple(f"http://127.0.0.1:{port}" for port in self.web)

    @property
    def hadoop(self) -> dict[str, str]:
        """Hadoop's own settings of this service, as a client's hdfs-site.xml would have them."""
        nodes = {f"dfs.namenode.http-address.lake.nn{i}": f"127.0.0.1:{port}" for i, port in enumerate(self.web)}
        nodes |= {f"dfs.namenode.rpc-address.lake.nn{i}": f"127.0.0.1:{port}" for i, port in enumerate(self.rpc)}
        failover = "org.apache.hadoop.hdfs.server.namenode.ha.ConfiguredFailoverProxyProvider"
        return {
            "dfs.nameservices": "lake",
            "dfs.ha.namenodes.lake": "nn0,nn1",
            "dfs.client.failover.proxy.provider.lake": failover,
            **nodes,
        }

    @property
    def fileio(self) -> dict[str, str]:
        settings = {f"hadoop.{name}": value for name, value in self.hadoop.items()}
        return {"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO", "frazil.hdfs.user": self.superuser, **settings}

    def failover(self) -> None:
        """Returns when the other namenode is active."""
        self._input.write("failover\n")
        self._input.flush()
        while not (line := self._output.readline()).startswith("active"):
            if not line:
                raise RuntimeError("HDFS ended")


@contextmanager
def hdfs_server(directory: Path) -> Iterator[Hdfs]:
    log = directory / "server.log"
    command = [str(find_java().executable), "-Xmx400m", "-cp", _class_path(), str(_PROGRAM), str(directory / "data")]
    with log.open("wb") as errors:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            ports = []
            while (line := process.stdout.readline().strip()) != "ready":
                if not line and process.poll() is not None:
                    raise RuntimeError(f"HDFS did not start:\n{log.read_text()[-3000:]}")
                if line.startswith("namenode"):
                    ports.append(tuple(int(port) for port in line.split()[1:]))
            (first, first_rpc), (second, second_rpc) = ports
            user = os.environ.get("HADOOP_USER_NAME") or os.environ.get("USER") or "root"
            yield Hdfs((first, second), (first_rpc, second_rpc), user, process.stdin, process.stdout)
        finally:
            process.stdin.close()
            end(process)


def _class_path() -> str:
    pinned = (line.split() for line in _PINNED.read_text().splitlines())
    own = [str(fetch(coordinate, sha256)) for sha256, coordinate in pinned]
    spark = sorted((Path(pyspark.__file__).parent / "jars").glob("*.jar"))
    return os.pathsep.join([*own, *(str(jar) for jar in spark if jar.name.startswith(_FROM_SPARK))])

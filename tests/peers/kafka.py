"""A real Apache Kafka node in KRaft mode, from Maven jars, for tests that compare with it.

Found in this order: the directory in ``ONCEWARD_KAFKA_JARS``; a directory below the user's cache
that an earlier run filled; ``mvn``, which fills it. Without Java, or without any of these, tests
that need Kafka are skipped with the command that would enable them.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Self

KAFKA_VERSION = "4.1.0"
JARS_VARIABLE = "ONCEWARD_KAFKA_JARS"
START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 20.0
RESOLVE_TIMEOUT_S = 600.0
HEAP = "-Xmx512m"
CLUSTER_ID = "b25jZXdhcmQtdGVzdHMtMQ"

POM = f"""<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>onceward.tests</groupId>
  <artifactId>kafka-jars</artifactId>
  <version>1</version>
  <dependencies>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka_2.13</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
    <dependency>
      <groupId>org.apache.kafka</groupId>
      <artifactId>kafka-tools</artifactId>
      <version>{KAFKA_VERSION}</version>
    </dependency>
  </dependencies>
</project>
"""

PROPERTIES = """process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{broker}
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
num.partitions=1
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=100
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
auto.create.topics.enable=false
"""


class KafkaUnavailable(Exception):
    """Why there is no Kafka here, and the command that would change that."""


def find_java() -> str:
    """Raises KafkaUnavailable."""
    java = shutil.which("java")
    if java is None:
        raise KafkaUnavailable("no java on the PATH; for example: apt-get install openjdk-17-jre")
    return java


def find_jars() -> Path:
    """A directory with the jars of Kafka's server. Raises KafkaUnavailable."""
    named = os.environ.get(JARS_VARIABLE)
    if named:
        jars = Path(named)
        if not any(jars.glob("kafka_2.13-*.jar")):
            raise KafkaUnavailable(f"{JARS_VARIABLE}={named} holds no kafka_2.13-*.jar")
        return jars
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    jars = cache / "onceward" / f"kafka-{KAFKA_VERSION}"
    if not any(jars.glob("kafka_2.13-*.jar")):
        _resolve_jars(jars)
    return jars


def _resolve_jars(jars: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise KafkaUnavailable(
            f"no Kafka jars: install Maven (apt-get install maven), or "
            f"{JARS_VARIABLE}=/directory/of/jars python -m pytest -m peers"
        )
    with tempfile.TemporaryDirectory() as directory:
        pom = Path(directory) / "pom.xml"
        pom.write_text(POM)
        copied = Path(directory) / "jars"
        command = [
            *(maven, "-q", "-B", "-f", str(pom)),
            *("dependency:copy-dependencies", f"-DoutputDirectory={copied}"),
        ]
        result = subprocess.run(
            command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, check=False
        )
        if result.returncode:
            raise KafkaUnavailable(f"Maven could not resolve Kafka: {result.stdout[-500:]}")
        jars.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(jars, ignore_errors=True)
        shutil.move(copied, jars)


class JavaKafka:
    """One node, broker and controller in one process; use as a context manager."""

    def __init__(self) -> None:
        self._java = find_java()
        self._jars = find_jars()
        self._directory = tempfile.TemporaryDirectory(prefix="kafka-")
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path(self._directory.name) / "server.log"
        self._properties = Path(self._directory.name) / "server.properties"
        port, controller = free_ports(2)
        self.bootstrap = f"127.0.0.1:{port}"
        data = Path(self._directory.name) / "data"
        self._properties.write_text(
            PROPERTIES.format(broker=port, controller=controller, data=data)
        )

    def __enter__(self) -> Self:
        self._format()
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self._properties)),
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        self._wait_until_ready()
        return self

    def __exit__(self, *exc: object) -> None:
        process = self._process
        if process is not None:
            process.terminate()
            try:
                process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._directory.cleanup()

    def run_tool(self, main_class: str, *arguments: str, timeout: float = 60.0) -> str:
        """Run one of Kafka's command line classes; returns what it printed."""
        result = subprocess.run(
            self._command(main_class, *arguments),
            capture_output=True,
            text=True,
            timeout=timeout,
            check=True,
        )
        return result.stdout

    def _command(self, main_class: str, *arguments: str) -> list[str]:
        return [self._java, HEAP, "-cp", f"{self._jars}/*", main_class, *arguments]

    def _format(self) -> None:
        arguments = ("format", "-t", CLUSTER_ID, "-c", str(self._properties))
        self.run_tool("kafka.tools.StorageTool", *arguments)

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        deadline = time.monotonic() + START_TIMEOUT_S
        host, port = self.bootstrap.split(":")
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                break
            try:
                socket.create_connection((host, int(port)), timeout=1).close()
                return
            except OSError:
                time.sleep(0.1)
        tail = self._log.read_text(errors="replace")[-2000:]
        self.__exit__()
        raise RuntimeError(f"Kafka did not start: {tail}")


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()

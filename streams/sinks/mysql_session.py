"""A connection to MySQL or MariaDB on which nothing waits for ever, and what its errors mean.

Error numbers: the servers' ``mysqld_error.h``; below 1000 those of the system, from 2000 the
driver's.
"""

from __future__ import annotations

import math
import socket
import ssl
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from ..errors import ConfigurationError

try:
    import pymysql
    from pymysql.constants import CLIENT
except ImportError as error:
    raise ImportError(
        f"MySqlSink needs PyMySQL ({error}): pip install 'onceward[mysql]'"
    ) from error

DUPLICATE: Final = 1062
DUPLICATE_COLUMN: Final = 1060
LOCK_TIMEOUT: Final = 1205
NO_SUCH_SESSION: Final = 1094
NOT_YOUR_SESSION: Final = 1095
OUT_OF_RANGE: Final = 1690

CONNECT_TIMEOUT_S: Final = 5
_PACKET_MARGIN: Final = 64
_MODES: Final = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
_OPTIONS: Final = frozenset({"unix_socket", "ssl_mode", "ssl_ca", "ssl_cert", "ssl_key"})
_VARIABLES: Final = (
    "version", "max_allowed_packet", "innodb_flush_log_at_trx_commit", "log_bin", "binlog_format",
    "max_statement_time", "idle_transaction_timeout", "check_constraint_checks",
    "in_predicate_conversion_threshold",
)  # fmt: skip
_SQL_MODE: Final = (
    "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,"
    "NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO"
)
_IDLE_S: Final = 8 * 3600

TIMED_OUT: Final = frozenset({1969, 3024})
"""A statement took longer than it may."""
_PASSING: Final = TIMED_OUT | frozenset(
    {
        # disk, memory, files, connections
        3, 20, 1020, 1021, 1026, 1030, 1037, 1038, 1040, 1041, 1114, 1135, 1180, 1181, 1203, 1206,
        1226, 1637,
        # connections that end, servers that stop or start
        1042, 1053, 1077, 1079, 1152, 1154, 1155, 1156, 1157, 1158, 1159, 1160, 1161, 1184, 1317,
        1927, 3168, 3169, 4031,
        # locks, deadlocks, conflicts of a cluster, a table altered in between
        1205, 1213, 1412, 1614, 3058, 3101, 3572,
        # read only: the server is or becomes a replica
        1290, 1792, 1836,
        # the driver's: cannot connect, gone, lost, out of step
        2002, 2003, 2006, 2013, 2014, 2055,
    }
)  # fmt: skip
_OF_THE_ROW: Final = frozenset(
    {
        # null, unique keys, references, conditions, views' conditions, triggers that refuse
        1048, 1062, 1169, 1216, 1217, 1364, 1369, 1451, 1452, 1557, 1586, 1644, 1761, 1762, 3819,
        4025,
        # values
        1054, 1110, 1118, 1136, 1264, 1265, 1292, 1300, 1366, 1367, 1406, 1411, 1416, 1426, 1441,
        1467, 1525, 1526, 1690, 1906, 3105, 3140, 3141, 3144, 3156, 3157, 3158, 4038, 4078,
        # a packet that the server finds too large after all
        1153,
    }
)  # fmt: skip


if TYPE_CHECKING:
    _Connection = pymysql.connections.Connection[Any]
else:
    _Connection = pymysql.connections.Connection


class Session(_Connection):
    """A connection that another thread may cut.

    ``token`` names it on the server, see ``Address.connect``. ``max_statement`` in bytes.
    """

    token = ""
    max_statement = 0
    is_mariadb = False
    is_durable = True

    def __init__(self, **options: Any) -> None:
        self._closing = threading.Lock()
        super().__init__(**options)

    def close(self) -> None:
        with self._closing:
            super().close()

    def cut(self) -> None:
        """Whatever waits for the server fails at once. From any thread; does not wait."""
        with self._closing:
            sock: socket.socket | None = self._sock  # type: ignore[attr-defined]
            if sock is None or sock.fileno() < 0:
                return
            with socket.socket(fileno=socket.dup(sock.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)

    def run(self, statement: str, parameters: Any = None) -> Any:
        """The cursor."""
        cursor = self.cursor()
        cursor.execute(statement, parameters or None)
        return cursor


class Address:
    """Where ``mysql://user:password@host:3306/database`` leads.

    Options: ``unix_socket`` (a path), ``ssl_mode`` (as of the ``mysql`` client), ``ssl_ca``,
    ``ssl_cert``, ``ssl_key`` (paths). Raises ConfigurationError without showing a password.
    """

    def __init__(self, dsn: str, sink: str) -> None:
        self._sink = sink
        try:
            parts = urlsplit(dsn)
            port = parts.port
            query = parse_qsl(parts.query, strict_parsing=bool(parts.query))
        except ValueError:
            raise self._wrong("this is no address of MySQL") from None
        options = dict(query)
        scheme, _, driver = parts.scheme.partition("+")
        if scheme not in ("mysql", "mariadb") or driver not in ("", "pymysql") or parts.fragment:
            raise self._wrong("this is no address of MySQL")
        unknown = sorted(options.keys() - _OPTIONS)
        if unknown:
            known = ", ".join(sorted(_OPTIONS))
            raise self._wrong(f"an address of MySQL has no option {unknown[0]!r} but {known}")
        self._database = unquote(parts.path.removeprefix("/"))
        if not self._database:
            raise self._wrong("the address names no database")
        self._user = unquote(parts.username or "")
        self._password = unquote(parts.password or "")
        self._host = parts.hostname or "localhost"
        self._port = port or 3306
        self._socket = options.get("unix_socket")
        self._ssl = {name: options[name] for name in options if name.startswith("ssl_")}
        usual = "verify_ca" if "ssl_ca" in options else "disabled" if self._socket else "preferred"
        self._mode = self._ssl.get("ssl_mode", usual).lower()
        if self._mode not in _MODES:
            raise self._wrong(f"ssl_mode is one of {', '.join(_MODES)}")

    def _wrong(self, what: str) -> ConfigurationError:
        return ConfigurationError(
            f"sink {self._sink!r}: {what} (it is not shown as it may hold a password); one looks "
            "like mysql://user:password@host:3306/database, with special characters as %40"
        )

    def __str__(self) -> str:
        """The address without password."""
        user = f"{self._user}@" if self._user else ""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"mysql://{user}{self._socket or f'{host}:{self._port}'}/{self._database}"

    def scrub(self, text: str) -> str:
        """``text`` in one line, without the password."""
        if self._password:
            text = text.replace(self._password, "***")
        return " ".join(text.split())

    def connect(self, timeout: float, lock_timeout: float) -> Session:
        """``timeout`` of a statement and of a transaction left alone, in seconds.

        The session holds a lock under a name of its own, its ``token``: so others find out whether
        it is still there, and which number it has.
        """
        session = Session(
            user=self._user or None,
            password=self._password.encode(),
            host=self._host,
            port=self._port,
            unix_socket=self._socket,
            database=self._database,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=CONNECT_TIMEOUT_S,
            # the caller gives up after ``timeout``: these are for a network that says nothing
            read_timeout=2 * timeout,
            write_timeout=2 * timeout,
            client_flag=CLIENT.FOUND_ROWS,  # an UPDATE that changes nothing still finds its row
            program_name=f"onceward {self._sink}"[:64],
            **self._tls(),
        )
        try:
            self._set_up(session, timeout, lock_timeout)
        except BaseException:
            session.close()
            raise
        return session

    def _tls(self) -> dict[str, Any]:
        if self._mode == "disabled":
            return {"ssl_disabled": True}
        if self._mode == "preferred":
            return {}
        context = ssl.create_default_context(cafile=self._ssl.get("ssl_ca"))
        context.check_hostname = self._mode == "verify_identity"
        verifies = self._mode in ("verify_ca", "verify_identity")
        context.verify_mode = ssl.CERT_REQUIRED if verifies else ssl.CERT_NONE
        # certificates that servers of MySQL make for themselves are not strictly right
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if certificate := self._ssl.get("ssl_cert"):
            context.load_cert_chain(certificate, self._ssl.get("ssl_key"))
        return {"ssl": context}

    def _set_up(self, session: Session, timeout: float, lock_timeout: float) -> None:
        marks = ", ".join(["%s"] * len(_VARIABLES))
        found = session.run(
            f"SHOW VARIABLES WHERE Variable_name IN ({marks})", list(_VARIABLES)
        ).fetchall()
        variables: Mapping[str, str] = {row[0].lower(): row[1] for row in found}
        session.is_mariadb = "mariadb" in variables.get("version", "").lower()
        session.max_statement = int(variables["max_allowed_packet"]) - _PACKET_MARGIN
        session.is_durable = variables.get("innodb_flush_log_at_trx_commit", "1") == "1"
        locks = max(1, math.ceil(lock_timeout))
        settings: dict[str, object] = {
            "sql_mode": f"'{_SQL_MODE}'",
            "time_zone": "'+00:00'",
            "default_storage_engine": "InnoDB",
            "innodb_lock_wait_timeout": locks,
            "lock_wait_timeout": locks,
            "foreign_key_checks": 1,
            "unique_checks": 1,
            "completion_type": 0,
            "sql_safe_updates": 0,
            "wait_timeout": _IDLE_S,
        }
        for_mariadb = {
            "max_statement_time": timeout,
            "idle_transaction_timeout": max(1, math.ceil(timeout)),
            "check_constraint_checks": 1,
            "in_predicate_conversion_threshold": 0,
        }
        settings |= {name: value for name, value in for_mariadb.items() if name in variables}
        session.run("SET " + ", ".join(f"{name} = {value}" for name, value in settings.items()))
        # without gap locks workers wait less for each other; what is compared is the row itself
        by_statement = (variables.get("log_bin"), variables.get("binlog_format"))
        level = "REPEATABLE READ" if by_statement == ("ON", "STATEMENT") else "READ COMMITTED"
        session.run(f"SET SESSION TRANSACTION ISOLATION LEVEL {level}")
        session.token = session.run("SELECT CONCAT('onceward ', UUID())").fetchone()[0]
        session.run("SELECT GET_LOCK(%s, 0)", [session.token])


def code_of(error: Exception) -> int | None:
    """The error's number; 0 where a connection was closed before."""
    if not isinstance(error, pymysql.Error):
        return None
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def is_passing(error: Exception) -> bool:
    """Whether the server may take the same thing a little later; or nobody knows what it did."""
    if isinstance(getattr(error, "original_exception", None), ssl.SSLError):
        return False
    code = code_of(error)
    return code in _PASSING or (code == 0 and isinstance(error, pymysql.InterfaceError))


def is_of_the_row(error: Exception) -> bool:
    """Whether another row might be taken."""
    code = code_of(error)
    return code is None or code in _OF_THE_ROW


def reason(error: Exception) -> str:
    """An error in one sentence."""
    if isinstance(error, RuntimeError) and "cryptography" in str(error):
        return f"{error}; or use TLS, with ?ssl_mode=required"
    code = code_of(error)
    if code is None:
        text = f"{type(error).__name__}: {error}"
    elif len(error.args) > 1 and error.args[1]:
        text = f"{type(error).__name__} {code}: {error.args[1]}"
    else:
        text = f"{type(error).__name__}: {error.args[0] if code else 'the connection is closed'}"
    return text if len(text) <= 1000 else text[:1000] + "..."

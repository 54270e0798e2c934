"""A connection to PostgreSQL on which nothing waits for ever, and what the server's errors mean."""

from __future__ import annotations

import re
import socket
import threading
from typing import Any, Final

from ..errors import ConfigurationError

try:
    import psycopg
    from psycopg import ClientCursor as ClientCursor
    from psycopg import conninfo
    from psycopg.errors import InsufficientPrivilege as InsufficientPrivilege
except ImportError as error:
    raise ImportError(
        f"PostgresSink needs psycopg 3 ({error}): pip install 'onceward[postgres]'"
    ) from error

CONNECT_TIMEOUT_S: Final = 5
_KEEPALIVE: Final = {
    "connect_timeout": CONNECT_TIMEOUT_S,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 3,
    "keepalives_count": 3,
}
_SETTINGS: Final = """
    SELECT set_config('statement_timeout', %s, false),
           set_config('lock_timeout', %s, false),
           set_config('idle_in_transaction_session_timeout', %s, false),
           set_config('TimeZone', 'UTC', false),
           set_config('synchronous_commit', coalesce(
               nullif(current_setting('synchronous_commit'), 'off'), 'on'), false)"""
"""A commit that a server crash could undo would be missing below Kafka's offsets: never ``off``."""

_REFUSED_FOR_GOOD: Final = re.compile(
    r'authentication failed|(role|database|service|definition of service) ".*" (does not exist'
    r"|not found)|no pg_hba.conf entry|pg_hba.conf rejects|permission denied for database"
    r"|is not permitted to log in|SSL was required|certificate|no password supplied"
    r"|invalid .*(value|number)"
)
"""libpq gives no SQLSTATE for a connection that fails."""

_PASSING: Final = re.compile(r"08|25P03|25006|40|53|55P03|55006|57P0[1235]|57014|57000|58|XX000")
"""Connection, idle timeout, standby, serialization and deadlock, resources (disk full, too many
connections), locks, shutdown and start, timeout, the system's errors, internal ones."""
_OF_THE_ROW: Final = re.compile(r"2[1237]|44|54|42703|42804|P0001")
"""Cardinality (two keys of a batch are one to the table), data, constraints, views' conditions,
limits (a row too big), columns gone since we looked, triggers that refuse."""


class Session(psycopg.Connection[tuple[Any, ...]]):
    """A connection that another thread may cut."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._closing = threading.Lock()

    def close(self) -> None:
        with self._closing:
            super().close()

    def cut(self) -> None:
        """Whatever waits for the server fails at once. From any thread; does not wait."""
        with self._closing:
            if self.closed:
                return
            with socket.socket(fileno=socket.dup(self.fileno())) as line:
                line.shutdown(socket.SHUT_RDWR)


class Address:
    """Where a connection string leads; raises ConfigurationError when it cannot be parsed.

    Its own parser's errors quote parts of it, and with them perhaps the password: not shown.
    """

    def __init__(self, dsn: str, sink: str) -> None:
        try:
            self._options = conninfo.conninfo_to_dict(dsn)
        except psycopg.Error:
            raise ConfigurationError(
                f"sink {sink!r}: this is no connection string of PostgreSQL (it is not shown as it "
                "may hold a password); one looks like postgresql://user:password@host:5432/database"
            ) from None
        self._sink = sink

    def __str__(self) -> str:
        """The address without password."""
        get = self._options.get
        user = f"{get('user')}@" if get("user") else ""
        host = get("host") or get("hostaddr") or ""
        port = f":{get('port')}" if get("port") else ""
        return f"postgresql://{user}{host}{port}/{get('dbname') or ''}"

    def scrub(self, text: str) -> str:
        """``text`` in one line, without the password."""
        password = self._options.get("password")
        if password:
            text = text.replace(str(password), "***")
        return " ".join(text.split())

    def connect(self, timeout: float, lock_timeout: float) -> Session:
        """``timeout`` of a statement, of a transaction left alone and of an unanswered network, in
        seconds."""
        defaults: dict[str, Any] = {
            **_KEEPALIVE,
            "tcp_user_timeout": int(timeout * 1000),
            "application_name": f"onceward {self._sink}"[:63],
            "client_encoding": "UTF8",
        }
        session = Session.connect(
            "", autocommit=True, prepare_threshold=None, **{**defaults, **self._options}
        )
        try:
            session.execute(_SETTINGS, (_ms(timeout), _ms(lock_timeout), _ms(timeout)))
        except BaseException:
            session.close()
            raise
        return session


def _ms(seconds: float) -> str:
    return str(max(1, int(seconds * 1000)))


def is_passing(error: Exception) -> bool:
    """Whether the server may take the same thing a little later; or nobody knows what it did."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError | psycopg.Error):
        return False
    state = error.sqlstate
    if state is None:
        is_lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError)
        return is_lost and not _REFUSED_FOR_GOOD.search(str(error))
    if state == "XX000" and "memory alloc request size" in str(error):
        return False
    if error.diag.table_name == "onceward_positions":
        return True  # another worker took over a partition that was never here, in this moment
    return bool(_PASSING.match(state))


def is_of_the_row(error: Exception) -> bool:
    """Whether another row might be taken."""
    if not isinstance(error, psycopg.Error):
        return True
    state = error.sqlstate
    if state is None:
        return isinstance(error, psycopg.DataError | psycopg.ProgrammingError)
    if state == "XX000":
        return "memory alloc request size" in str(error)
    if state == "42501":  # a policy's condition has the code of a missing privilege
        return error.diag.source_function == "ExecWithCheckOptions"
    return bool(_OF_THE_ROW.match(state))


def reason(error: Exception) -> str:
    """An error in one sentence that names the column, if the server does."""
    if not isinstance(error, psycopg.Error) or error.diag.message_primary is None:
        text = str(error)
        refusal = re.search(r"FATAL: +(.*)", text)
        return f"{type(error).__name__}: {text if refusal is None else refusal[1]}"
    diag = error.diag
    text = f"{type(error).__name__}: {diag.message_primary}"
    if diag.message_detail:
        text += f" ({diag.message_detail.rstrip('.')})"
    column = diag.column_name
    if column is None and diag.context:
        # COPY says where it was: 'COPY rows, line 1, column x: "two"'
        found = re.search(r"^COPY .*, column (.*?)(: |$)", diag.context, re.MULTILINE)
        column = None if found is None else found[1]
    if column is not None and f'"{column}"' not in text:
        text += f' in column "{column}"'
    return text if len(text) <= 1000 else text[:1000] + "..."

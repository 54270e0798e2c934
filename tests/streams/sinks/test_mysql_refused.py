"""What MySQL does not take: rows, whole tables, passwords. One sentence each, nothing lost."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from onceward.streams import ConfigurationError
from onceward.streams.sinks import MySqlSink, SinkError, SinkUnavailable
from onceward.streams.sinks.errors import SinkTimeout

from .driven import Driven, driven
from .mysql_server import Database, MySqlServer

TABLE = """
    CREATE TABLE parent (x int PRIMARY KEY);
    CREATE TABLE t (
        x int UNIQUE, y text, z varchar(3), n decimal(4,2), at datetime, ts timestamp NULL,
        doc json, took time, raw varbinary(3), must int NOT NULL DEFAULT 0, small smallint,
        positive int unsigned, plus int CHECK (plus > 0), colour enum('red', 'green'), day date,
        latin varchar(9) CHARACTER SET latin1, refused boolean, dbl double, ref int,
        FOREIGN KEY (ref) REFERENCES parent (x)
    );
    CREATE TRIGGER refuse BEFORE INSERT ON t FOR EACH ROW
        IF NEW.refused THEN SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF
"""
BAD: dict[str, tuple[dict[str, Any], str]] = {
    "a column the table has not": ({"x": 2, "no": 1}, "the table has no column 'no'"),
    "a key that is there": ({"x": 1}, "IntegrityError 1062: Duplicate entry '1' for key '.*x'"),
    "a type": ({"x": "two"}, "ValueError: 'two' is no whole number in column 'x', .* int"),
    "a number too big": ({"x": 2**31}, "DataError 1264: Out of range value for column 'x'"),
    "a number far too big": ({"x": 2**400}, "DataError 1264: Out of range value for column 'x'"),
    "a fraction": ({"x": 1.5}, "ValueError: 1.5 is no whole number it takes in column 'x'"),
    "a fraction as text": ({"x": "1.5"}, r"ValueError: '1\.5' is no whole number in column 'x'"),
    "a small number too big": ({"x": 2, "small": 40000}, "DataError 1264: .*column 'small'"),
    "a negative number": ({"x": 2, "positive": -1}, "DataError 1264: .*column 'positive'"),
    "digits": ({"x": 2, "n": Decimal("100.5")}, "DataError 1264: Out of range .*column 'n'"),
    "a text for a number": ({"x": 2, "n": "ten"}, "ValueError: 'ten' is no number in column 'n'"),
    "no number": ({"x": 2, "n": Decimal("NaN")}, "ValueError: NaN is no number it .*column 'n'"),
    "an infinite number": ({"x": 2, "dbl": float("inf")}, "ValueError: inf is no .*column 'dbl'"),
    "text that is none": ({"x": 2, "y": "\ud800"}, "UnicodeEncodeError: .*surrogates"),
    "text too long": ({"x": 2, "z": "long"}, "DataError 1406: Data too long for column 'z'"),
    "text much too long": ({"x": 2, "y": "a" * 65_536}, "DataError 1406: Data too long .*'y'"),
    "text of another charset": ({"x": 2, "latin": "日本"}, ".* 1366: Incorrect .*\\blatin\\b"),
    "bytes too long": ({"x": 2, "raw": b"long"}, "DataError 1406: Data too long for column 'raw'"),
    "a document that is none": ({"x": 2, "doc": "{"}, ".* (4025|3140): .*doc"),
    "bytes for a text": ({"x": 2, "z": b"1"}, "TypeError: bytes does not fit column 'z'"),
    "bytes for a number": ({"x": 2, "small": b"1"}, "TypeError: bytes does not fit column 'small'"),
    "a number for a time": ({"x": 2, "at": 20260102}, "TypeError: int does not fit column 'at'"),
    "a number for a day": ({"x": 2, "day": 20260102}, "TypeError: int does not fit column 'day'"),
    "a time that is none": ({"x": 2, "at": "noon"}, ".* 1292: Incorrect datetime .*\\bat\\b"),
    "a day that is none": ({"x": 2, "day": "2026-02-30"}, ".* 1292: Incorrect date .*\\bday\\b"),
    "a day of zeros": ({"x": 2, "day": "0000-00-00"}, ".* 1292: Incorrect date .*\\bday\\b"),
    "a time out of range": (
        {"x": 2, "ts": datetime(3000, 1, 1, tzinfo=UTC)}, ".* 1292: Incorrect datetime .*\\bts\\b",
    ),
    "a time too long": ({"x": 2, "took": timedelta(days=40)}, ".* 1292: Incorrect time .*took"),
    "no member": ({"x": 2, "colour": "blue"}, ".* 1265: Data truncated for column 'colour'"),
    "a member's number": ({"x": 2, "colour": 1}, "TypeError: int does not fit column 'colour'"),
    "nothing where something must be": ({"x": 2, "must": None}, ".* 1048: Column 'must' cannot"),
    "a condition": ({"x": 2, "plus": -1}, r".* (4025|3819): .*(plus|t_chk)"),
    "a trigger": ({"x": 2, "refused": True}, "OperationalError 1644: not this one"),
    "a reference": ({"x": 2, "ref": 99}, "IntegrityError 1452: Cannot add or update a child row"),
}  # fmt: skip


@asynccontextmanager
async def sink(mysql: Database, **options: Any) -> AsyncIterator[Driven[MySqlSink]]:
    made = MySqlSink(mysql.dsn(), **{"table": "t", **options})
    try:
        yield await driven(made)
    finally:
        await made.close()


def good(*numbers: int) -> list[dict[str, Any]]:
    at = datetime(2026, 1, 2, tzinfo=UTC)
    return [{"x": x, "y": f"row {x}", "at": at, "n": Decimal(1)} for x in numbers]


@pytest.mark.parametrize("mode", ["insert", "upsert"])
@pytest.mark.parametrize(("row", "reason"), BAD.values(), ids=BAD.keys())
async def test_a_row_the_database_refuses_is_named_and_nothing_lands_or_all_others(
    mysql: Database, row: dict[str, Any], reason: str, mode: str
) -> None:
    if mode == "upsert" and row == {"x": 1}:
        return  # that is what it is for
    mysql.query(TABLE)
    rows = good(*range(10, 40))
    async with sink(mysql, mode=mode, key="x") as one:
        await one.write({"x": 1})
        message = rf"sink 't' \(table t of .*\) refuses .* orders-0 at offset 14: {reason}"
        with pytest.raises(SinkError, match=message) as caught:
            await one.write(*rows[:13], row, *rows[13:])
        assert "\n" not in str(caught.value)
        assert mysql.query("SELECT x FROM t") == [(1,)]
        assert mysql.query("SELECT next_offset FROM onceward_positions") == [(1,)]

        batch = await one.write(*rows[:11], row, *rows[11:], row, dead_letters=True)
        assert [refusal.at for refusal in batch.refused] == [11, 31]
        assert mysql.query("SELECT x FROM t ORDER BY x") == [
            (1,),
            *[(x,) for x in range(10, 40)],
        ]
        assert mysql.query("SELECT `offset` FROM onceward_refused") == [(12,), (32,)]
        await one.take_over()
        assert sorted(id_.offset for id_ in one.claim.refused) == [12, 32]


async def test_a_table_or_column_that_goes_while_it_is_used_is_named(mysql: Database) -> None:
    mysql.query("CREATE TABLE t (x int, y int)")
    async with sink(mysql) as one:
        await one.write({"x": 1, "y": 1})
        mysql.query("ALTER TABLE t DROP COLUMN y")
        batch = await one.write({"x": 2, "y": 2}, {"x": 3}, dead_letters=True)
        assert batch.refused == [(0, "the table has no column 'y'")]
        mysql.query("ALTER TABLE t ADD COLUMN y text")
        await one.write({"x": 4, "y": "was a number"})
        assert mysql.query("SELECT * FROM t") == [(1, None), (3, None), (4, "was a number")]
        mysql.query("DROP TABLE t")
        with pytest.raises(SinkError, match=r"sink 't' \(.*\): ProgrammingError 1146: Table .*t'"):
            await one.write({"x": 5})


async def test_a_unique_index_made_while_the_table_is_used_is_minded(mysql: Database) -> None:
    mysql.query("CREATE TABLE t (k int PRIMARY KEY, mail varchar(9), n int)")
    async with sink(mysql, key="k") as one:
        await one.write({"k": 1, "mail": "a", "n": 1})
        mysql.query("CREATE UNIQUE INDEX mails ON t (mail)")
        batch = await one.write({"k": 2, "mail": "a", "n": 2}, dead_letters=True)
        assert len(batch.refused) == 1
    assert mysql.query("SELECT * FROM t") == [(1, "a", 1)]


async def test_privileges_are_said_to_be_missing(mysql: Database) -> None:
    user = f"reader_{mysql.name}"
    mysql.query(f"CREATE USER {user}@localhost")
    mysql.query("CREATE TABLE t (x int)")
    mysql.query(f"GRANT SELECT ON {mysql.name}.* TO {user}@localhost")
    one = MySqlSink(mysql.dsn(user=user), table="t")
    with pytest.raises(SinkError, match="OperationalError 1142: CREATE command denied"):
        await one.start()
    await one.close()
    async with sink(mysql):
        pass
    for name in ("positions", "refused", "sessions"):
        mysql.query(f"GRANT ALL ON {mysql.name}.onceward_{name} TO {user}@localhost")
    two = await driven(MySqlSink(mysql.dsn(user=user), table="t"))
    with pytest.raises(SinkError, match="OperationalError 1142: INSERT command denied"):
        await two.write({"x": 1})
    await two.sink.close()


# who is let in

PASSWORD = "s3cr%41t"


@pytest.mark.parametrize(
    ("user", "database", "code"),
    [
        ("locked", "{}", 1045),
        (f"locked:{PASSWORD}", "{}", 1045),
        (f"nobody_here:{PASSWORD}", "{}", 1045),
        ("locked:another", "mysql", 1044),
        ("root", "nowhere", 1049),
    ],
)
async def test_who_is_not_let_in_is_told_why_and_no_password(
    mysql: Database, user: str, database: str, code: int
) -> None:
    mysql.query("CREATE USER IF NOT EXISTS locked@localhost IDENTIFIED BY 'another'")
    sink = MySqlSink(mysql.dsn(user=user, database=database.format(mysql.name)), table="t")
    with pytest.raises(
        SinkError, match=rf"sink 't' \(table t of mysql://.*\): OperationalError {code}: "
    ) as caught:
        await sink.start()
    await sink.close()
    assert "s3cr" not in str(caught.value)
    assert "\n" not in str(caught.value)


async def test_a_password_of_any_characters_is_given_as_it_is(mysql: Database) -> None:
    mysql.query("CREATE USER ünï@localhost IDENTIFIED BY 'p@/:ß%s'")
    mysql.query(f"GRANT ALL ON {mysql.name}.* TO ünï@localhost")
    mysql.query("CREATE TABLE t (x int)")
    sink = MySqlSink(mysql.dsn(user="%C3%BCn%C3%AF:p%40%2F%3A%C3%9F%25s"), table="t")
    await sink.start()
    await sink.close()


@pytest.mark.parametrize(
    ("dsn", "message"),
    [
        (f"postgres://me:{PASSWORD}@host/db", "this is no address of MySQL"),
        (f"me:{PASSWORD}@host", "this is no address of MySQL"),
        (f"mysql://me:{PASSWORD}@host:port/db", "this is no address of MySQL"),
        (f"mysql://me:{PASSWORD}#x@host/db", "this is no address of MySQL"),
        (f"mysql://me:{PASSWORD}@host/", "the address names no database"),
        (f"mysql://host/db?passwort={PASSWORD}", "has no option 'passwort' but ssl_ca, ssl_cert"),
        (f"mysql://me:{PASSWORD}@host/db?ssl_mode=on", "ssl_mode is one of disabled, preferred"),
    ],
)
def test_an_address_that_is_none_is_not_shown(dsn: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message) as caught:
        MySqlSink(dsn, table="t")
    assert "s3cr" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("dsn", "shown"),
    [
        (f"mysql://me:{PASSWORD}@host:3307/db?ssl_mode=required", "mysql://me@host:3307/db"),
        (f"mariadb://me:{PASSWORD}@[::1]/db", "mysql://me@[::1]:3306/db"),
        (f"mysql+pymysql://a:{PASSWORD}@/db?unix_socket=/run/x.sock", "mysql://a@/run/x.sock/db"),
        ("mysql://host/d%2Fb", "mysql://host:3306/d/b"),
    ],
)
def test_a_sink_describes_where_it_leads_without_the_password(dsn: str, shown: str) -> None:
    sink = MySqlSink(dsn, table="t")
    assert sink.describe() == f"sink 't' (table t of {shown})"
    assert "s3cr" not in repr(sink)


async def test_where_nothing_listens_is_unavailable(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    sink = MySqlSink(f"mysql://me:{PASSWORD}@127.0.0.1:1/db", table="t")
    with pytest.raises(
        SinkUnavailable, match=r"sink 't' .*OperationalError 2003: .*refused"
    ) as caught:
        await sink.start()
    await sink.close()
    assert "s3cr" not in str(caught.value) + caplog.text


# TLS


@pytest.fixture(scope="module")
def certificates() -> Iterator[Path]:
    with TemporaryDirectory(prefix="onceward-my-") as folder:
        Path(folder).chmod(0o755)  # the server may be another user
        make_certificates(Path(folder))
        yield Path(folder)


def make_certificates(folder: Path) -> None:
    """Of the authority, and of a server called ``localhost``."""
    x509 = pytest.importorskip("cryptography.x509")
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    pem, begin = serialization.Encoding.PEM, datetime(2020, 1, 1, tzinfo=UTC)
    keys = {name: ec.generate_private_key(ec.SECP256R1()) for name in ("ca", "server", "other")}
    names = {name: x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]) for name in keys}
    for name, issuer in (("ca", "ca"), ("server", "ca"), ("other", "other")):
        builder = x509.CertificateBuilder(names[issuer], names[name], keys[name].public_key())
        builder = builder.serial_number(x509.random_serial_number()).not_valid_before(begin)
        builder = builder.not_valid_after(datetime(2100, 1, 1, tzinfo=UTC))
        builder = builder.add_extension(x509.BasicConstraints(name != "server", None), True)
        alternatives = x509.SubjectAlternativeName([x509.DNSName("localhost")])
        made = builder.add_extension(alternatives, False).sign(keys[issuer], hashes.SHA256())
        (folder / f"{name}.pem").write_bytes(made.public_bytes(pem))
    key = keys["server"].private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "key.pem").write_bytes(key)


async def test_connections_are_encrypted_and_servers_known_as_asked(certificates: Path) -> None:
    server = MySqlServer(
        {"ssl-cert": str(certificates / "server.pem"), "ssl-key": str(certificates / "key.pem")}
    )
    try:
        server.start()
        database = Database(server, "tls")
        database.query("CREATE TABLE t (x int)")
        database.query("CREATE USER 'me'@'%' IDENTIFIED BY 'pass'")
        database.query("GRANT ALL ON tls.* TO 'me'@'%'")
        database.close()
        authority, other = certificates / "ca.pem", certificates / "other.pem"
        for host, options, is_encrypted in [
            ("127.0.0.1", "", True),
            ("127.0.0.1", "ssl_mode=disabled", False),
            ("127.0.0.1", "ssl_mode=required", True),
            ("127.0.0.1", f"ssl_ca={authority}", True),
            ("localhost", f"ssl_ca={authority}&ssl_mode=verify_identity", True),
        ]:
            made = MySqlSink(f"mysql://me:pass@{host}:{server.port}/tls?{options}", table="t")
            await made.start()
            (_, cipher) = made.execute("SHOW STATUS LIKE 'Ssl_cipher'").fetchone()
            assert bool(cipher) is is_encrypted, options
            await made.close()
        for host, options in [
            ("127.0.0.1", f"ssl_ca={other}"),
            ("127.0.0.1", f"ssl_ca={authority}&ssl_mode=verify_identity"),
        ]:
            made = MySqlSink(f"mysql://me:pass@{host}:{server.port}/tls?{options}", table="t")
            with pytest.raises(SinkError, match=r"sink 't' .* 2003: .*certificate verify failed"):
                await made.start()
            await made.close()
    finally:
        server.remove()


async def test_a_server_without_tls_is_refused_where_it_is_required(mysql: Database) -> None:
    if not mysql.server.is_mariadb:
        pytest.skip("MySQL makes certificates for itself")
    made = MySqlSink(f"{mysql.dsn()}&ssl_mode=required", table="t")
    with pytest.raises(SinkError, match=r"sink 't' .* 2026: SSL is required"):
        await made.start()
    await made.close()
    missing = MySqlSink(f"{mysql.dsn()}&ssl_ca=/no/such/file", table="t")
    with pytest.raises(SinkError, match=r"sink 't' .*: FileNotFoundError"):
        await missing.start()
    await missing.close()


# what the server raises for a while

PASSING = {
    "disk full": 1021,
    "table full": 1114,
    "an engine's error": 1030,
    "out of memory": 1037,
    "deadlock": 1213,
    "a lock": 1205,
    "shutdown": 1053,
    "read only": 1290,
    "read only transactions": 1792,
    "a changed record": 1020,
    "lock table full": 1206,
}


@pytest.mark.parametrize("code", PASSING.values(), ids=PASSING.keys())
async def test_what_passes_is_tried_again_and_dead_letters_nothing(
    mysql: Database, code: int
) -> None:
    mysql.query("CREATE TABLE t (x int)")
    mysql.query("CREATE TABLE trouble (n int)")
    mysql.query("INSERT INTO trouble VALUES (1)")
    mysql.query(
        f"""
        CREATE TRIGGER trouble BEFORE INSERT ON t FOR EACH ROW
        IF NEW.x > 4 AND EXISTS (SELECT 1 FROM trouble) THEN
            SIGNAL SQLSTATE 'HY000' SET MESSAGE_TEXT = 'for now', MYSQL_ERRNO = {code}; END IF"""
    )
    rows = [{"x": x} for x in range(10)]
    async with sink(mysql) as one:
        with pytest.raises(SinkUnavailable, match=rf"sink 't' \(table t of .*\): .* {code}: for n"):
            await one.write(*rows, dead_letters=True)
        assert mysql.query("SELECT count(*) FROM t") == [(0,)]
        mysql.query("DELETE FROM trouble")
        await one.write(*rows, dead_letters=True)
    assert mysql.query("SELECT count(*) FROM t") == [(10,)]


@pytest.fixture
def read_only(mysql: Database) -> Iterator[Database]:
    yield mysql
    mysql.query("SET GLOBAL read_only = 0")


async def test_a_server_that_is_read_only_for_a_while_is_unavailable(read_only: Database) -> None:
    mysql, user = read_only, f"writer_{read_only.name}"
    mysql.query("CREATE TABLE t (x int)")
    mysql.query(f"CREATE USER {user}@localhost")
    mysql.query(f"GRANT ALL ON {mysql.name}.* TO {user}@localhost")
    one = await driven(MySqlSink(mysql.dsn(user=user), table="t"))
    await one.write({"x": 1})
    mysql.query("SET GLOBAL read_only = 1")
    with pytest.raises(SinkUnavailable, match=r"OperationalError (1290|1792): .*read.only"):
        await one.write({"x": 2}, dead_letters=True)
    mysql.query("SET GLOBAL read_only = 0")
    await one.write({"x": 2}, dead_letters=True)
    await one.sink.close()
    assert mysql.query("SELECT x FROM t") == [(1,), (2,)]


async def test_a_statement_that_takes_too_long_is_ended_by_the_server(mysql: Database) -> None:
    if not mysql.server.is_mariadb:
        pytest.skip("MySQL ends only statements that read")
    mysql.query("CREATE TABLE t (x int)")
    mysql.query("CREATE TRIGGER slow BEFORE INSERT ON t FOR EACH ROW SET NEW.x = SLEEP(3)")
    async with sink(mysql, timeout=0.3) as one:
        one.sink.timeout = 5
        with pytest.raises(SinkTimeout, match=r"OperationalError 1969: .*max_statement_time"):
            await one.write({"x": 1})
    assert mysql.query("SELECT x FROM t") == []


async def test_a_locked_table_is_unavailable(mysql: Database) -> None:
    mysql.query("CREATE TABLE t (x int)")
    async with sink(mysql, lock_timeout=0.1) as one:
        other = mysql.connect()
        other.cursor().execute("LOCK TABLES t WRITE")
        with pytest.raises(SinkUnavailable, match="OperationalError 1205: Lock wait timeout"):
            await one.write({"x": 1})
        other.close()
        await one.write({"x": 1})
    assert mysql.query("SELECT x FROM t") == [(1,)]


async def test_a_full_disk_is_unavailable_and_loses_nothing() -> None:
    server = MySqlServer(largest_file=40 * 1024 * 1024)
    try:
        server.start()
        full = Database(server, "full")
        full.query("CREATE TABLE t (x int PRIMARY KEY, y longtext)")
        async with sink(full) as one:
            await one.write({"x": 0})
            rows = [{"x": x, "y": "a" * 100_000} for x in range(1, 500)]
            with pytest.raises(SinkUnavailable, match=r"sink 't' .*OperationalError 1114: .*full"):
                await one.write(*rows, dead_letters=True)
            await one.write({"x": 1}, dead_letters=True)
        assert full.query("SELECT x FROM t") == [(0,), (1,)]
        full.close()
    finally:
        server.remove()

"""Tables: changelogged dictionaries, one partition per task, committed with what reads and writes
them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from .engine.context import CURRENT
from .engine.feed import Slot
from .engine.kernel import TableAccess
from .errors import ConfigurationError, OutsideAgentError
from .options import missing
from .serde import codec_for, encode_raw
from .state import ABSENT, StoreTransaction

if TYPE_CHECKING:
    from .app import App

_REBUILT: Final = (set, frozenset, tuple, bytes)
"""Types that JSON alone would give back as something else: taken from ``default`` when
undeclared."""


class Table(TableAccess):
    """A dictionary partitioned like the topics of the agents that use it; made by ``app.Table``.

    Inside an agent it is the partition of the current event, own writes included, and an agent's
    writes take effect exactly with its record. Reading gives a copy and writing stores a snapshot:
    after changing a list or dict in place, assign it again. Outside of agents only reading works:
    over the committed state of the partitions this worker owns.
    """

    def __init__(
        self,
        app: App,
        name: str,
        *,
        default: Callable[[], Any] | None = None,
        key_type: Any = None,
        value_type: Any = None,
        partitions: int | None = None,
        key_serializer: Any = None,
        value_serializer: Any = None,
        help: str = "",
    ) -> None:
        if default is not None and not callable(default):
            raise ConfigurationError(f"table {name!r}: default must be callable, e.g. default=int")
        self.app = app
        self.name = name
        self.default = default
        self.partitions = partitions
        self.help = help
        self.changelog_name = f"{app.conf.id}-{name}-changelog"
        if value_type is None and isinstance(default, type) and default in _REBUILT:
            value_type = default
        if key_serializer is None:
            key_serializer = "raw" if key_type in (str, bytes) else "json"
        key = codec_for(key_serializer, key_type, topic=self.changelog_name, is_key=True)
        value = codec_for(
            value_serializer or "json", value_type, topic=self.changelog_name, is_key=False
        )
        self.encode_key, self.decode_key = key.encode, key.decode
        self.encode_value, self.decode_value = value.encode, value.decode
        self.encodes_text = self.encode_key in (encode_raw, str.encode)
        if key.schemas is not None:
            key.schemas.is_fixed = True  # keys are found by their bytes
        self.schemas = [each.schemas for each in (key, value) if each.schemas is not None]

    def __repr__(self) -> str:
        return f"<Table {self.name}>"

    if not TYPE_CHECKING:  # a type checker must go on finding misspelt names

        def __getattr__(self, name: str) -> object:
            raise missing("Table", name)

    # reading

    def __contains__(self, key: object) -> bool:
        return self._find(self.encode_key(key)) is not ABSENT

    def get(self, key: Any, default: Any = None) -> Any:
        """The value, or ``default``: the table's own default is not used, as with a dict."""
        value = self._find(self.encode_key(key))
        return default if value is ABSENT else value

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values; reads the whole partition."""
        if isinstance(CURRENT.get(), Slot):
            for key, value in self._writable().items():
                yield self.decode_key(key), value
            return
        for transaction in self.app.open_partitions(self.name):
            for key, value in transaction.committed_items():
                yield self.decode_key(key), value

    def keys(self) -> Iterator[Any]:
        return (key for key, _ in self.items())

    def values(self) -> Iterator[Any]:
        return (value for _, value in self.items())

    def __iter__(self) -> Iterator[Any]:
        return self.keys()

    def __len__(self) -> int:
        """Number of keys; reads the whole partition."""
        return sum(1 for _ in self.items())

    # writing: inside agents only

    def _remove(self, key: Any) -> None:
        encoded = self.encode_key(key)
        transaction = self._writable()
        if transaction.get(encoded) is ABSENT:
            raise KeyError(key)
        transaction.delete(encoded)

    def pop(self, key: Any, *default: Any) -> Any:
        """Remove and return; ``default`` or KeyError when there is none."""
        encoded = self.encode_key(key)
        transaction = self._writable()
        value = transaction.get(encoded)
        if value is ABSENT:
            if default:
                return default[0]
            raise KeyError(key)
        transaction.delete(encoded)
        return value

    def setdefault(self, key: Any, default: Any = None) -> Any:
        encoded = self.encode_key(key)
        transaction = self._writable()
        value = transaction.get(encoded)
        if value is ABSENT:
            transaction.put(encoded, default)
            return default
        return value

    def update(
        self, other: Mapping[Any, Any] | Iterable[tuple[Any, Any]] = (), **fields: Any
    ) -> None:
        pairs = other.items() if isinstance(other, Mapping) else other
        for key, value in [*pairs, *fields.items()]:
            self[key] = value

    def clear(self) -> None:
        """Delete every key of the current partition."""
        transaction = self._writable()
        for key, _ in list(transaction.items()):
            transaction.delete(key)

    def _find(self, encoded: bytes) -> Any:
        emitter = CURRENT.get()
        if isinstance(emitter, Slot):
            return self._writable().get(encoded)
        for transaction in self.app.open_partitions(self.name):
            value = transaction.committed(encoded)
            if value is not ABSENT:
                return value
        return ABSENT

    def _writable(self) -> StoreTransaction:
        emitter = CURRENT.get()
        stores = None if emitter is None else emitter.stores
        if stores is None:
            raise OutsideAgentError(
                f"table {self.name!r} can only be changed by an agent handling an event: "
                "the event's partition says which partition of the table is meant"
            )
        transaction = stores.get(self.name)
        if transaction is None:
            raise OutsideAgentError(
                f"table {self.name!r} was not seen in this agent when the app started; "
                "declare it: @app.agent(topic, tables=[...])"
            )
        return transaction

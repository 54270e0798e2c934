"""State of tables: committed stores and the transaction over them."""

from ..engine.kernel import ABSENT, SCALARS, Snapshot
from .memory import MemoryStore
from .rocksdb import RocksDBStore
from .store import Store, StoreFactory
from .transaction import StoreTransaction

__all__ = [
    "ABSENT",
    "SCALARS",
    "MemoryStore",
    "RocksDBStore",
    "Snapshot",
    "Store",
    "StoreFactory",
    "StoreTransaction",
]

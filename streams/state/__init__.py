"""State of tables: committed stores and the transaction over them."""

from .memory import MemoryStore
from .rocksdb import RocksDBStore
from .store import Store, StoreFactory
from .transaction import ABSENT, SCALARS, Snapshot, StoreTransaction

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

"""State of tables: committed stores and the transaction over them."""

from .memory import MemoryStore
from .rocksdb import RocksDBStore
from .store import Store, StoreFactory
from .transaction import ABSENT, StoreTransaction

__all__ = ["ABSENT", "MemoryStore", "RocksDBStore", "Store", "StoreFactory", "StoreTransaction"]

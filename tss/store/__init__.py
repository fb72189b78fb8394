"""The store: a folder of tasks, written at once or not at all, checked on every read, free of code."""

from tss.store.history import Collected
from tss.store.layout import COMPANY, Index, TaskEntry, TaskRecord
from tss.store.store import Store

__all__ = ["COMPANY", "Collected", "Index", "Store", "TaskEntry", "TaskRecord"]

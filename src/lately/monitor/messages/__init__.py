"""The messages between sites and coordinators: typed, and encoded in few bytes. ``message.py`` has their base."""

from lately.monitor.messages.from_site import (
    CellsMessage,
    Change,
    DriftReport,
    Events,
    Increment,
    JoinRequest,
    KeyCount,
    LeaveNotice,
    SafeFunctionReport,
    SketchUpdate,
)
from lately.monitor.messages.message import MAX_SITES, Message, check_is_message, decode, hash_of
from lately.monitor.messages.query_messages import EpochMessage, QueryMessage, VectorMessage
from lately.monitor.messages.to_site import (
    Balance,
    DriftRequest,
    KeyCountRequest,
    KeyLimits,
    Limits,
    Quantum,
    Reference,
    SafeFunctionRequest,
    UpdateRequest,
)

__all__ = [
    "MAX_SITES",
    "Balance",
    "CellsMessage",
    "Change",
    "DriftReport",
    "DriftRequest",
    "EpochMessage",
    "Events",
    "Increment",
    "JoinRequest",
    "KeyCount",
    "KeyCountRequest",
    "KeyLimits",
    "LeaveNotice",
    "Limits",
    "Message",
    "Quantum",
    "QueryMessage",
    "Reference",
    "SafeFunctionReport",
    "SafeFunctionRequest",
    "SketchUpdate",
    "UpdateRequest",
    "VectorMessage",
    "check_is_message",
    "decode",
    "hash_of",
]

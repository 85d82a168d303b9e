"""What the driver sends to tasks besides rows."""

import pickle
from typing import Any


def packed(content: Any) -> bytes:
    """Serialize what one task needs to know about its sites. Every task gets that of all tasks, and reads only its own."""
    return pickle.dumps(content, protocol=pickle.HIGHEST_PROTOCOL)


def unpacked(content: bytes) -> Any:
    """Return what ``packed`` was given."""
    return pickle.loads(content)

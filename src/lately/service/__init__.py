"""The HTTP service: JSON answers from a store, a stream of new batches and alerts, and the dashboard.

from lately.service import create_app, serve

serve("store", "127.0.0.1", 8765)                       # until Ctrl-C
app = create_app("store", token=token, loopback=False)  # for a server of your own, behind a proxy
"""

try:
    import fastapi  # noqa: F401
    import prometheus_client  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as error:
    from lately.core.errors import LatelyError

    raise LatelyError(f"lately.service needs a web server ({error})", remedy="run pip install 'lately[serve]'") from error

from lately.service.app import create_app
from lately.service.server import serve

__all__ = ["create_app", "serve"]

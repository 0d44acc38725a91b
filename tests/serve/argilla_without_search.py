"""Start the real argilla-server without Elasticsearch and Redis: records live in SQLite, and its search finds nothing.

Run by `test_argilla.py` with the Python of ARGILLA_SERVER: argilla_without_search.py FOLDER PORT KEY.
"""

import os
import sys
from unittest import mock

folder, port, key = sys.argv[1:]
os.environ |= {
    "ARGILLA_HOME_PATH": folder,
    "ARGILLA_DATABASE_URL": f"sqlite+aiosqlite:///{folder}/argilla.db",
    "ARGILLA_ENABLE_TELEMETRY": "0",
}

import uvicorn  # noqa: E402
from argilla_server import _app  # noqa: E402
from argilla_server.cli.database.migrate import migrate_db  # noqa: E402
from argilla_server.cli.database.users.create_default import create_default  # noqa: E402
from argilla_server.search_engine import SearchEngine, get_search_engine  # noqa: E402

migrate_db("head")
engine = mock.AsyncMock(spec=SearchEngine)
_app.configure_database = _app.configure_search_engine = mock.AsyncMock()
_app.configure_redis = _app.track_server_startup = mock.Mock()


async def nothing_found():
    yield engine


app = _app.create_server_app()
app.dependency_overrides[get_search_engine] = nothing_found
for route in app.routes:
    if hasattr(route, "app") and hasattr(route.app, "dependency_overrides"):
        route.app.dependency_overrides[get_search_engine] = nothing_found
create_default(api_key=key, password="12345678", quiet=True)
uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")

"""Start the real argilla-server without Elasticsearch and Redis: records live in SQLite, and its search finds nothing.

Run by `test_argilla.py` with the Python of ARGILLA_SERVER: argilla_without_search.py FOLDER PORT KEY.
"""

import os
import sys
from unittest import mock


def main(folder, port, key):
    os.environ |= {"ARGILLA_HOME_PATH": folder, "ARGILLA_ENABLE_TELEMETRY": "0"}
    os.environ["ARGILLA_DATABASE_URL"] = f"sqlite+aiosqlite:///{folder}/argilla.db"
    import uvicorn
    from argilla_server import _app
    from argilla_server.cli.database.migrate import migrate_db
    from argilla_server.cli.database.users.create_default import create_default
    from argilla_server.search_engine import SearchEngine, get_search_engine

    migrate_db("head")
    create_default(api_key=key, password="12345678", quiet=True)
    _app.configure_database = _app.configure_search_engine = mock.AsyncMock()
    _app.configure_redis = _app.track_server_startup = mock.Mock()

    async def nothing_found():
        yield mock.AsyncMock(spec=SearchEngine)

    app = _app.create_server_app()
    for one in (app, *(route.app for route in app.routes if hasattr(route, "app"))):
        if hasattr(one, "dependency_overrides"):
            one.dependency_overrides[get_search_engine] = nothing_found
    uvicorn.run(app, host="127.0.0.1", port=int(port), log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:])

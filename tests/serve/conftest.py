import pytest

pytest.importorskip("fastapi", reason="needs the extra serve")

from dissensus.serve import app
from dissensus.serve.exceptions import http_status
from dissensus.serve.service import Service
from dissensus.serve.store import open_store
from served import client


@pytest.fixture
def where(tmp_path):
    return str(tmp_path / "labels.db")


@pytest.fixture
def opened(where):
    """Services on one store that are closed at the end; each call makes another, as another process would."""
    made = []

    def make(**more):
        made.append(Service(open_store(where), **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def errors(monkeypatch):
    """The errors that were answered, as they were raised."""
    found = []
    monkeypatch.setattr(app, "http_status", lambda error: found.append(error) or http_status(error))
    return found


@pytest.fixture
def ask(opened):
    """A client of a service with the project p, that is on this machine and has no token."""
    service = opened()
    service.create_project("p")
    return client(service)

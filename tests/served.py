"""A client of a service, for tests."""

from starlette.testclient import TestClient

from dissensus.serve.app import create_app


def client(service, **more):
    """One on this machine, without a token."""
    return TestClient(create_app(service, **more), base_url="http://127.0.0.1", client=("127.0.0.1", 5))

"""`dissensus serve`: the HTTP service, and the tokens of those who may use it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer

from dissensus.cli import options, show
from dissensus.cli.options import option

LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
TOKEN_WORDS = ("add", "list", "revoke")
TURN_SECONDS = 0.0005  # a thread yields to waiting threads after this time; a transaction waits six times


def serve(
    words: list[str] | None = typer.Argument(
        None, metavar="[token add|list|revoke]", show_default=False, help="Manage tokens instead of serving."
    ),
    store: str = option("dissensus.db", "A file (SQLite), or postgresql://… for several workers.", metavar="STORE"),
    host: str = option("127.0.0.1", "Address to listen at; beyond this machine a token is needed."),
    port: int = option(8765, "Port to listen at; 0 takes a free one.", min=0, max=65535),
    role: str = option("read", "Role of a new token: ingest, annotate, adjudicate, read or admin.", panel="Tokens"),
    annotator: str | None = option(None, "The only annotator whose labels a new token may post.", panel="Tokens"),
    names: bool = option(
        False, "Show annotators' names to the holder of a new token, not pseudonyms.", "--names", panel="Tokens"
    ),
    note: str = option("", "Purpose of a new token.", panel="Tokens"),
    label_studio: str | None = option(
        None, "Address of a Label Studio server to work with.", metavar="URL", panel="Label Studio"
    ),
    label_studio_token: str = option(
        "", "Its token, or LABEL_STUDIO_TOKEN in the environment.", envvar="LABEL_STUDIO_TOKEN", panel="Label Studio"
    ),
    label_studio_project: list[int] = option([], "Number of a project; may be repeated.", panel="Label Studio"),
    address: str | None = option(
        None, "Where Label Studio reaches this service, if not at --host and --port.", panel="Label Studio"
    ),
    remove: bool = option(
        False, "Remove what was written into Label Studio or Argilla, and stop.", "--remove", panel="Label Studio"
    ),
    argilla: str | None = option(None, "Address of an Argilla server to work with.", metavar="URL", panel="Argilla"),
    argilla_key: str = option(
        "", "API key of an admin, or ARGILLA_API_KEY in the environment.", envvar="ARGILLA_API_KEY", panel="Argilla"
    ),
    argilla_dataset: list[str] = option([], "Name of a dataset; may be repeated.", panel="Argilla"),
    watch: Path | None = option(None, "A folder whose tables and exports are read whenever they change."),
    json: bool = options.JSON,
) -> None:
    """Run the service until it is stopped, or manage its tokens.

    Scripts or the webhook of a labelling tool post annotations, which stay in STORE. Every answer includes them at
    once: the label of each item with its confidence, the reliability of each annotator, and the items to label next.
    http://127.0.0.1:8765/docs lists all addresses. A token is printed once; the store keeps its sha256.

    Example: dissensus serve --store labels.db

    Example: dissensus serve --store labels.db token add --role ingest --note "Label Studio"

    Example: dissensus serve --store labels.db token revoke 3f2a9c

    Example: dissensus serve --store labels.db --label-studio http://localhost:8080
    """
    from dissensus.common.extras import import_extra

    if words:
        _manage_tokens(words, store, {"role": role, "annotator": annotator, "names": names, "note": note}, json)
        return
    uvicorn = import_extra("uvicorn", "dissensus serve needs", "serve")
    import_extra("fastapi", "dissensus serve needs", "serve")
    from dissensus.serve.app import create_app, open_socket
    from dissensus.serve.exceptions import NoToolAddress, ServedWithoutTokens
    from dissensus.serve.service import Service
    from dissensus.serve.store import open_store
    from dissensus.serve.tokens import TokenStore

    opened = open_store(store)
    if host not in LOOPBACK_HOSTS and not TokenStore(opened).any_exist():
        opened.close()
        raise ServedWithoutTokens(host=host, store=_hide_password(store))
    with show.show_progress(f"reading {_hide_password(store)}"):
        service = Service(opened)
    helpers: list[Any] = []
    if remove and label_studio is argilla is None:
        raise NoToolAddress()
    try:
        if remove:
            for tool in _open_label_studio(service, label_studio, label_studio_token, "", label_studio_project):
                _print_removed("Label Studio, project", tool, json)
            for tool in _open_argilla(service, argilla, argilla_key, argilla_dataset):
                _print_removed("Argilla, dataset", tool, json)
            return
        listening = open_socket(host, port)
        place = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        parts = []
        if label_studio is not None:
            from dissensus.serve.label_studio import webhook_router

            helpers += _open_label_studio(
                service, label_studio, label_studio_token, address or place, label_studio_project
            )
            parts = [webhook_router(list(helpers))]
        helpers += _open_argilla(service, argilla, argilla_key, argilla_dataset)
        if watch is not None:
            from dissensus.serve.watch import WatchedFolder

            helpers.append(WatchedFolder(service, watch))
        app = create_app(service, routers=parts)
        sys.setswitchinterval(TURN_SECONDS)
        server = uvicorn.Server(uvicorn.Config(app, host=host, port=port, log_level="warning", access_log=False))
        for helper in helpers:
            helper.start()
        shown = _hide_password(store)
        if json:
            show.print_json({"url": place, "store": shown, "projects": service.project_names()})
        else:
            show.print_line(f"Serving {shown} at {place}; {place}/docs lists what can be asked. Stop with Ctrl-C.")
        server.run(sockets=[listening])
    finally:
        for helper in helpers:
            helper.close()
        service.close()


def _open_label_studio(service: Any, url: str | None, token: str, place: str, projects: list[int]) -> list[Any]:
    from dissensus.serve.label_studio import LabelStudioClient, open_projects

    return [] if url is None else list(open_projects(service, LabelStudioClient(url, token), place, projects))


def _open_argilla(service: Any, url: str | None, key: str, names: list[str]) -> list[Any]:
    from dissensus.serve.argilla import ArgillaClient, open_datasets

    return [] if url is None else list(open_datasets(service, ArgillaClient(url, key), names))


def _print_removed(where: str, tool: Any, json: bool) -> None:
    done = tool.remove()
    if json:
        show.print_json({"project": tool.number, "removed": done})
    else:
        said = ", ".join(f"{count} {what.rpartition('/')[2]}" for what, count in done.items())
        show.print_line(f"{where} {show.escape(str(tool.number))}: {said} as before.")


def _manage_tokens(words: list[str], store: str, about: dict[str, Any], json: bool) -> None:
    from dissensus.serve.exceptions import UnknownTokenCommand

    known = words[0] == "token" and len(words) > 1 and words[1] in TOKEN_WORDS
    if not known or len(words) != (3 if words[1] == "revoke" else 2):
        raise UnknownTokenCommand(words=" ".join(words))
    from dissensus.serve.store import open_store
    from dissensus.serve.tokens import TokenStore

    opened = open_store(store)
    tokens = TokenStore(opened)
    try:
        found: dict[str, Any] = {}
        if words[1] == "add":
            found = {"token": tokens.add(**about)}
            text = f"{found['token']}\nThis is the only time that it is shown; send it as 'Authorization: Bearer …'."
        elif words[1] == "revoke":
            tokens.revoke(words[2])
            text = f"The token {words[2]} is revoked."
        else:
            found = {"tokens": tokens.list_tokens()}
            lines = [
                (one["token"], one["role"], one["annotator"] or "", "names" if one["names"] else "", one["note"])
                for one in found["tokens"]
            ]
            text = "\n".join(show.escape("  ".join(line)) for line in lines) or "There is no token."
    finally:
        opened.close()
    if json:
        show.print_json(found)
        return
    for line in text.splitlines():
        show.print_line(line)


def _hide_password(store: str) -> str:
    """Return the address of a store without user name, password and parameters, which must not be printed."""
    scheme, there, rest = store.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}" if there else store

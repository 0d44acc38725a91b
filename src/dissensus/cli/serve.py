"""`dissensus serve`: run the HTTP service, or manage the tokens that give access to it."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from dissensus.cli import options, show
from dissensus.cli.options import option

LOOPBACK_HOSTS = ("127.0.0.1", "::1", "localhost")
TOKEN_COMMANDS = ("add", "list", "revoke")
SWITCH_INTERVAL = 0.0005  # seconds before a thread yields to waiting threads; a transaction waits for six such turns


@dataclass(frozen=True)
class TokenOptions:
    """What a new token allows."""

    role: str = option("read", "Role of a new token: ingest, annotate, adjudicate, read or admin.", panel="Tokens")
    annotator: str | None = option(None, "The only annotator whose labels a new token may post.", panel="Tokens")
    names: bool = option(
        False, "Show annotators' names to the holder of a new token, not pseudonyms.", "--names", panel="Tokens"
    )
    note: str = option("", "Purpose of a new token.", panel="Tokens")


@dataclass(frozen=True)
class LabelStudioOptions:
    """The projects of a Label Studio server to work with."""

    label_studio: str | None = option(
        None, "Address of a Label Studio server to work with.", metavar="URL", panel="Label Studio"
    )
    label_studio_token: str = option(
        "", "Its token, or LABEL_STUDIO_TOKEN in the environment.", envvar="LABEL_STUDIO_TOKEN", panel="Label Studio"
    )
    label_studio_project: list[int] = option([], "Number of a project; may be repeated.", panel="Label Studio")
    address: str | None = option(
        None, "Address at which Label Studio reaches this service, if not --host and --port.", panel="Label Studio"
    )
    remove: bool = option(
        False, "Remove what was written into Label Studio or Argilla, and stop.", "--remove", panel="Label Studio"
    )

    def open_projects(self, service: Any, webhook_address: str) -> list[Any]:
        """Return the connected projects; their webhooks post to the given address of this service."""
        from dissensus.serve.label_studio import LabelStudioClient, open_projects

        if self.label_studio is None:
            return []
        client = LabelStudioClient(self.label_studio, self.label_studio_token)
        return list(open_projects(service, client, webhook_address, self.label_studio_project))


@dataclass(frozen=True)
class ArgillaOptions:
    """The datasets of an Argilla server to work with."""

    argilla: str | None = option(None, "Address of an Argilla server to work with.", metavar="URL", panel="Argilla")
    argilla_key: str = option(
        "", "API key of an admin, or ARGILLA_API_KEY in the environment.", envvar="ARGILLA_API_KEY", panel="Argilla"
    )
    argilla_dataset: list[str] = option([], "Name of a dataset; may be repeated.", panel="Argilla")

    def open_datasets(self, service: Any) -> list[Any]:
        """Return the connected datasets."""
        from dissensus.serve.argilla import ArgillaClient, open_datasets

        if self.argilla is None:
            return []
        return list(open_datasets(service, ArgillaClient(self.argilla, self.argilla_key), self.argilla_dataset))


def serve(
    *,
    words: list[str] | None = typer.Argument(
        None, metavar="[token add|list|revoke]", show_default=False, help="Manage tokens instead of serving."
    ),
    store: str = option("dissensus.db", "A file (SQLite), or postgresql://… for several workers.", metavar="STORE"),
    host: str = option("127.0.0.1", "Address to listen at; any address but this machine's own needs a token."),
    port: int = option(8765, "Port to listen at; 0 takes a free one.", min=0, max=65535),
    token: TokenOptions,
    label_studio: LabelStudioOptions,
    argilla: ArgillaOptions,
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
        _manage_tokens(words, store, asdict(token), json)
        return
    for module in ("uvicorn", "fastapi"):
        import_extra(module, "dissensus serve needs", "serve")
    from dissensus.serve.app import open_socket

    service = _open_service(store, host)
    helpers: list[Any] = []
    try:
        if label_studio.remove:
            _remove_from_tools(service, label_studio, argilla, json)
            return
        listening = open_socket(host, port)
        address = f"http://{f'[{host}]' if ':' in host else host}:{listening.getsockname()[1]}"
        routers = []
        if label_studio.label_studio is not None:
            from dissensus.serve.label_studio import webhook_router

            helpers += label_studio.open_projects(service, label_studio.address or address)
            routers = [webhook_router(list(helpers))]
        helpers += argilla.open_datasets(service)
        if watch is not None:
            from dissensus.serve.watch import WatchedFolder

            helpers.append(WatchedFolder(service, watch))
        server = _create_server(service, routers)
        for helper in helpers:
            helper.start()
        shown = _hide_password(store)
        if json:
            show.print_json({"url": address, "store": shown, "projects": service.project_names()})
        else:
            show.print_line(f"Serving {shown} at {address}; {address}/docs lists all requests. Stop with Ctrl-C.")
        server.run(sockets=[listening])
    finally:
        for helper in helpers:
            helper.stop()
        service.close()


def _open_service(store: str, host: str) -> Any:
    """Return the service on a store; only this machine may use it without tokens."""
    from dissensus.serve.exceptions import ServedWithoutTokens
    from dissensus.serve.service import Service
    from dissensus.serve.store import open_store
    from dissensus.serve.tokens import TokenStore

    opened = open_store(store)
    if host not in LOOPBACK_HOSTS and not TokenStore(opened).any_exist():
        opened.close()
        raise ServedWithoutTokens(host=host, store=_hide_password(store))
    with show.show_progress(f"reading {_hide_password(store)}"):
        return Service(opened)


def _create_server(service: Any, routers: list[Any]) -> Any:
    """Return the HTTP server of a service, with the routers of labelling tools."""
    import uvicorn

    from dissensus.serve.app import create_app

    sys.setswitchinterval(SWITCH_INTERVAL)
    return uvicorn.Server(uvicorn.Config(create_app(service, routers=routers), log_level="warning", access_log=False))


def _remove_from_tools(service: Any, label_studio: LabelStudioOptions, argilla: ArgillaOptions, json: bool) -> None:
    """Remove what the service wrote into labelling tools."""
    from dissensus.serve.exceptions import NoToolAddress

    if label_studio.label_studio is argilla.argilla is None:
        raise NoToolAddress()
    for project in label_studio.open_projects(service, ""):
        _print_removed("Label Studio, project", project, json)
    for dataset in argilla.open_datasets(service):
        _print_removed("Argilla, dataset", dataset, json)


def _print_removed(where: str, tool: Any, json: bool) -> None:
    counts = tool.remove()
    if json:
        show.print_json({"project": tool.number, "removed": counts})
    else:
        listed = ", ".join(f"{count} {what.rpartition('/')[2]}" for what, count in counts.items())
        show.print_line(f"{where} {show.escape(str(tool.number))}: {listed} as before.")


def _manage_tokens(words: list[str], store: str, new_token: dict[str, Any], json: bool) -> None:
    """Add, list or revoke tokens, as the `words` after `dissensus serve` demand."""
    from dissensus.serve.exceptions import UnknownTokenCommand

    known = words[0] == "token" and len(words) > 1 and words[1] in TOKEN_COMMANDS
    if not known or len(words) != (3 if words[1] == "revoke" else 2):
        raise UnknownTokenCommand(words=" ".join(words))
    from dissensus.serve.store import open_store
    from dissensus.serve.tokens import TokenStore

    opened = open_store(store)
    tokens = TokenStore(opened)
    try:
        response: dict[str, Any] = {}
        if words[1] == "add":
            response = {"token": tokens.add(**new_token)}
            text = f"{response['token']}\nThe token is shown only once; send it as 'Authorization: Bearer …'."
        elif words[1] == "revoke":
            tokens.revoke(words[2])
            text = f"The token {words[2]} is revoked."
        else:
            response = {"tokens": tokens.list_tokens()}
            lines = [
                (row["token"], row["role"], row["annotator"] or "", "names" if row["names"] else "", row["note"])
                for row in response["tokens"]
            ]
            text = "\n".join(show.escape("  ".join(line)) for line in lines) or "There is no token."
    finally:
        opened.close()
    if json:
        show.print_json(response)
        return
    for line in text.splitlines():
        show.print_line(line)


def _hide_password(store: str) -> str:
    """Return the address of a store without user name, password and parameters, which must not be printed."""
    scheme, there, rest = store.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}" if there else store

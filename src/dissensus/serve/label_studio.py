"""Synchronise with Label Studio: read the annotations of a project, and write the consensus back into its tasks.

Each control that the reader of its exports supports (`table.io.label_studio`) becomes a project
`label-studio-N-<control>`.

| direction | how |
|---|---|
| read at once | by a webhook: Label Studio sends each event once, waits one second, and never repeats it |
| read reliably | by `sync`: all tasks at the start and every hour, changed tasks every minute, and deletions |
| write | in the background: one prediction per task, and fields `dissensus_…` of its data to filter by |

Only differences are written, so every step may be interrupted and repeated. `remove` deletes everything that was
written.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import threading
import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple
from xml.etree import ElementTree

import httpx
from fastapi import APIRouter, Body, Header

from dissensus.questions.item_status import STATUSES
from dissensus.serve.events import Event, make_slug, parse_seconds, to_sortable_version
from dissensus.serve.exceptions import BadWebhook, NothingToServe, RequestRefused, ToolError
from dissensus.serve.requests import JSON_PARSER, label_to_text, spans_to_text
from dissensus.serve.routes import JsonRoute
from dissensus.serve.service import Service
from dissensus.serve.tool import AGENT_NAME, FIELD_PREFIX, MIN_CONFIDENCE_CHANGE, Tool, ToolQuestion, record_difference
from dissensus.serve.tool_client import Record, ToolClient
from dissensus.table.find_columns import ColumnNames
from dissensus.table.io.exports import COMPARISONS, SPANS, ExportedAnswer
from dissensus.table.io.label_studio import read_task_answers
from dissensus.table.kinds import name_set

REVIEW_FIELD = FIELD_PREFIX + "review"
TAB_TITLE = "dissensus: review"
SECRET_HEADER = "X-Dissensus-Webhook"  # header that identifies our webhooks
WEBHOOK_ACTIONS = (
    "ANNOTATION_CREATED", "ANNOTATIONS_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_DELETED", "TASKS_CREATED",
    "TASKS_DELETED", "PROJECT_UPDATED",
)  # fmt: skip
SECONDS_BETWEEN_WRITES = 2.0
MAX_WRITE_SECONDS = 5.0  # After this time, writing pauses and incomplete webhooks are completed.
SECONDS_BETWEEN_SYNCS = 60.0  # between two readings of changed tasks
SECONDS_BETWEEN_FULL_SYNCS = 3600.0
SYNC_OVERLAP = timedelta(minutes=2)  # Two syncs overlap because the clocks of two machines differ.
TIME_FORMAT = "%Y-%m-%dT%H:%M:%S.%fZ"  # the only format of times (in UTC) that filters of tasks accept
PAGE_SIZE = 100  # tasks per response
BATCH_SIZE = 50  # number of tasks that are fetched per request before they are updated
DELETED_VERSION = to_sortable_version("9999-12-31T00:00:00Z")  # version of a deleted annotation, later than all others
GOLD_PREFIX = "gold-"  # The id of a decision begins with this: it is an annotation marked as ground truth.
CONTROL_KINDS = {"choices": "classes", "pairwise": "classes", "rating": "graded", "number": "graded", "labels": "spans"}


class AccessTokens(httpx.Auth):
    """Authentication by access tokens, which are valid for minutes; a personal access token (a JWT) buys new ones."""

    requires_response_body = True

    def __init__(self, url: str, token: str):
        self.refresh = httpx.Request("POST", f"{url}/api/token/refresh/", json={"refresh": token})
        self.access = ""

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send a request with an access token, and again with a new token if the old one has expired."""
        for is_last in (bool(not self.access), True):
            if is_last:
                answer = yield self.refresh
                if not answer.is_success:
                    return
                self.access = answer.json()["access"]
            request.headers["Authorization"] = f"Bearer {self.access}"
            answer = yield request
            if is_last or answer.status_code != 401:
                return


class LabelStudioClient(ToolClient):
    """Client of one Label Studio server."""

    tool, units, secret_name = "Label Studio", "projects", "token"
    secret_hint = "a token: make one under Account & Settings, Personal Access Token"

    def credentials(self) -> Record:
        """Return the authentication of `httpx.Client`: access tokens for a JWT, or a legacy token as a header."""
        is_jwt = self._token.count(".") == 2
        legacy = {"headers": {"Authorization": f"Token {self._token}"}}
        return {"auth": AccessTokens(self.url, self._token)} if is_jwt else legacy

    def make_secret(self, words: str) -> str:
        """Return a secret that only holders of the token can compute, so it need not be stored."""
        return hmac.new(self._token.encode(), words.encode(), hashlib.sha256).hexdigest()

    def projects(self) -> list[Record]:
        """Return all projects that are visible with this token."""
        projects: list[Record] = []
        while True:
            page = self.call("GET", "/api/projects/", page=len(projects) // PAGE_SIZE + 1, page_size=PAGE_SIZE)
            projects += page["results"]
            if not page["results"] or len(projects) >= page["count"]:
                return projects

    def tasks(
        self, project: int, only: Iterable[int] | None = None, since: str | None = None
    ) -> Iterator[list[Record]]:
        """Yield pages of tasks with their annotations: all tasks, those in `only`, or those changed since a time."""
        query: Record = {"ordering": ["tasks:id"]}
        if only is not None and not (some := sorted(only)):
            return
        if only is not None:
            query["selectedItems"] = {"all": False, "included": some}
        if since is not None:
            changed = {"filter": "filter:tasks:updated_at", "operator": "greater", "type": "Datetime", "value": since}
            query["filters"] = {"conjunction": "and", "items": [changed]}
        more = {"project": project, "page_size": PAGE_SIZE, "fields": "all", "resolve_uri": "false"}
        page, total = 1, 1
        while (page - 1) * PAGE_SIZE < total:
            try:
                answer = self.call("GET", "/api/tasks/", page=page, query=json.dumps(query), **more)
            except ToolError as error:
                if error.status != 404 or page == 1:  # Otherwise tasks were deleted meanwhile, and the page with them.
                    raise
                return
            yield answer["tasks"]
            page, total = page + 1, answer["total"]


class TaskContent(NamedTuple):
    """The content that a task should have: fields of its data and a prediction, which may be empty."""

    fields: Record
    results: list[Record]
    score: float


NO_CONTENT = TaskContent({}, [], 0.0)


def read_controls(project: Record, base: str) -> list[ToolQuestion]:
    """Return the supported controls of a project."""
    tags = ElementTree.fromstring(project["label_config"]).iter()
    several = {tag.get("name") for tag in tags if tag.get("choice") == "multiple"}
    found = []
    for name, about in project["parsed_label_config"].items():
        kind = CONTROL_KINDS.get(about["type"].lower())
        if kind is not None and (kind != "spans" or all(one["type"] == "Text" for one in about["inputs"])):
            found.append(ToolQuestion(name, "sets" if name in several else kind, f"{base}-{make_slug(name)}", about))
    return found


def annotation_to_events(
    task: int, annotation: Record, control: ToolQuestion, annotator: str, was_gold: bool
) -> list[Event]:
    """Return an annotation's events about one control: a label, no label, or a gold label."""
    one = {"id": task, "data": {}, "annotations": [annotation | {"completed_by": annotator}]}
    where = f"Label Studio: task {task}"
    rows = [
        row
        for row in read_task_answers(one, ColumnNames(), where)
        if isinstance(row, ExportedAnswer) and not row.excluded
    ]
    given = [row for row in rows if row.question == control.name and row.label is not None]
    text: str | None = None
    if control.kind == "spans":
        marked = [span for row in given if row.kind == SPANS for span in row.label]
        spans = [{"start": start, "end": end, "label": label} for start, end, label in marked]
        text = (
            None if annotation.get("was_cancelled") else spans_to_text(spans)
        )  # An annotation without spans states that there are none.
    else:
        given = [row._replace(label=row.label[0][2]) if row.kind == COMPARISONS and row.label else row for row in given]
        labels = [label for row in given for label in (row.label if isinstance(row.label, list) else [row.label])]
        labels = [label for label in dict.fromkeys(labels) if label is not None and str(label).strip()]
        if labels:
            text = name_set(labels) if control.kind == "sets" else label_to_text(labels[0])[0]
    gold = bool(annotation.get("ground_truth")) and text is not None
    id_, item, version = str(annotation["id"]), str(task), to_sortable_version(annotation.get("updated_at"))
    at = parse_seconds(annotation.get("updated_at") or annotation.get("created_at"))
    label = None if gold else text
    events = [Event("annotation", id_, item, annotator, label, version, at, label_kind=control.kind)]
    if gold:
        events.append(Event("decision", GOLD_PREFIX + id_, item, annotator, text, version, at, label_kind=control.kind))
    elif was_gold:
        events.append(Event("withdrawal", GOLD_PREFIX + id_, item, annotator, None, version, at))
    return events


class LabelStudioProject(Tool):
    """A project of Label Studio that a background thread synchronises with a service."""

    first_wait, longest_wait = SECONDS_BETWEEN_WRITES, SECONDS_BETWEEN_SYNCS

    def __init__(self, service: Service, client: LabelStudioClient, address: str, number: int):
        super().__init__(service, f"label-studio-{number}")
        self.client, self.number = client, number
        self.url = f"{address.rstrip('/')}/projects/{self.base}/label-studio"
        self._users: dict[int, str] = {}
        self._golds: dict[tuple[str, str], str] = {}  # (project, id) of an annotation marked as gold → item
        self._written: dict[str, TaskContent] = {}
        self._stamp: list[Any] = []  # identifies the results that were written last
        self._predictions: dict[str, list[Record]] | None = None  # our predictions by task; None if unknown
        self._stale: set[int] | None = set()  # tasks to read again; None for all tasks
        self._synced: datetime | None = None
        self._full_sync = 0.0  # monotonic time of the next full sync
        self._lock = threading.Lock()

    # Set up and remove ------------------------------------------------------------------------------------------------

    def read_questions(self) -> tuple[str, list[ToolQuestion]]:
        """Return the title of the project and its supported controls."""
        about = self.client.call("GET", f"/api/projects/{self.number}/")
        controls = read_controls(about, self.base)
        if not controls:
            raise NothingToServe(tool="Label Studio", name=str(self.number), kinds=", ".join(CONTROL_KINDS))
        return about["title"], controls

    def install_hook(self) -> None:
        """Create the webhook, or correct its settings."""
        want = {"project": self.number, "url": self.url, "send_payload": True, "send_for_all_actions": False}
        want |= {
            "is_active": True,
            "headers": {SECRET_HEADER: self.client.make_secret(self.base)},
            "actions": sorted(WEBHOOK_ACTIONS),
        }
        ours = self._list_own("webhooks")
        if not ours:
            self.client.call("POST", "/api/webhooks/", want)
        elif any(ours[0][key] != want[key] for key in want):
            self.client.call("PATCH", f"/api/webhooks/{ours[0]['id']}/", want)
        for one in ours[1:]:
            self.client.call("DELETE", f"/api/webhooks/{one['id']}/")

    def _list_own(self, what: str) -> list[Record]:
        """Return the webhooks or tabs of the project that the service created."""
        found = self.client.call("GET", f"/api/{what}/", project=self.number)
        ours = [one for one in found if SECRET_HEADER in one.get("headers", {}) or AGENT_NAME in one.get("data", {})]
        return [one | {"actions": sorted(one.get("actions", []))} for one in ours if one["project"] == self.number]

    def _make_tabs(self) -> None:
        """Create a tab of the data manager with the tasks to review, and a default tab if there was none."""
        review = {"filter": f"filter:tasks:data.{REVIEW_FIELD}", "operator": "equal", "type": "String", "value": "yes"}
        tabs = [{"title": TAB_TITLE, "filters": {"conjunction": "and", "items": [review]}}]
        if not self.client.call("GET", "/api/dm/views/", project=self.number):
            tabs.insert(0, {"title": "Default"})
        for tab in tabs if not self._list_own("dm/views") else ():
            self.client.call("POST", "/api/dm/views/", {"project": self.number, "data": tab | {AGENT_NAME: True}})

    def remove(self) -> dict[str, int]:
        """Delete our webhooks, tabs, predictions and fields from Label Studio; annotations stay unchanged."""
        done = {}
        for what in ("webhooks", "dm/views"):
            ours = self._list_own(what)
            for one in ours:
                self.client.call("DELETE", f"/api/{what}/{one['id']}/")
            done[what] = len(ours)
        done["predictions"] = sum(map(len, self._load_predictions().values()))
        tasks = [task for page in self.client.tasks(self.number) for task in page]
        done["tasks"] = sum(self._write_task(task, NO_CONTENT) for task in tasks)
        self.client.call(
            "POST", f"/api/projects/{self.number}/summary/reset/"
        )  # Otherwise Label Studio keeps showing our columns.
        return done

    # Webhooks ---------------------------------------------------------------------------------------------------------

    def is_ours(self, secret: str) -> bool:
        """Return True if a webhook sent the secret that it was created with."""
        return hmac.compare_digest(secret.encode(), self.client.make_secret(self.base).encode())

    def webhook(self, sent: Any) -> dict[str, int]:
        """Store the events of a webhook; incomplete ones are completed in the background."""
        try:
            action, project = sent["action"], sent["project"]["id"]
            annotations, tasks = _as_list(sent.get("annotation")), _as_list(sent.get("task"))
        except (KeyError, TypeError):
            raise BadWebhook(project=self.number) from None
        if project != self.number:
            raise BadWebhook(project=self.number)
        stored = 0
        if annotations and tasks and action.startswith("ANNOTATION"):
            stored = self._store_annotations(list(zip(annotations, tasks, strict=False)))
            if not stored or any(
                one.get("ground_truth") for one in annotations
            ):  # If an item is marked as gold again, the latest mark replaces earlier ones.
                self._mark_stale({one["id"] for one in tasks})
        elif action == "ANNOTATIONS_DELETED" and sent.get("annotations"):
            stored = self._store_deletions([str(one["id"]) for one in sent["annotations"]])
        elif action == "TASKS_CREATED":
            self._store_task_fields(sent.get("tasks", []))
        else:  # Annotations were deleted in bulk, or the configuration changed.
            self._mark_stale(None)
        self._wake.set()
        return {"events": stored}

    def _mark_stale(self, tasks: set[int] | None) -> None:
        with self._lock:
            self._stale = None if tasks is None or self._stale is None else self._stale | tasks

    def _store_annotations(self, pairs: Sequence[tuple[Record, Record]]) -> int:
        """Store annotations with their tasks, or none of them if the name of an annotator is unknown."""
        users = [_user_id(annotation) for annotation, _ in pairs]
        if any(user not in self._users for user in users):
            return 0
        self._store_task_fields([task for _, task in pairs])
        events: dict[str, list[Event]] = {control.project: [] for control in self.questions}
        for (annotation, task), user in zip(pairs, users, strict=True):
            for control in self.questions:
                key = (control.project, str(annotation["id"]))
                was_gold = self._golds.pop(key, None) is not None
                new = annotation_to_events(task["id"], annotation, control, self._users[user], was_gold)
                self._golds |= {key: new[-1].item} if new[-1].kind == "decision" else {}
                events[control.project] += new
        return self.append(events)

    def _store_deletions(self, ids: Sequence[str]) -> int:
        """Store that annotations were deleted, which is final."""
        events: dict[str, list[Event]] = {}
        for control in self.questions:
            golds = {one: item for one in ids if (item := self._golds.pop((control.project, one), None)) is not None}
            events[control.project] = [Event("removal", one, "", version=DELETED_VERSION) for one in ids]
            events[control.project] += [
                Event("withdrawal", GOLD_PREFIX + one, golds[one], version=DELETED_VERSION) for one in golds
            ]
        return self.append(events)

    def _store_task_fields(self, tasks: Iterable[Record]) -> None:
        """Store the fields of tasks that changed; relative addresses of uploaded files are completed."""
        found = []
        for task in tasks:
            data = {key: value for key, value in task["data"].items() if not key.startswith(FIELD_PREFIX)}
            uploaded = [key for key, value in data.items() if isinstance(value, str) and value.startswith("/data/")]
            found.append((str(task["id"]), data | {key: self.client.url + data[key] for key in uploaded}))
        self.append(self.item_events(found))

    # Read -------------------------------------------------------------------------------------------------------------

    def sync(self, tasks: Iterable[int] | None = None, since: datetime | None = None) -> dict[str, int]:
        """Fetch missing and changed annotations and remove deleted ones, for all tasks or only for some.

        The stored annotations are read before the tool is queried. Each one that seems to be deleted is queried once
        more.
        """
        began, everything = datetime.now(UTC), tasks is None and since is None
        if everything:
            self.create_projects()
        users = {one["id"]: one["email"] or f"user {one['id']}" for one in self.client.call("GET", "/api/users/")}
        stored = self.stored_labels()
        for name, ids in stored.items():
            self._golds |= {
                (name, id_.removeprefix(GOLD_PREFIX)): item
                for id_, (item, *_) in ids.items()
                if id_.startswith(GOLD_PREFIX)
            }
        only = None if tasks is None else set(tasks)
        items, seen = set(map(str, only or ())), set()
        done = {"tasks": 0, "annotations": 0, "changed": 0}
        changed_since = None if since is None else (since - SYNC_OVERLAP).strftime(TIME_FORMAT)
        for page in self.client.tasks(self.number, only, changed_since):
            items |= {str(task["id"]) for task in page}
            pairs = [(annotation, task) for task in page for annotation in task["annotations"]]
            seen |= {str(annotation["id"]) for annotation, _ in pairs}
            self._users = {_user_id(one): f"user {_user_id(one)}" for one, _ in pairs} | self._users | users
            changed = [pair for pair in pairs if not _is_stored(pair[0], stored)]
            self._store_task_fields(page)
            self._store_annotations(changed)
            done["tasks"] += len(page)
            done["annotations"] += len(pairs)
            done["changed"] += len(changed)
        known = {id_ for ids in stored.values() for id_, (item, *_) in ids.items() if everything or item in items}
        gone = [
            id_ for id_ in known - seen if id_.isdigit() and self.client.get_or_none(f"/api/annotations/{id_}/") is None
        ]
        self._store_deletions(gone)
        self._synced = began if only is None else self._synced
        return done | {"removed": len(gone)}

    # Write ------------------------------------------------------------------------------------------------------------

    def task_contents(self) -> dict[str, TaskContent]:
        """Return the content that each task with a label should have."""
        contents: dict[str, TaskContent] = {}
        for control, item, facts in self.iterate_answers():
            before = contents.get(item["item"], TaskContent({REVIEW_FIELD: "no"}, [], 1.0))
            confidence = facts.get("confidence", 1.0)
            fields = before.fields | {self.field_prefix(control) + key: value for key, value in facts.items()}
            if item["status"] in STATUSES[1:] and item["labels"] > 1:  # The queue has the same items.
                fields[REVIEW_FIELD] = "yes"
            results = [*before.results, *_prediction_results(control, item["label"], confidence)]
            contents[item["item"]] = TaskContent(fields, results, min(before.score, confidence))
        return contents

    def write_back(self, seconds: float = MAX_WRITE_SECONDS) -> bool:
        """Write changes for some seconds, the largest first; return True if some are left."""
        ends, written = time.monotonic() + seconds, self._written
        stamp = [self.service.project(control.project).fit_state() for control in self.questions]
        if stamp == self._stamp:
            return False
        wanted = self.task_contents()
        wanted |= dict.fromkeys(written.keys() - wanted.keys(), NO_CONTENT)  # These tasks have lost all labels.
        change = {  # A task that was not written yet counts as without content.
            task: record_difference(want.fields, written[task].fields if task in written else {})
            for task, want in wanted.items()
        }
        todo = sorted(
            (task for task in change if change[task] >= MIN_CONFIDENCE_CHANGE), key=lambda task: -change[task]
        )
        if todo and self._predictions is None:
            self._load_predictions()
            self._make_tabs()
        for at in range(0, len(todo), BATCH_SIZE):
            some = todo[at : at + BATCH_SIZE]
            there = {str(task["id"]): task for page in self.client.tasks(self.number, map(int, some)) for task in page}
            for task in some:
                if time.monotonic() > ends or self._stopped.is_set():
                    return True
                if task in there:
                    self._write_task(there[task], wanted[task])
                written[task] = wanted[task]
        self._stamp = stamp
        return False

    def _load_predictions(self) -> dict[str, list[Record]]:
        self._predictions = {}
        for one in self.client.call("GET", "/api/predictions/", project=self.number):
            if one["model_version"] == AGENT_NAME:
                self._predictions.setdefault(str(one["task"]), []).append(one)
        return self._predictions

    def _write_task(self, task: Record, want: TaskContent) -> bool:
        """Write the content of a task and keep the user who changed it last; return True if it changed."""
        before = self._predictions or {}
        ours, fields = before.get(str(task["id"]), []), task["data"]
        body = {"task": task["id"], "project": self.number, "model_version": AGENT_NAME}
        body |= {"result": want.results, "score": want.score}
        changed = True
        self._predictions = None  # They are unknown if a call fails.
        for extra in ours[1:] if want.results else ours:
            self.client.call("DELETE", f"/api/predictions/{extra['id']}/")
        if want.results and not ours:
            before[str(task["id"])] = [self.client.call("POST", "/api/predictions/", body)]
        elif want.results and (ours[0]["result"], ours[0]["score"]) != (want.results, want.score):
            before[str(task["id"])] = [self.client.call("PATCH", f"/api/predictions/{ours[0]['id']}/", body)]
        else:
            changed = bool(ours) and not want.results
            before[str(task["id"])] = ours[:1] if want.results else []
        self._predictions = before
        data = {key: value for key, value in fields.items() if not key.startswith(FIELD_PREFIX)} | want.fields
        if changed or data != fields:  # Writing a prediction also makes us the last user who changed the task.
            by = task["updated_by"][0]["user_id"] if task["updated_by"] else None
            self.client.call("PATCH", f"/api/tasks/{task['id']}/", {"data": data, "updated_by": by})
            changed = True
        return changed

    # Background thread ------------------------------------------------------------------------------------------------

    def step(self) -> float:
        """Fetch stale tasks, then write for some seconds; return the seconds until the next step."""
        if time.monotonic() >= self._full_sync:
            self._mark_stale(None)
            self._full_sync = time.monotonic() + SECONDS_BETWEEN_FULL_SYNCS
        self._fetch_stale()
        return 0.0 if self.write_back() else SECONDS_BETWEEN_WRITES

    def _fetch_stale(self) -> None:
        with self._lock:
            stale, self._stale = self._stale, set()
        try:
            if stale is None or self._synced is None:
                self.sync()
            elif stale:
                self.sync(stale)
            elif datetime.now(UTC) - self._synced > timedelta(seconds=SECONDS_BETWEEN_SYNCS):
                self.sync(since=self._synced)
        except BaseException:
            self._mark_stale(stale)
            raise


def open_projects(
    service: Service, client: LabelStudioClient, address: str, projects: Sequence[int] = ()
) -> list[LabelStudioProject]:
    """Open the projects with these numbers, or the only project."""
    titles = {one["id"]: f"{one['id']} ({one['title']})" for one in client.projects()}
    return [LabelStudioProject(service, client, address, number) for number in client.choose_units(projects, titles)]


def webhook_router(studios: Sequence[LabelStudioProject]) -> APIRouter:
    """Return the route of the webhooks, for `create_app(service, routers=[webhook_router(studios)])`."""
    known = {studio.base: studio for studio in studios}
    router = APIRouter(route_class=JsonRoute)

    @router.post("/projects/{name}/label-studio")
    def receive_webhook(
        name: str, body: Annotated[Any, JSON_PARSER, Body()], secret: Annotated[str, Header(alias=SECRET_HEADER)] = ""
    ) -> dict[str, int]:
        """Store the events that a webhook of Label Studio sends; it must send the secret that it was created with."""
        if name not in known or not known[name].is_ours(secret):
            raise RequestRefused(reason="unknown webhook", subject=name)
        return known[name].webhook(body)

    return router


def _prediction_results(control: ToolQuestion, label: Any, confidence: float) -> list[Record]:
    """Return a label as the results of a prediction."""
    type_, to = control.about["type"].lower(), ",".join(control.about["to_name"])
    names = {"from_name": control.name, "to_name": to, "type": type_, "score": confidence}
    if control.kind == "spans":
        values = [{"start": one["start"], "end": one["end"], "labels": [one["label"]]} for one in label]
    elif type_ in ("rating", "number"):
        values = [{type_: int(float(label)) if float(label).is_integer() else float(label)}]
    elif type_ == "pairwise":
        values = [{"selected": label}]
    else:
        values = [{"choices": label if isinstance(label, list) else [str(label)]}]
    return [{**names, "value": value} for value in values]


def _is_stored(annotation: Record, stored: Mapping[str, Mapping[str, tuple[str, str, bool]]]) -> bool:
    """Return True if every project has this version of an annotation; gold marks may vanish without a new version."""
    id_, version = str(annotation["id"]), to_sortable_version(annotation["updated_at"])
    gold = bool(annotation["ground_truth"])
    found = [ids.get(id_, ("", None, False)) for ids in stored.values()]
    unmarked = not gold and (
        any(GOLD_PREFIX + id_ in ids for ids in stored.values()) or not any(one[2] for one in found)
    )
    skipped = annotation["was_cancelled"] or not annotation["result"]
    return all(one[1] == version for one in found) and not (unmarked and not skipped)


def _user_id(annotation: Record) -> int:
    user = annotation["completed_by"]
    return int((user["id"] if isinstance(user, dict) else user) or 0)


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]

"""Argilla, both ways: the responses of a dataset into projects of the service, the consensus back into its records.

Every question that asks for a label, labels, a rating or spans is a project `argilla-<dataset>-<question>`. All records
are read every `SECONDS_BETWEEN_SYNCS`. Back go, where they changed, `dissensus_…` metadata that only admins can filter
by, and suggestions with their scores; these to records that Argilla calls completed and that have none by another
agent, since it shows suggestions to whoever answers. `remove` takes all of it away.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dissensus.exceptions import DataError
from dissensus.serve.events import Event, in_order, label_of, slug, span_text, time_of
from dissensus.serve.service import Service
from dissensus.serve.tool import AGENT, FIELD, MIN_CHANGE, Question, Tool, difference
from dissensus.serve.tool_client import Record, ToolClient
from dissensus.table.kinds import set_name

ID = "response-"  # how ids of annotations begin; decisions have others
PAGE = 500  # records of one call, in and back
SECONDS_BETWEEN_SYNCS = 20.0
KINDS = {"label_selection": "classes", "multi_label_selection": "sets", "rating": "graded", "span": "spans"}
METADATA = {"status": "terms", "confidence": "float", "agreement": "float"}  # field → its type in Argilla


class ArgillaClient(ToolClient):
    """Calls of one Argilla server (2.x); the key is that of an admin or the owner."""

    tool, things, key = "Argilla", "datasets", "key"
    where_key = "the API key of an admin: it is under My settings"

    def _authorized(self, method: str, path: str, body: Any) -> Any:
        return self._send(method, f"/api/v1{path}", body, {"X-Argilla-Api-Key": self._token})

    def records(self, dataset: str) -> Iterator[tuple[list[Record], int]]:
        """Pages of records with responses and suggestions, and how many records there are in all."""
        offset, total = 0, 1
        while offset < total:
            page = self.call("GET", f"/datasets/{dataset}/records", include="responses,suggestions", offset=offset,
                             limit=PAGE)  # fmt: skip
            yield page["items"], page["total"]
            offset, total = offset + PAGE, page["total"]


def event_of(item: str, response: Record, question: Question, who: str) -> Event:
    """What a response says to one question: a label, or none where it is a draft or discarded."""
    value = (response["values"] or {}).get(question.name, {}).get("value")
    text: str | None = None
    if response["status"] == "submitted" and question.kind == "spans":
        text = span_text(value or [], 0)  # who answered and marked nothing has read it
    elif response["status"] == "submitted" and value is not None:
        text = set_name(value) if question.kind == "sets" else label_of(value, 0)[0]
    version, at = in_order(response["updated_at"]), time_of(response["updated_at"])
    return Event("annotation", ID + str(response["id"]), item, who, text, version, at, of_kind=question.kind)


class Argilla(Tool):
    """A dataset of Argilla, kept in step with a service by a thread in the background."""

    first_wait = longest_wait = SECONDS_BETWEEN_SYNCS

    def __init__(self, service: Service, client: ArgillaClient, dataset: Record):
        super().__init__(service, f"argilla-{slug(dataset['name'])}")
        self.client, self.dataset, self.number = client, dataset, dataset["name"]
        self._there: dict[str, Record] = {}  # item → its record, as of the last sync, without responses

    def asked(self) -> tuple[str, list[Question]]:
        """The name, and the questions whose answers can be read."""
        asked = self.client.call("GET", f"/datasets/{self.dataset['id']}/questions")["items"]
        found = [
            Question(one["name"], KINDS[one["settings"]["type"]], f"{self.base}-{slug(one['name'])}", one)
            for one in asked
            if one["settings"]["type"] in KINDS
        ]
        if not found:
            raise DataError(f"dataset {self.number!r} of Argilla asks for no label, labels, rating or spans.")
        return self.number, found

    # In

    def sync(self) -> dict[str, int]:
        """Bring the projects up to what Argilla holds."""
        workspace = self.dataset["workspace_id"]
        users = self.client.call("GET", f"/workspaces/{workspace}/users")["items"]
        names = {one["id"]: one["username"] for one in users}
        held = self.held()
        there: dict[str, Record] = {}
        seen, totals, changed = set(), set(), 0
        for page, total in self.client.records(self.dataset["id"]):
            totals.add(total)
            records = {str(record["external_id"] or record["id"]): record for record in page}
            there |= records
            events = self.show((item, record["fields"]) for item, record in records.items())
            for item, record in records.items():
                for response in record.pop("responses") or []:
                    seen.add(ID + str(response["id"]))
                    who = names.get(response["user_id"], f"user {response['user_id']}")
                    for one in self.questions:
                        event = event_of(item, response, one, who)
                        known = held[one.project].get(event.id)
                        if known is None or known[1] != event.version:
                            events[one.project].append(event)
                            changed += 1
            self.append(events)
        whole = totals == {len(there)}  # else records came or went meanwhile, and a page may have missed some
        gone = {project: {id_ for id_ in ids.keys() - seen if id_.startswith(ID)} for project, ids in held.items()}
        gone = gone if whole else {}
        self.append({project: [Event("removal", one, "") for one in sorted(ids)] for project, ids in gone.items()})
        self._there = there
        return {"records": len(there), "changed": changed, "removed": len(set().union(*gone.values()))}

    def seen(self, question: Question, fields: Record) -> Record:
        """The fields of a record; the one that spans are of is its text."""
        text = fields.get(question.about["settings"].get("field"))
        return {**fields, "text": text} if isinstance(text, str) else fields

    # Back

    def wanted(self) -> dict[str, tuple[Record, list[Record]]]:
        """Item → its metadata by us, and our suggestions."""
        found: dict[str, tuple[Record, list[Record]]] = {}
        for question, row, told in self.answers():
            about, suggested = found.setdefault(row["item"], ({}, []))
            about |= {self.prefix(question) + key: told[key] for key in METADATA if key in told}
            value: Any = row["label"]
            if question.kind == "spans":
                value = [{key: one[key] for key in ("start", "end", "label")} for one in value]
            elif question.kind == "graded":
                value = int(value)
            sure = told.get("confidence")
            score = [sure] * len(value) if isinstance(value, list) else sure
            if value != []:  # which Argilla takes for no suggestion
                one = {"question_id": question.about["id"], "value": value, "agent": AGENT, "type": "model"}
                suggested.append(one if sure is None else one | {"score": score})
        return found

    def write_back(self) -> int:
        """Write what changed to the records of the last sync; how many changed."""
        wanted, changed = self.wanted(), []
        for item, record in self._there.items():
            about, suggested = wanted.get(item, ({}, []))
            if record["status"] != "completed":
                suggested = []
            others = {one["question_id"] for one in record["suggestions"] or () if one["agent"] != AGENT}
            suggested = [one for one in suggested if one["question_id"] not in others]
            if (update := self._update(record, about, suggested)) is not None:
                changed.append(update)
        if changed:
            self._make_metadata()
        self._put(changed)
        return len(changed)

    def _put(self, changed: list[Record]) -> None:
        for at in range(0, len(changed), PAGE):
            body = {"items": changed[at : at + PAGE]}
            self.client.call("PUT", f"/datasets/{self.dataset['id']}/records/bulk", body)

    def _update(self, record: Record, about: Record, suggested: list[Record]) -> Record | None:
        """What to send so that a record says this; None where it does. Suggestions that go are deleted at once."""
        old = record["metadata"] or {}
        ours = {key: value for key, value in old.items() if key.startswith(FIELD)}
        said = {one["question_id"]: one for one in record["suggestions"] or () if one["agent"] == AGENT}
        new = [one for one in suggested if _differ(one, said.get(one["question_id"]))]
        if gone := [said[id_]["id"] for id_ in said.keys() - {one["question_id"] for one in suggested}]:
            self.client.call("DELETE", f"/records/{record['id']}/suggestions", ids=",".join(gone))
        if not new and difference(about, ours) < MIN_CHANGE:
            return None
        rest = {key: value for key, value in old.items() if not key.startswith(FIELD)}
        return {"id": record["id"], "metadata": rest | about} | ({"suggestions": new} if new else {})

    def _make_metadata(self) -> None:
        """Tell Argilla of our metadata, that admins can filter by it; annotators do not see it."""
        there = {one["name"] for one in self._properties()}
        for question in self.questions:
            for key, kind in METADATA.items():
                name = self.prefix(question) + key
                if name not in there:
                    body: Record = {"name": name, "title": name.replace("_", " "), "settings": {"type": kind}}
                    body["visible_for_annotators"] = False
                    self.client.call("POST", f"/datasets/{self.dataset['id']}/metadata-properties", body)

    def _properties(self) -> list[Record]:
        found = self.client.call("GET", f"/me/datasets/{self.dataset['id']}/metadata-properties")["items"]
        return [one for one in found if one["name"].startswith(FIELD)]

    def remove(self) -> dict[str, int]:
        """Take suggestions and metadata away; what people did stays as it is."""
        self.link()
        self._there = {r["id"]: r for page, _ in self.client.records(self.dataset["id"]) for r in page}
        ours = sum(one["agent"] == AGENT for r in self._there.values() for one in r["suggestions"] or ())
        changed = [one for r in self._there.values() if (one := self._update(r, {}, [])) is not None]
        self._put(changed)
        properties = self._properties()
        for one in properties:
            self.client.call("DELETE", f"/metadata-properties/{one['id']}")
        return {"records": len(changed), "suggestions": ours, "metadata": len(properties)}

    def step(self) -> float:
        """Bring both sides up to date."""
        self.sync()
        self.write_back()
        return SECONDS_BETWEEN_SYNCS


def open_datasets(service: Service, client: ArgillaClient, names: Sequence[str] = ()) -> list[Argilla]:
    """One for each of the datasets named, or for the only one that there is."""
    there = {one["name"]: one for one in client.call("GET", "/me/datasets")["items"] if one["status"] == "ready"}
    chosen = client.choose(names, {name: name for name in there})
    return [Argilla(service, client, there[name]) for name in chosen]


def _differ(want: Record, there: Record | None) -> bool:
    """True where a suggestion is not there, or its score moved enough to be written again."""
    if there is None or there["value"] != want["value"]:
        return True
    new, old = ((one[0] if isinstance(one, list) else one) or 0.0 for one in (want.get("score"), there["score"]))
    return bool(abs(new - old) >= MIN_CHANGE)

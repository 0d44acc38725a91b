"""Synchronise with Argilla: read the responses of a dataset, and write the consensus back into its records.

Each question for a label, labels, a rating or spans becomes a project `argilla-<dataset>-<question>`. All records are
read every `SECONDS_BETWEEN_SYNCS`. The service writes metadata `dissensus_…`, by which only admins can filter, and
suggestions with their scores. Because Argilla shows suggestions to annotators, only completed records without
suggestions by another agent get one. `remove` deletes everything that was written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dissensus.serve.events import Event, make_slug, parse_seconds, to_sortable_version
from dissensus.serve.exceptions import NothingToServe
from dissensus.serve.requests import label_to_text, spans_to_text
from dissensus.serve.service import Service
from dissensus.serve.tool import AGENT_NAME, FIELD_PREFIX, MIN_CONFIDENCE_CHANGE, Tool, ToolQuestion, record_difference
from dissensus.serve.tool_client import Record, ToolClient
from dissensus.table.kinds import name_set

ID_PREFIX = "response-"  # The ids of annotations begin with this; those of decisions do not.
PAGE_SIZE = 500  # records per call when reading and writing
SECONDS_BETWEEN_SYNCS = 20.0
LABEL_KINDS = {"label_selection": "classes", "multi_label_selection": "sets", "rating": "graded", "span": "spans"}
METADATA_TYPES = {
    "status": "terms",
    "confidence": "float",
    "agreement": "float",
}  # metadata field → its type in Argilla


class ArgillaClient(ToolClient):
    """Client of one Argilla server (2.x)."""

    tool, units, secret_name, api = "Argilla", "datasets", "key", "/api/v1"
    secret_hint = "the API key of an admin: it is under My settings"

    def credentials(self) -> Record:
        """Return the API key as a header."""
        return {"headers": {"X-Argilla-Api-Key": self._token}}

    def records(self, dataset: str) -> Iterator[tuple[list[Record], int]]:
        """Yield pages of records with their responses and suggestions, each with the total number of records."""
        path, include = f"/datasets/{dataset}/records", "responses,suggestions"
        offset, total = 0, 1
        while offset < total:
            page = self.call("GET", path, include=include, offset=offset, limit=PAGE_SIZE)
            yield page["items"], page["total"]
            offset, total = offset + PAGE_SIZE, page["total"]


def response_to_event(item: str, response: Record, question: ToolQuestion, annotator: str) -> Event:
    """Return a response to one question as an event; a draft or discarded response has no label."""
    value = (response["values"] or {}).get(question.name, {}).get("value")
    text: str | None = None
    if response["status"] == "submitted" and question.kind == "spans":
        text = spans_to_text(value or [])  # A submitted response without spans states that there are none.
    elif response["status"] == "submitted" and value is not None:
        text = name_set(value) if question.kind == "sets" else label_to_text(value)[0]
    version, at = to_sortable_version(response["updated_at"]), parse_seconds(response["updated_at"])
    return Event(
        "annotation", ID_PREFIX + str(response["id"]), item, annotator, text, version, at, label_kind=question.kind
    )


class Argilla(Tool):
    """A dataset of Argilla that a background thread synchronises with a service."""

    first_wait = longest_wait = SECONDS_BETWEEN_SYNCS

    def __init__(self, service: Service, client: ArgillaClient, dataset: Record):
        super().__init__(service, f"argilla-{make_slug(dataset['name'])}")
        self.client, self.dataset, self.number = client, dataset, dataset["name"]
        self._records: dict[str, Record] = {}  # item → its record at the last sync, without responses

    def read_questions(self) -> tuple[str, list[ToolQuestion]]:
        """Return the name of the dataset and its supported questions."""
        found = [
            ToolQuestion(
                one["name"], LABEL_KINDS[one["settings"]["type"]], f"{self.base}-{make_slug(one['name'])}", one
            )
            for one in self.client.call("GET", f"/datasets/{self.dataset['id']}/questions")["items"]
            if one["settings"]["type"] in LABEL_KINDS
        ]
        if not found:
            raise NothingToServe(tool="Argilla", name=self.number, kinds=", ".join(LABEL_KINDS))
        return self.number, found

    def sync(self) -> dict[str, int]:
        """Read all responses of Argilla, and store what changed in the projects."""
        users = self.client.call("GET", f"/workspaces/{self.dataset['workspace_id']}/users")["items"]
        names = {user["id"]: user["username"] for user in users}
        stored = self.stored_labels()
        records: dict[str, Record] = {}
        seen, totals, changed = set(), set(), 0
        for page, total in self.client.records(self.dataset["id"]):
            totals.add(total)
            there = {str(record["external_id"] or record["id"]): record for record in page}
            records |= there
            events = self.item_events((item, record["fields"]) for item, record in there.items())
            for item, record in there.items():
                for response in record.pop("responses") or []:
                    seen.add(ID_PREFIX + str(response["id"]))
                    annotator = names.get(response["user_id"], f"user {response['user_id']}")
                    for question in self.questions:
                        event = response_to_event(item, response, question, annotator)
                        known = stored[question.project].get(event.id)
                        if known is None or known[1] != event.version:
                            events[question.project].append(event)
                            changed += 1
            self.append(events)
        whole = totals == {
            len(records)
        }  # Otherwise records were added or deleted meanwhile, and a page may have missed some.
        gone = {
            project: sorted(id_ for id_ in ids.keys() - seen if id_.startswith(ID_PREFIX))
            for project, ids in stored.items()
            if whole
        }
        self.append({project: [Event("removal", one, "") for one in ids] for project, ids in gone.items()})
        self._records = records
        return {"records": len(records), "changed": changed, "removed": len(set().union(*gone.values()))}

    def shown_fields(self, question: ToolQuestion, fields: Record) -> Record:
        """Return the fields of a record; the field that contains the spans becomes its text."""
        text = fields.get(question.about["settings"].get("field"))
        return {**fields, "text": text} if isinstance(text, str) else fields

    def record_contents(self) -> dict[str, tuple[Record, list[Record]]]:
        """Return the metadata and suggestions to write for every item with a label."""
        contents: dict[str, tuple[Record, list[Record]]] = {}
        for question, item, facts in self.iterate_answers():
            metadata, suggestions = contents.setdefault(item["item"], ({}, []))
            metadata |= {self.field_prefix(question) + key: facts[key] for key in METADATA_TYPES if key in facts}
            value: Any = item["label"]
            if question.kind == "spans":
                value = [{key: span[key] for key in ("start", "end", "label")} for span in value]
            elif question.kind == "graded":
                value = int(value)
            confidence = facts.get("confidence")
            score = [confidence] * len(value) if isinstance(value, list) else confidence
            if value != []:  # Argilla treats an empty list as no suggestion.
                one = {"question_id": question.about["id"], "value": value, "agent": AGENT_NAME, "type": "model"}
                suggestions.append(one if confidence is None else one | {"score": score})
        return contents

    def write_back(self) -> int:
        """Write changed metadata and suggestions to the records of the last sync; return how many records changed."""
        wanted, changed = self.record_contents(), []
        for item, record in self._records.items():
            metadata, suggestions = wanted.get(item, ({}, []))
            if record["status"] != "completed":
                suggestions = []
            others = {one["question_id"] for one in record["suggestions"] or () if one["agent"] != AGENT_NAME}
            suggestions = [one for one in suggestions if one["question_id"] not in others]
            if (update := self._make_update(record, metadata, suggestions)) is not None:
                changed.append(update)
        if changed:
            self._make_metadata()
        self._write_updates(changed)
        return len(changed)

    def _write_updates(self, changed: list[Record]) -> None:
        for at in range(0, len(changed), PAGE_SIZE):
            body = {"items": changed[at : at + PAGE_SIZE]}
            self.client.call("PUT", f"/datasets/{self.dataset['id']}/records/bulk", body)

    def _make_update(self, record: Record, metadata: Record, suggestions: list[Record]) -> Record | None:
        """Return the update of a record, or None if nothing changes; outdated suggestions are deleted at once."""
        old = record["metadata"] or {}
        ours = {key: value for key, value in old.items() if key.startswith(FIELD_PREFIX)}
        present = {one["question_id"]: one for one in record["suggestions"] or () if one["agent"] == AGENT_NAME}
        new = [one for one in suggestions if _suggestion_changed(one, present.get(one["question_id"]))]
        if gone := [present[id_]["id"] for id_ in present.keys() - {one["question_id"] for one in suggestions}]:
            self.client.call("DELETE", f"/records/{record['id']}/suggestions", ids=",".join(gone))
        if not new and record_difference(metadata, ours) < MIN_CONFIDENCE_CHANGE:
            return None
        rest = {key: value for key, value in old.items() if not key.startswith(FIELD_PREFIX)}
        return {"id": record["id"], "metadata": rest | metadata} | ({"suggestions": new} if new else {})

    def _make_metadata(self) -> None:
        """Declare our metadata in Argilla, so that admins can filter by it; it is hidden from annotators."""
        present = {one["name"] for one in self._own_properties()}
        names = {
            self.field_prefix(question) + key: kind
            for question in self.questions
            for key, kind in METADATA_TYPES.items()
        }
        for name in names.keys() - present:
            body: Record = {"name": name, "title": name.replace("_", " "), "settings": {"type": names[name]}}
            body["visible_for_annotators"] = False
            self.client.call("POST", f"/datasets/{self.dataset['id']}/metadata-properties", body)

    def _own_properties(self) -> list[Record]:
        found = self.client.call("GET", f"/me/datasets/{self.dataset['id']}/metadata-properties")["items"]
        return [one for one in found if one["name"].startswith(FIELD_PREFIX)]

    def remove(self) -> dict[str, int]:
        """Delete our suggestions and metadata from Argilla; responses stay unchanged."""
        self.create_projects()
        self._records = {one["id"]: one for page, _ in self.client.records(self.dataset["id"]) for one in page}
        records = self._records.values()
        ours = sum(one["agent"] == AGENT_NAME for record in records for one in record["suggestions"] or ())
        changed = [update for record in records if (update := self._make_update(record, {}, [])) is not None]
        self._write_updates(changed)
        properties = self._own_properties()
        for one in properties:
            self.client.call("DELETE", f"/metadata-properties/{one['id']}")
        return {"records": len(changed), "suggestions": ours, "metadata": len(properties)}

    def step(self) -> float:
        """Synchronise both directions, and return the seconds until the next time."""
        self.sync()
        self.write_back()
        return SECONDS_BETWEEN_SYNCS


def open_datasets(service: Service, client: ArgillaClient, names: Sequence[str] = ()) -> list[Argilla]:
    """Open the datasets with these names, or the only dataset."""
    ready = {one["name"]: one for one in client.call("GET", "/me/datasets")["items"] if one["status"] == "ready"}
    chosen = client.choose_units(names, {name: name for name in ready})
    return [Argilla(service, client, ready[name]) for name in chosen]


def _suggestion_changed(wanted: Record, present: Record | None) -> bool:
    """Return True if a suggestion is missing, or its score changed by `MIN_CONFIDENCE_CHANGE` or more."""
    if present is None or present["value"] != wanted["value"]:
        return True
    new, old = ((one[0] if isinstance(one, list) else one) or 0.0 for one in (wanted.get("score"), present["score"]))
    return bool(abs(new - old) >= MIN_CONFIDENCE_CHANGE)

"""Consensus next to a labelling tool: a log of annotations, answers that follow it, and an HTTP API.

| file | content |
|---|---|
| `events`, `store` | what can happen in a project; the log on a disk (SQLite, PostgreSQL) |
| `project`, `service` | the table of a log and its answers; the writer |
| `requests`, `answers` | bodies and answers of the API, as pydantic models |
| `app`, `routes`, `page`, `security`, `metrics` | the API, with FastAPI |
| `tokens` | who may do what |
| `tool`, `label_studio`, `argilla`, `watch` | labelling tools and folders that a service keeps in step |
"""

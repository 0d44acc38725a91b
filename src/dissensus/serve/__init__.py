"""Run a service next to a labelling tool: a log of annotations, current results computed from it, and an HTTP API.

| file | content |
|---|---|
| `events`, `store` | kinds of events; the log in a database (SQLite, PostgreSQL) |
| `project`, `service` | the state of one project; the single writer of all projects |
| `requests`, `responses` | bodies of requests and responses, as pydantic models |
| `app`, `routes`, `page`, `security`, `metrics` | the API, with FastAPI |
| `tokens` | tokens, roles and their permissions |
| `tool`, `label_studio`, `argilla`, `watch` | synchronisation with labelling tools and folders |
"""

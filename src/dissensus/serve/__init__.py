"""Consensus that lives beside the labelling tool: a log of annotations, answers that follow it, and an HTTP API.

`events` says what can happen, `store` keeps it (SQLite, PostgreSQL), `project` folds it into a table and its answers,
`service` writes, `app` speaks HTTP, `tool` keeps a labelling tool in step. FastAPI is imported by `app`, `page` and
`label_studio`, which has a webhook.
"""

"""What the OpenAPI document says of each route, and a page of it that loads nothing from elsewhere."""

from __future__ import annotations

import json
from html import escape
from typing import Any

ABOUT = "Answers of the tasks in a store. Tasks of all kinds share batches; new tasks appear without a restart."

_ITEM = {
    "type": "object",
    "required": ["task", "text"],
    "additionalProperties": False,
    "properties": {
        "task": {"type": "string", "description": "The name of a task."},
        "text": {
            "oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
            "description": "The text; for tagging, the words of a sentence do as well.",
        },
        "pair": {"type": "string", "description": "The second field of tasks learnt on pairs, such as the aspect."},
    },
}
_ANSWER = {
    "type": "object",
    "properties": {
        "task": {"type": "string"},
        "version": {"type": "integer"},
        "kind": {"enum": ["classification", "tagging", "generation"]},
        "answer": {"description": "A label, the tags of all words, or a text."},
        "confidence": {"description": "Chance of the label, or of each tag; null for texts."},
        "truncated": {"type": "boolean", "description": "The input was longer than the task takes, and was cut."},
        "words": {"type": "array", "items": {"type": "string"}},
        "unfinished": {"type": "boolean", "description": "A text that reached its limit before its end."},
        "error": {"type": "string", "description": "Instead of an answer, where this task alone could not answer."},
        "status": {"type": "integer"},
    },
}
_ERROR = {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}}
_WHY = {
    "400": "not JSON",
    "401": "a token is needed",
    "404": "no such task",
    "408": "the request came too slowly",
    "413": "the request is too large",
    "415": "not sent as JSON",
    "422": "JSON, but not what this route takes, or a text longer than the limit",
    "429": "too much is waiting; Retry-After says when to come back",
    "503": "this task is damaged, or the server is loading, stopping or too slow; nothing was answered",
}


def _json(schema: dict[str, Any], what: str) -> dict[str, Any]:
    return {"description": what, "content": {"application/json": {"schema": schema}}}


def _responses(schema: dict[str, Any], *codes: str) -> dict[str, Any]:
    return {"responses": {"200": _json(schema, "Answered."), **{code: _json(_ERROR, _WHY[code]) for code in codes}}}


PREDICT: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "oneOf": [
                        _ITEM,
                        {"type": "array", "items": _ITEM, "minItems": 1},
                        {"type": "object", "properties": {"items": {"type": "array", "items": _ITEM}}},
                    ]
                },
                "example": {"task": "reviews", "text": "A fine read."},
            }
        },
    },
    **_responses(
        {"oneOf": [_ANSWER, {"type": "object", "properties": {"answers": {"type": "array", "items": _ANSWER}}}]}, *_WHY
    ),
}
_OBJECT = {"type": "object"}
TASKS = _responses(
    {
        "type": "object",
        "properties": {
            "tasks": {"type": "array", "items": _OBJECT},
            "forgets": {
                "type": ["boolean", "null"],
                "description": "Whether later tasks can change earlier ones; null if all were learnt together.",
            },
        },
    },
    "401",
    "503",
)
OVERLAP = _responses(
    {
        "type": "object",
        "properties": {
            "tasks": {"type": "array", "items": {"type": "string"}},
            "equal": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
        },
    },
    "401",
    "503",
)
STATE = _responses(_OBJECT, "401", "503")
METRICS: dict[str, Any] = {"responses": {"200": {"description": "Text.", "content": {"text/plain": {}}}}}


def page(document: dict[str, Any]) -> str:
    """The OpenAPI document for a reader."""
    parts = []
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            codes = "".join(
                f"<tr><th scope=row>{escape(code)}</th><td>{escape(one['description'])}</td></tr>"
                for code, one in sorted(told["responses"].items())
            )
            body = told.get("requestBody", {}).get("content", {}).get("application/json", {}).get("example")
            sent = f"<pre>{escape(json.dumps(body, indent=1))}</pre>" if body else ""
            parts.append(
                f"<section class=card><h2><code>{method.upper()} {escape(path)}</code></h2>"
                f"<p>{escape(told['summary'])}.</p>{sent}<table class=plain><tbody>{codes}</tbody></table></section>"
            )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>tss: the routes</title>'
        '<meta name="viewport" content="width=device-width,initial-scale=1"><link rel="stylesheet" href="page.css">'
        f"</head><body><main><header class=top><h1>The routes</h1></header><p>"
        f"{escape(document['info']['description'])} "
        '<a href="openapi.json">openapi.json</a>, <a href="./">the page</a></p>'
        + "".join(parts)
        + "</main></body></html>"
    )

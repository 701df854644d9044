"""Owns the description of the API as OpenAPI 3.1, generated from the types of its parameters."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from windlass.core.document_fields import ROUTES, SHAPES, field_of
from windlass.version import __version__
from windlass.web.actions.action import AnyAction
from windlass.web.actions.registry import ACTIONS
from windlass.web.api.routes import ENDPOINTS, PREFIX, Endpoint
from windlass.web.problems import PROBLEM_JSON

Schema = dict[str, Any]
_REFERENCES = "#/components/schemas/{name}"
_PROBLEM: Schema = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "remedy"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "remedy": {"type": ["string", "null"]},
    },
}
_READING = {
    "400": "It cannot be read",
    "401": "The token is missing",
    "403": "The role does not allow it",
    "404": "There is no such thing",
    "409": "It is ambiguous, or in another state",
    "422": "A value is wrong",
    "503": "The store cannot be reached",
}
_ACTING = {**_READING, "413": "The body is too large"}


def openapi_document(root: str = "") -> Schema:
    """Describe every route of the API, under the prefix where the page is mounted."""
    forms = [each.form for each in ACTIONS.values()]
    _, components = msgspec.json.schema_components(
        [*dict.fromkeys(forms)], ref_template=_REFERENCES
    )
    paths: Schema = {PREFIX + each.path: {"get": _reading(each)} for each in ENDPOINTS}
    for action in ACTIONS.values():
        paths[f"{PREFIX}/actions/{action.name}"] = {"post": _acting(action)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Windlass",
            "version": __version__,
            "description": "The documents of `--json`, and the actions of the page.",
        },
        "servers": [{"url": root or "/"}],
        "security": [{"token": []}, {}],
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _reading(endpoint: Endpoint) -> Schema:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": {"type": "string", "pattern": "^[0-9a-f-]{8,36}$"},
            "description": "An id, or at least eight characters of one.",
        }
        for name in re.findall(r"{(\w+)}", endpoint.path)
    ]
    _, parts = msgspec.json.schema_components([endpoint.query], ref_template=_REFERENCES)
    properties = parts[endpoint.query.__name__]["properties"]
    in_query = [
        {"name": name, "in": "query", "required": False, "schema": _given(schema)}
        for name, schema in properties.items()
    ]
    document = {
        "type": "object",
        "required": list(endpoint.keys),
        "properties": {
            name: {"description": field_of(field).text}
            for name, field in SHAPES[ROUTES[endpoint.path]].items()
        },
    }
    return {
        "summary": endpoint.summary,
        "operationId": "get" + re.sub(r"\W+(\w)", lambda m: m[1].upper(), f" {endpoint.path}"),
        "parameters": [*in_path, *in_query],
        "responses": {"200": _response("The document", document), **_problems(_READING)},
    }


def _given(schema: Schema) -> Schema:
    """Return the schema of a parameter that is given: without its default."""
    return {name: value for name, value in schema.items() if name != "default"}


def _acting(action: AnyAction) -> Schema:
    reference = {"$ref": _REFERENCES.format(name=action.form.__name__)}
    document = {"type": "object", "required": ["message"]}
    return {
        "summary": action.label,
        "description": f"Takes the role {action.role}.",
        "operationId": re.sub(r"-(\w)", lambda m: m[1].upper(), action.name),
        "requestBody": {"required": True, "content": {"application/json": {"schema": reference}}},
        "responses": {"200": _response("Done", document), **_problems(_ACTING)},
    }


def _response(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _problems(statuses: dict[str, str]) -> Schema:
    schema = {"$ref": _REFERENCES.format(name="Problem")}
    return {
        status: {"description": text, "content": {PROBLEM_JSON: {"schema": schema}}}
        for status, text in statuses.items()
    }

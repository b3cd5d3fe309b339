"""The OpenAPI document is valid, and the server's responses match it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.http_client import HttpClient
from support.tasks.served_tasks import ServedTasks

from millstream import ServerAddress
from millstream.serdes import LONG
from millstream.server.server_settings import ServerOptions
from millstream.server.server_thread import HttpServer

TOKEN = "a-token-for-tests"
#: An example for each path; all of them are requested.
EXAMPLES = {
    "/health/live": "",
    "/health/ready": "",
    "/console/state": "",
    "/stores": "",
    "/stores/{store}/keys/{key}": "/stores/counts/keys/ann",
    "/stores/{store}/range": "/stores/counts/range?limit=1",
    "/stores/{store}/windows": "/stores/minutes/windows",
    "/stores/{store}/windows/{key}": "/stores/minutes/windows/ann?from=0&to=9",
    "/stores/{store}/sessions/{key}": "/stores/visits/sessions/ann",
    "/stores/{store}/versions/{key}": "/stores/prices/versions/ann",
    "/metadata/threads": "",
    "/metadata/topology": "",
    "/metadata/instances": "",
    "/metadata/stores/{store}": "/metadata/stores/counts",
    "/metadata/stores/{store}/keys/{key}": "/metadata/stores/counts/keys/ann",
    "/metadata/lags": "",
    "/subscription/properties": "",
    "/openapi.json": "",
}
#: Paths without JSON responses.
OTHERS = {"/console/events", "/metrics", "/internal/query"}


@pytest.fixture(scope="module")
def client() -> Iterator[HttpClient]:
    with ServedTasks(1) as served:
        served.click(["ann", "bob"], time=5)
        served.tasks[0].write("prices-in", b"ann", LONG.serialize("", 3), 9)
        served.property_values = {"partition_concurrency": 1}
        serving = HttpServer(served, ServerOptions("127.0.0.1", 0, TOKEN))
        yield HttpClient(ServerAddress(f"http://127.0.0.1:{serving.port}", TOKEN))
        serving.close()


@pytest.fixture(scope="module")
def document(client: HttpClient) -> Any:
    return client.get("openapi.json")


def operations(document: Any) -> Iterator[tuple[str, str, Any]]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield path, method, operation


def validator(document: Any, name: str) -> Draft202012Validator:
    return Draft202012Validator(
        {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    )


def test_the_document_is_valid(document: Any) -> None:
    """Names are unique, references exist, paths match their parameters."""
    assert document["openapi"].startswith("3.1.")
    assert document["security"] == [{"token": []}]
    names = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(names) == len(set(names))
    text = str(document)
    for reference in set(re.findall(r"#/components/schemas/(\w+)", text)):
        assert reference in document["components"]["schemas"]
    for schema in document["components"]["schemas"].values():
        Draft202012Validator.check_schema(schema)
    for path, _, operation in operations(document):
        given = [each["name"] for each in operation["parameters"] if each["in"] == "path"]
        assert given == re.findall(r"{(\w+)}", path)
        assert all(each["required"] for each in operation["parameters"] if each["in"] == "path")
        assert all(each["description"] for each in operation["parameters"])
        assert operation["responses"].keys() >= {"200", "400", "500"}
        is_open = operation.get("security") == []
        assert is_open is path.startswith("/health/")
        assert is_open is ("401" not in operation["responses"])


def test_all_paths_have_an_example(document: Any) -> None:
    """A new path needs an example above."""
    assert document["paths"].keys() == EXAMPLES.keys() | OTHERS


@pytest.mark.parametrize("path", EXAMPLES)
def test_responses_match_their_schemas(client: HttpClient, document: Any, path: str) -> None:
    """Each response matches its schema, and has no fields that the schema lacks."""
    operation = document["paths"][path]["get"]
    status, answer = client.request(EXAMPLES[path] or path)
    described = operation["responses"][str(status)]["content"]["application/json"]["schema"]
    name = described["$ref"].rpartition("/")[2]
    problems = list(validator(document, name).iter_errors(answer))
    assert not problems, problems
    if name not in {"ConsoleState", "Topology", "OpenApi", "Properties"}:
        assert undocumented(answer, document["components"]["schemas"][name], document) == []


def undocumented(answer: Any, schema: Any, document: Any) -> list[str]:
    """The fields of a response that are not in its schema."""
    if isinstance(answer, list):
        return [name for each in answer for name in undocumented(each, schema["items"], document)]
    if not isinstance(answer, dict) or "properties" not in schema:
        return []
    known = schema["properties"]
    found = [name for name in answer if name not in known]
    for name in answer.keys() & known.keys():
        found += undocumented(answer[name], known[name], document)
    return found


def test_errors_match_their_schemas(client: HttpClient, document: Any) -> None:
    """One error of each kind."""
    for path, given in (
        ("/stores/nowhere/range", {}),
        ("/stores/counts/range?limit=x", {}),
        ("/stores", {"token": None}),
        ("/stores", {"method": "PUT", "body": b"{}"}),
        ("/subscription/properties", {"method": "PUT", "body": b"{"}),
    ):
        status, answer = client.request(path, **given)
        assert status >= 400
        assert not list(validator(document, "Error").iter_errors(answer))

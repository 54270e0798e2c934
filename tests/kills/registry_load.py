"""Clients that register schemas without end, and what must hold of all they were told."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

RETRIED = (408, 429, 500, 502, 503, 504)
PATIENCE_S = 60.0


@dataclass
class Told:
    """What clients were told, all threads together."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    meaning: dict[int, str] = field(default_factory=dict)
    """Id -> schema."""
    versions: dict[tuple[str, int], str] = field(default_factory=dict)
    """(subject, version) -> schema, of what was not erased again."""
    faults: list[str] = field(default_factory=list)
    retries: Counter[str] = field(default_factory=Counter)
    registered: int = 0
    erased: int = 0

    def registration(self, subject: str, version: int, schema_id: int, schema: str) -> None:
        with self.lock:
            self.registered += 1
            known = self.meaning.setdefault(schema_id, schema)
            if known != schema:
                self.faults.append(f"id {schema_id} was given to {known} and to {schema}")
            self.versions[subject, version] = schema

    def erasure(self, subject: str, versions: list[int]) -> None:
        with self.lock:
            self.erased += 1
            for version in versions:
                self.versions.pop((subject, version), None)


class Refused(Exception):
    """An answer that no retry changes."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(f"{status}: {body}")
        self.code = body.get("error_code") if isinstance(body, dict) else None


def request(url: str, method: str, path: str, body: Any = None, **headers: str) -> Any:
    """One request. Raises Refused, OSError, HTTPException."""
    data = None if body is None else json.dumps(body).encode()
    asked = urllib.request.Request(
        url + path, data, {"content-type": "application/json", **headers}, method=method
    )
    try:
        with urllib.request.urlopen(asked, timeout=15) as answer:
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        status, text = error.code, error.read()
        raise Refused(status, json.loads(text or b"null")) from None


class Client(threading.Thread):
    """Registers numbered schemas, erasing some again, until ``done``; retries like clients do."""

    def __init__(self, urls: list[str], name: str, told: Told, done: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.urls, self.told, self.done = urls, told, done
        self.failure: Exception | None = None
        self._turn = 0

    def run(self) -> None:
        number = 0
        try:
            while not self.done.is_set():
                number += 1
                self.register(f"{self.name}-{number % 5}", f"{self.name}_{number}")
                if number % 7 == 0:
                    self.erase(f"{self.name}-erased", f"{self.name}_E{number}")
        except Exception as error:  # noqa: BLE001 - shown by the test
            self.failure = error

    def register(self, subject: str, name: str) -> None:
        schema = json.dumps({"type": "fixed", "name": name, "size": 1}, separators=(",", ":"))
        answer = self.ask("POST", f"/subjects/{quote(subject)}/versions", {"schema": schema})
        self.told.registration(subject, answer["version"], answer["id"], schema)

    def erase(self, subject: str, name: str) -> None:
        """Register and delete for good: the id must not come back with another meaning."""
        self.register(subject, name)
        path = f"/subjects/{quote(subject)}"
        for query, gone_before in (("", (40401, 40404)), ("?permanent=true", (40401,))):
            try:
                self.ask("DELETE", path + query)
            except Refused as error:
                if error.code not in gone_before:  # done by a try whose answer was lost
                    raise
        self.told.erasure(subject, list(range(1, 1000)))

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            url = self.urls[self._turn % len(self.urls)]
            try:
                return request(url, method, path, body)
            except Refused as error:
                if int(str(error).split(":")[0]) not in RETRIED:
                    raise
                reason = str(error.code)
            except (OSError, HTTPException) as error:
                reason = type(error).__name__
            with self.told.lock:
                self.told.retries[reason] += 1
            self._turn += 1
            if time.monotonic() > deadline:
                raise TimeoutError(f"{method} {path} did not succeed in {PATIENCE_S:.0f} s")
            time.sleep(0.02)


def judge(told: Told, url: str) -> None:
    """Everything that was acknowledged is there, under the id that was told."""
    assert not told.faults, told.faults[:5]
    wrong = []
    for (subject, version), schema in told.versions.items():
        found = request(url, "GET", f"/subjects/{quote(subject)}/versions/{version}")
        if found["schema"] != schema:
            wrong.append(f"{subject} version {version} is {found['schema']}, not {schema}")
        if told.meaning[found["id"]] != schema:
            wrong.append(f"{subject} version {version} has id {found['id']} of another schema")
    assert not wrong, wrong[:5]
    everything = request(url, "GET", "/schemas?deleted=true&limit=1000")
    ids: dict[int, str] = {}
    for one in everything:
        assert ids.setdefault(one["id"], one["schema"]) == one["schema"]

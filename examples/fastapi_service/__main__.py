"""Order a report from the service, watch it, and fetch it."""

from __future__ import annotations

from fastapi.testclient import TestClient

from examples.fastapi_service.api import api


def main() -> None:
    """Run the example from start to end."""
    with TestClient(api) as client:
        ordered = client.post("/reports", json={"month": "2026-01", "pages": 3})
        print(f"ordered: {ordered.status_code}")
        place = ordered.headers["location"]
        for line in client.get(f"{place}/stream").text.splitlines():
            if line:
                print(line)
        print(client.get(place).json()["result"])
        print(f"no such report: {client.get('/reports/' + 32 * '0').status_code}")


if __name__ == "__main__":
    main()

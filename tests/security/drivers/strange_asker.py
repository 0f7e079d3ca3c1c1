"""Ask ports what a stranger may ask: py4j's two servers, Spark's UI, a Python worker, anything.

Needs the standard library only: a test asks without credentials, a script within another driver
with that driver's own.
"""

import json
import socket
import struct
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CONNECTS_WITHIN_S, ANSWERS_WITHIN_S = 5.0, 0.5
_OBJECTS = [f"p{number}" for number in range(6)]  # as py4j numbers what the JVM may call


def questions(secrets: Iterable[str]) -> dict[str, list[bytes]]:
    """Return what to send, by name; a list is sent one after the other, each answer awaited."""
    calls = {f"calls {one}": f"c\n{one}\n__repr__\ne\n".encode() for one in _OBJECTS}
    calls["calls Java"] = b"c\nGATEWAY_SERVER\ngetPort\ne\n"
    asked = {
        **{name: [call] for name, call in calls.items()},
        "asks as a browser": [b"GET /jobs/ HTTP/1.1\r\nHost: localhost\r\n\r\n"],
        "says nothing": [b""],
        "speaks nonsense": [b"\0\0\0\0\0\0\0\x15" + b"\xac\xed\0\5" * 3],
    }
    for number, secret in enumerate(secrets):
        login = f"A\n{secret}\ne\n".encode()
        asked |= {f"{name} with key {number}": [login, call] for name, call in calls.items()}
        framed = struct.pack("!i", len(secret)) + secret.encode()
        asked[f"asks a worker with key {number}"] = [framed]
        asked[f"counts with key {number}"] = [secret.encode()]  # as an accumulator's update begins
    return asked | {f"has {one} removed": [f"g\n{one}\ne\n".encode()] for one in _OBJECTS}


def ask(ports: Iterable[int], secrets: Iterable[str] = ("guessed",)) -> dict[int, dict[str, str]]:
    """Return every answer of each port on the loopback, "" where it hangs up or is silent."""
    asked = questions(secrets)
    with ThreadPoolExecutor(16) as pool:
        waiting = {
            port: {name: pool.submit(_answer, port, parts) for name, parts in asked.items()}
            for port in ports
        }
        return {
            port: {name: answer.result() for name, answer in answers.items()}
            for port, answers in waiting.items()
        }


def _answer(port: int, parts: list[bytes]) -> str:
    heard = b""
    try:
        with socket.create_connection(("127.0.0.1", port), CONNECTS_WITHIN_S) as connection:
            connection.settimeout(ANSWERS_WITHIN_S)
            for part in parts:
                connection.sendall(part)
                heard = connection.recv(65_536)
    except OSError:
        return heard.decode("latin-1")
    return heard.decode("latin-1")


def ask_from_files(ports: Path, found: Path, secrets: Iterable[str]) -> None:
    """Ask the ports that a file names, and leave the answers in another."""
    answers = ask(json.loads(ports.read_text()), secrets)
    draft = found.with_suffix(".draft")
    draft.write_text(json.dumps(answers))
    draft.rename(found)

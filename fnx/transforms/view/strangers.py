"""Unauthenticated connections: limit their number and time, and drop silent ones first.

Any program of any user can connect. Each connection has a thread until it has sent its request, so
at most ``MOST`` wait at a time, for ``SECONDS`` each. If one more connects, the oldest that has
sent nothing is closed: a client that knows the token sends it at once, and is not kept waiting.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time

MOST, SECONDS = 32, 5.0


class Strangers:
    """The waiting connections, oldest first."""

    def __init__(self) -> None:
        self._since: dict[socket.socket, float] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._since)

    def add(self, connection: socket.socket) -> None:
        """Add a connection; close a silent one if there are too many."""
        with self._lock:
            while len(self._since) >= MOST:
                self._close(self._silent())
            self._since[connection] = time.monotonic()

    def leave(self, connection: socket.socket) -> None:
        """Remove a connection that is authenticated or closed."""
        with self._lock:
            self._since.pop(connection, None)

    def close_old(self) -> None:
        """Close connections that have exceeded their time, whatever they have sent."""
        with self._lock:
            end = time.monotonic() - SECONDS
            for connection in [c for c, since in self._since.items() if since < end]:
                self._close(connection)

    def _silent(self) -> socket.socket:
        """Return the oldest connection without data to read; else the oldest."""
        waiting = select.poll()
        for connection in self._since:
            waiting.register(connection, select.POLLIN)
        readable = {number for number, _ in waiting.poll(0)}
        return next((c for c in self._since if c.fileno() not in readable),
                    next(iter(self._since)))

    def _close(self, connection: socket.socket) -> None:
        """Shut a connection down: its thread reads the end of file and closes it."""
        del self._since[connection]
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

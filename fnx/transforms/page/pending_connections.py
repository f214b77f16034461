"""Unauthenticated connections: limit their number and time, and drop silent ones first.

Any program of any user can connect. Each connection has a thread until it has sent its request, so
at most ``MAX_PENDING`` wait at a time, for ``TIMEOUT`` each. If one more connects, the oldest that
has
sent nothing is closed: a client that knows the token sends it at once, and is not kept waiting.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time

MAX_PENDING, TIMEOUT = 32, 5.0


class PendingConnections:
    """The waiting connections, oldest first."""

    def __init__(self) -> None:
        self._start_times: dict[socket.socket, float] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._start_times)

    def add(self, connection: socket.socket) -> None:
        """Add a connection; close a silent one if there are too many."""
        with self._lock:
            while len(self._start_times) >= MAX_PENDING:
                self._close(self._oldest_silent())
            self._start_times[connection] = time.monotonic()

    def remove(self, connection: socket.socket) -> None:
        """Remove a connection that is authenticated or closed."""
        with self._lock:
            self._start_times.pop(connection, None)

    def close_expired(self) -> None:
        """Close connections that have exceeded their time, whatever they have sent."""
        with self._lock:
            deadline = time.monotonic() - TIMEOUT
            for connection in [c for c, since in self._start_times.items() if since < deadline]:
                self._close(connection)

    def _oldest_silent(self) -> socket.socket:
        """Return the oldest connection without data to read; else the oldest."""
        poller = select.poll()
        for connection in self._start_times:
            poller.register(connection, select.POLLIN)
        readable = {number for number, _ in poller.poll(0)}
        return next((c for c in self._start_times if c.fileno() not in readable),
                    next(iter(self._start_times)))

    def _close(self, connection: socket.socket) -> None:
        """Shut a connection down: its thread reads the end of file and closes it."""
        del self._start_times[connection]
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

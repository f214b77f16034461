"""Connections that have not said the token yet: few, for a short time, the silent go first.

Any program of any user can connect. Each connection has a thread until it has sent its request; so
at most ``MOST`` wait at a time, ``SECONDS`` each. Where one more comes, the oldest is closed of
those that have sent nothing: who knows the token sends it at once, and is not kept waiting.
"""

from __future__ import annotations

import contextlib
import select
import socket
import threading
import time

MOST, SECONDS = 32, 5.0


class Strangers:
    """The connections that wait, the oldest first."""

    def __init__(self) -> None:
        self._since: dict[socket.socket, float] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._since)

    def add(self, connection: socket.socket) -> None:
        """One more, in place of one that is silent where there are too many."""
        with self._lock:
            while len(self._since) >= MOST:
                self._close(self._silent())
            self._since[connection] = time.monotonic()

    def leave(self, connection: socket.socket) -> None:
        """It has said the token, or is gone."""
        with self._lock:
            self._since.pop(connection, None)

    def close_old(self) -> None:
        """Close those whose time is over, whatever they send."""
        with self._lock:
            end = time.monotonic() - SECONDS
            for connection in [c for c, since in self._since.items() if since < end]:
                self._close(connection)

    def _silent(self) -> socket.socket:
        """The oldest that has nothing to be read; else the oldest."""
        waiting = select.poll()
        for connection in self._since:
            waiting.register(connection, select.POLLIN)
        readable = {number for number, _ in waiting.poll(0)}
        return next((c for c in self._since if c.fileno() not in readable),
                    next(iter(self._since)))

    def _close(self, connection: socket.socket) -> None:
        """Its thread reads the end, and closes it."""
        del self._since[connection]
        with contextlib.suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)

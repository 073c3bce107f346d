"""Ports for the servers of a check. This module must not know the servers."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Ports of the loopback address that are free now, each another one."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports

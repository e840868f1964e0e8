"""Starts `evenkeel sim` and ends it: for real clients that take it for a Proxmox VE."""

import contextlib
import json
import subprocess


# How long anything may take on a busy machine.
PATIENCE_S = 120


@contextlib.contextmanager
def simulated(binary, release, guests=0):
    """Yields what the simulator announces: url, token, node and fingerprint."""
    arguments = ["--listen", "127.0.0.1:0", "--pve", release, "--guests", str(guests)]
    command = [binary, "sim", "-o", "json", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line, "the simulator ended before it was ready"
            yield json.loads(line)
        finally:
            process.terminate()
            assert process.wait(timeout=PATIENCE_S) == 0, "the simulator did not end well"

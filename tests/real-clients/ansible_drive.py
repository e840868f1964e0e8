"""Runs the playbook against `evenkeel sim`: usage BINARY RELEASE ANSIBLE_PLAYBOOK."""

import json
import pathlib
import subprocess
import sys
from urllib.parse import urlsplit

from simulated import simulated


def main(binary, release, ansible_playbook):
    with simulated(binary, release, guests=10) as ready:
        server = urlsplit(ready["url"])
        values = {
            "api_host": server.hostname,
            "api_port": server.port,
            "node": ready["node"],
            "token": ready["token"],
            "ansible_python_interpreter": sys.executable,
        }
        playbook = pathlib.Path(__file__).with_name("playbook.yml")
        command = [ansible_playbook, str(playbook), "--extra-vars", json.dumps(values)]
        sys.exit(subprocess.run(command, check=False, timeout=300).returncode)


if __name__ == "__main__":
    main(*sys.argv[1:])

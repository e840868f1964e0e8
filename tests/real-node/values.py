"""The values that are written and read back: key, what a desired file says, and what the node must then have.

Where the third part is missing the node has the text of the second. Each round is one declaration for a guest; a key that
is `None` is unset by it.
"""

TEXTS = ["one line", "two\nlines", "ümläut: 100 % = # ; \\ \"quoted\"", "a: b\n\n* a list\n* of two"]


def parts(text):
    """A property string as a set, because the node may order it otherwise and name its first part or not."""
    first = ("order=", "enabled=", "cputype=", "type=")
    return {part.split("=", 1)[1] if part.startswith(first) else part for part in str(text).split(",") if part}


# A declared default may be stored or not: both are the same guest.
DEFAULTS = {
    "acpi": "1", "tablet": "1", "reboot": "1", "onboot": "0", "numa": "0", "localtime": "0", "tdf": "0", "sockets": "1",
    "cores": "1", "cpulimit": "0", "vga": "std", "ostype": "other", "hotplug": "network,disk,usb", "cmode": "tty",
}


def same(key, wanted, found):
    """Whether the node has what was wanted, in the node's own spelling."""
    if found is None:
        return wanted is None or DEFAULTS.get(key) == wanted
    if wanted is None:
        return False
    if key == "description":
        return str(found).rstrip("\n") == wanted.rstrip("\n")
    if key == "tags":
        return set(str(found).split(";")) == set(wanted.split(";"))
    if key.startswith("net"):
        # The address of a card is the node's to choose.
        names = ("hwaddr=", "virtio=", "e1000=")
        bare = {part for part in parts(found) - {"veth"} if not part.startswith(names)}
        return bare == {part for part in parts(wanted) if part not in ("virtio", "e1000")}
    if key == "cpulimit":
        return float(found) == float(wanted)
    return parts(found) == parts(wanted)


def lxc_rounds(bridge):
    """The rounds of a container."""
    net = f"name=eth0,bridge={bridge}"
    return [
        {
            "hostname": "ek-one", "description": TEXTS[0], "tags": ["one"], "cores": 1, "cpulimit": 1,
            "cpuunits": 200, "memory": 96, "swap": 0, "onboot": True, "startup": "order=3",
            "nameserver": "192.0.2.53", "searchdomain": "example", "timezone": "Europe/Berlin", "tty": 1,
            "cmode": "shell", "net0": f"{net},ip=manual",
        },
        {
            "hostname": "ek-two.example", "description": TEXTS[1], "tags": ["b", "a"], "cores": 2, "cpulimit": 0.5,
            "cpuunits": 512, "memory": 128, "swap": 64, "onboot": False, "startup": "order=1,up=10,down=20",
            "nameserver": "192.0.2.53 2001:db8::53", "searchdomain": "example.org", "timezone": "host", "tty": 4,
            "cmode": "console", "net0": f"{net},ip=192.0.2.10/24,firewall=1,mtu=1400",
        },
        {
            "hostname": "ek-three", "description": TEXTS[2], "tags": ["prod-1", "web", "x.y"], "cores": None,
            "cpulimit": 2, "cpuunits": 1024, "memory": 64, "swap": 128, "onboot": True, "startup": None,
            "nameserver": None, "searchdomain": None, "timezone": "Pacific/Auckland", "tty": 6, "cmode": "tty",
            "net0": f"{net},ip=manual,ip6=manual,rate=5",
        },
    ]


def qemu_rounds(bridge):
    """The rounds of a machine."""
    net = f"bridge={bridge},link_down=1"
    return [
        {
            "name": "ek-one", "description": TEXTS[0], "tags": ["one"], "cores": 1, "sockets": 1, "cpu": "qemu64",
            "memory": 96, "balloon": 0, "onboot": True, "startup": "order=3", "agent": "1", "acpi": True,
            "tablet": False, "vga": "std", "ostype": "l26", "numa": False, "localtime": True, "keyboard": "de",
            "cpulimit": 1, "cpuunits": 200, "net0": f"virtio,{net}", "hotplug": "network,disk,usb",
        },
        {
            "name": "ek-two.example", "description": TEXTS[3], "tags": ["b", "a"], "cores": 2, "sockets": 1,
            "cpu": "Nehalem", "memory": 128, "balloon": 64, "onboot": False, "startup": "order=1,up=10,down=20",
            "agent": "1,fstrim_cloned_disks=1", "acpi": True, "tablet": True, "vga": "virtio", "ostype": "other",
            "numa": True, "localtime": False, "keyboard": "en-us", "cpulimit": 0.5, "cpuunits": 512,
            "net0": f"e1000,{net},firewall=1", "hotplug": "network,usb", "shares": 500,
        },
        {
            "name": "ek-three", "description": TEXTS[2], "tags": ["prod-1", "web", "x.y"], "cores": 1, "sockets": 2,
            "cpu": "qemu64", "memory": 64, "balloon": None, "onboot": True, "startup": None, "agent": None,
            "acpi": True, "tablet": True, "vga": None, "ostype": "l26", "numa": False, "localtime": None,
            "keyboard": None, "cpulimit": None, "cpuunits": 1024, "net0": f"virtio,{net},rate=5", "hotplug": None,
            "shares": None, "tdf": False, "reboot": True,
        },
    ]


def wanted(value):
    """What the node must show for a declared value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "1" if value else "0"
    if isinstance(value, list):
        return ";".join(value)
    return str(value)

//! What a document of a hub may change that nobody signed: every key with its mark, in a text that a reviewer reads.
//! `EVENKEEL_BLESS=1` writes it anew.
#![expect(clippy::disallowed_methods, reason = "a test reads and writes its case file")]

use std::fmt::Write as _;

use evenkeel_core::model::id::GuestKind;
use evenkeel_core::registry::table;

#[test]
fn z06_an_unsigned_document_changes_exactly_what_the_list_of_keys_allows() {
    let mut listed = String::from(
        "# Which keys a document of a hub may change that nobody signed. A key is `may` only if it lets nobody into a guest,\n\
         # sends no traffic elsewhere, changes nothing that runs in it or on the host, and misleads nobody who signs an act.\n",
    );
    for kind in GuestKind::ALL {
        for key in table(kind) {
            let name =
                if key.slots.is_some() { format!("{}N", key.name) } else { key.name.to_owned() };
            let mark = if key.hub_may { "may" } else { "held" };
            writeln!(listed, "{kind} {name:<20} {mark}").unwrap();
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases/hub_may.txt");
    if std::env::var_os("EVENKEEL_BLESS").is_some() {
        std::fs::write(path, &listed).unwrap();
    }
    assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), listed);
    // What the case file must never allow, whatever a blessing writes.
    let never = [
        "args",
        "bios",
        "boot",
        "cicustom",
        "cipassword",
        "citype",
        "ciupgrade",
        "ciuser",
        "cmode",
        "dev",
        "entrypoint",
        "env",
        "features",
        "hookscript",
        "hostname",
        "hostpci",
        "ide",
        "ipconfig",
        "mp",
        "name",
        "nameserver",
        "net",
        "onboot",
        "rootfs",
        "sata",
        "scsi",
        "searchdomain",
        "serial",
        "smbios1",
        "sshkeys",
        "startup",
        "tags",
        "usb",
        "vga",
        "virtio",
        "virtiofs",
    ];
    for key in GuestKind::ALL.into_iter().flat_map(table) {
        assert!(!(key.hub_may && never.contains(&key.name)), "{}", key.name);
    }
}

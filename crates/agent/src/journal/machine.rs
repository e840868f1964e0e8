//! Which machine this is: a journal belongs to one, and is refused on another.

use std::io;

use fs_err as fs;

use super::Stamp;

/// systemd's name for this installation; Proxmox VE has it, as every Debian.
const MACHINE_ID: &str = "/etc/machine-id";

/// The kernel's own word for a fresh random name.
const RANDOM_UUID: &str = "/proc/sys/kernel/random/uuid";

impl Stamp {
    /// The stamp of this machine, with a new epoch in case there is no journal yet.
    pub fn of_this_machine() -> io::Result<Self> {
        let machine = fs::read_to_string(MACHINE_ID)?.trim().to_owned();
        if machine.len() != 32 || !machine.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            let why = format!("{MACHINE_ID} does not hold 32 hexadecimal digits");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        let new_epoch = fs::read_to_string(RANDOM_UUID)?.trim().to_owned();
        Ok(Self { machine, new_epoch })
    }
}

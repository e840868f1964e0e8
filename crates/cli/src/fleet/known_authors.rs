//! The person's own list of authors: whose signatures make a fetched document a verified one.
//!
//! One line a key in `known_authors`, beside `known_hosts`: the host or `*`, then the key as a `.pub` file has it. Hosts do
//! not read it: whose documents a host takes stands in its trust file. It is never filled from a hub.

use camino::Utf8Path;
use evenkeel_core::model::id::HostId;
use evenkeel_core::sign::PublicKey;

use super::place::config_dir;
use crate::error::{CommandFailure, Exit};
use crate::signing::file;

/// The largest file that is read: thousands of keys.
const KNOWN_AUTHORS_BYTES_MAX: usize = 1024 * 1024;

/// What stands for every host.
const EVERY_HOST: &str = "*";

/// The keys of authors of one host, as this person trusts them; the file need not be there.
pub(crate) fn of(host: &HostId) -> Result<Vec<PublicKey>, CommandFailure> {
    read_from(&config_dir()?.join("known_authors"), host)
}

fn read_from(path: &Utf8Path, host: &HostId) -> Result<Vec<PublicKey>, CommandFailure> {
    if !path.as_std_path().exists() {
        return Ok(Vec::new());
    }
    let text = file::read_text(path, KNOWN_AUTHORS_BYTES_MAX)?;
    let mut keys = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let parted = line.split_once(char::is_whitespace);
        let read = parted.map(|(name, key)| (name, PublicKey::from_line(key.trim_start())));
        let Some((name, Ok(key))) = read else {
            let message = format!("line {} of {path} is no host and key", number + 1);
            let hint = "write `HOST ssh-ed25519 AAAA…`, or `*` for every host; nothing is taken from the file";
            return Err(CommandFailure::new(Exit::Invalid, message).hint(hint));
        };
        if name == EVERY_HOST || name == host.as_str() {
            keys.push(key);
        }
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use camino::Utf8PathBuf;

    use super::*;

    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICfa12uZnFamG2KgW91fUm7tqKfgBIfx+yup6p2YN5lS";

    #[test]
    fn an_author_is_known_for_the_hosts_that_are_named_and_a_bad_line_spoils_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = Utf8PathBuf::from_path_buf(directory.path().join("known_authors")).unwrap();
        let of = |text: &str, host: &str| {
            fs_err::write(&path, text).unwrap();
            read_from(&path, &host.parse().unwrap()).map(|keys| keys.len())
        };
        assert_eq!(of(&format!("# ours\n\npve1 {KEY} ada\n"), "pve1").unwrap(), 1);
        assert_eq!(of(&format!("pve1 {KEY} ada\n"), "pve11").unwrap(), 0);
        assert_eq!(of(&format!("* {KEY}\npve1 {KEY}\n"), "pve1").unwrap(), 2);
        for bad in ["pve1\n", "pve1 ssh-rsa AAAA\n", &format!("{KEY}\n")] {
            assert_eq!(of(bad, "pve1").unwrap_err().exit, Exit::Invalid, "{bad}");
        }
    }
}

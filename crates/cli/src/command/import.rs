//! `evenkeel import [VMID…] --out DIR`: desired files for guests that exist, one file a guest.
//!
//! Only reads from the node. A file that is there already is left alone unless `--force` says otherwise.

use std::collections::BTreeSet;
use std::io::Write as _;

use evenkeel_agent::observe::{CONCURRENCY, observe};
use evenkeel_core::actual::Guest;
use evenkeel_core::import::desired_file;

use crate::cli::Import;
use crate::connect::connect;
use crate::error::{Exit, Failure};
use crate::render::counted;

pub(crate) async fn run(arguments: &Import) -> Result<Exit, Failure> {
    let connection = connect(&arguments.connect).await?;
    let named: BTreeSet<_> = arguments.guests.iter().copied().collect();
    let snapshot = observe(&connection.client, &named, CONCURRENCY).await?;
    if let Some(missing) = named.iter().find(|vmid| !snapshot.guests.contains_key(vmid)) {
        let message = format!("there is no guest {missing} on node {}", snapshot.node);
        return Err(Failure::new(Exit::NotFound, message)
            .hint("`pvesh get /cluster/resources --type vm` lists the guests of all nodes"));
    }
    fs_err::create_dir_all(arguments.out.as_std_path())?;
    let chosen =
        snapshot.guests.values().filter(|guest| named.is_empty() || named.contains(&guest.id.vmid));
    let mut written = 0;
    for guest in chosen {
        let text = desired_file(guest, snapshot.conventions);
        let path = arguments.out.join(file_name(guest));
        write_new(&path, &text, arguments.force)?;
        written += 1;
    }
    let out = &mut std::io::stdout();
    writeln!(out, "wrote {} to {}", counted(written, "desired file"), arguments.out)?;
    Ok(Exit::Ok)
}

/// `lxc-101.toml`: a name that does not change when the guest is renamed.
fn file_name(guest: &Guest) -> String {
    format!("{}-{}.toml", guest.id.kind, guest.id.vmid)
}

fn write_new(path: &camino::Utf8Path, text: &str, replace: bool) -> Result<(), Failure> {
    let mut options = fs_err::OpenOptions::new();
    options.write(true).create(true).truncate(replace).create_new(!replace);
    let file = options.open(path.as_std_path());
    let done = file.and_then(|mut file| file.write_all(text.as_bytes()));
    done.map_err(|error| {
        if error.kind() == std::io::ErrorKind::AlreadyExists {
            return Failure::new(Exit::Failed, format!("{path} is there already"))
                .hint("--force replaces it");
        }
        Failure::new(Exit::Failed, "cannot write a desired file").because(error)
    })
}

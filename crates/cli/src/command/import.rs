//! `evenkeel import [GUEST…] --out DIR`: desired files for guests that exist, one file a guest.
//!
//! Only reads from the node. A guest that a file there declares already is skipped, because two declarations of one guest
//! make the whole set invalid; a file that is there already is left alone. `--force` writes both anew.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;

use camino::{Utf8Path, Utf8PathBuf};
use evenkeel_agent::observe::{CONCURRENCY, list_guests, observe_scope};
use evenkeel_agent::source::dir::{self, DirError};
use evenkeel_core::actual::{ListCoverage, Snapshot};
use evenkeel_core::desired::import::{DesiredFile, FileFormat, desired_file, spoken_of};
use evenkeel_core::desired::selection::{GuestName, ON_NODE, PassScope, SelectionError};
use evenkeel_core::model::id::GuestId;
use evenkeel_core::model::id::VmId;

use crate::cli::ImportArgs;
use crate::connect::connect;
use crate::error::{CommandFailure, Exit};
use crate::render::counted;
use crate::terminal;

pub(crate) async fn run(arguments: &ImportArgs) -> Result<Exit, CommandFailure> {
    let connection = connect(&arguments.connect).await?;
    let client = &connection.client;
    let selection = arguments.select.selection();
    let named: BTreeSet<VmId> = selection.guests.iter().filter_map(number).collect();
    let scope = if selection.is_everything() {
        PassScope::Whole
    } else {
        let listed = list_guests(client).await?;
        let is_listed = |vmid: VmId| listed.iter().any(|guest| guest.id.vmid == vmid);
        match selection.choose(&listed, ON_NODE) {
            Ok(chosen) => PassScope::Chosen(chosen),
            // Who is not listed may be elsewhere, or hidden: the whole node says more.
            Err(SelectionError::NoSuchGuest { name, .. })
                if number(&name).is_some_and(|vmid| !is_listed(vmid)) =>
            {
                PassScope::Chosen(named.clone())
            }
            Err(error) => return Err(error.into()),
        }
    };
    let snapshot = observe_scope(client, &named, &scope, CONCURRENCY).await?;
    all_seen(&named, &snapshot, &scope)?;
    let places = DeclaredPlaces::read(&arguments.out, arguments.format)?;
    let mut files = Vec::new();
    let mut skipped = Vec::new();
    for guest in snapshot.guests.values() {
        match places.of(guest.id, arguments.force) {
            ImportPlace::Write { path, format } => {
                files.push((guest.id, path, desired_file(guest, snapshot.conventions, format)));
            }
            ImportPlace::Declared(path) => skipped.push((guest.id, path)),
        }
    }
    if !arguments.force {
        none_there(&files)?;
    }
    fs_err::create_dir_all(arguments.out.as_std_path()).map_err(cannot_write)?;
    for (_, path, file) in &files {
        write(path, &file.text, arguments.force)?;
    }
    tell(&files, &skipped, arguments)
}

/// What was written, what was left alone, and what a file that has no comments cannot say.
fn tell(
    files: &[(GuestId, Utf8PathBuf, DesiredFile)],
    skipped: &[(GuestId, Utf8PathBuf)],
    arguments: &ImportArgs,
) -> Result<Exit, CommandFailure> {
    for (guest, path, file) in files {
        if path.extension() == Some(FileFormat::Json.ending()) {
            for why in &file.left_out {
                terminal::tell(&format!("note: {guest}: {why}\n"))?;
            }
        }
    }
    for (guest, path) in skipped.iter().take(SKIPPED_TOLD_MAX) {
        terminal::tell(&format!("skipped {guest}: {path} declares it\n"))?;
    }
    if skipped.len() > SKIPPED_TOLD_MAX {
        let more = skipped.len() - SKIPPED_TOLD_MAX;
        terminal::tell(&format!("skipped {more} more that are declared there\n"))?;
    }
    if !skipped.is_empty() {
        terminal::tell("  hint: --force writes a guest anew where a file declares it alone\n")?;
    }
    let wrote = counted(files.len(), "desired file");
    terminal::print(&format!("wrote {wrote} to {}\n", arguments.out))?;
    Ok(Exit::Ok)
}

/// How many guests that were skipped are named one by one.
const SKIPPED_TOLD_MAX: usize = 10;

/// Where guests are declared already.
struct DeclaredPlaces {
    out: Utf8PathBuf,
    format: FileFormat,
    /// The file of a guest, and whether it speaks of nothing else.
    declared: BTreeMap<VmId, (Utf8PathBuf, bool)>,
}

/// Where a guest's file goes.
enum ImportPlace {
    Write {
        path: Utf8PathBuf,
        format: FileFormat,
    },
    /// Another file declares it; two would make all of them invalid.
    Declared(Utf8PathBuf),
}

impl DeclaredPlaces {
    /// Reads what is declared in a directory; a file with mistakes counts as far as it can be read.
    fn read(out: &Utf8Path, format: FileFormat) -> Result<Self, CommandFailure> {
        let mut declared = BTreeMap::new();
        let loaded = match dir::load(out.as_std_path()) {
            Ok(loaded) => Some(loaded),
            Err(DirError::NotFound(_) | DirError::Empty(_, _)) => None,
            Err(error) if out.is_dir() => return Err(error.into()),
            Err(_) => None,
        };
        for source in loaded.iter().flat_map(|loaded| loaded.sources.iter()) {
            let (guests, has_more) = spoken_of(source);
            let alone = guests.len() == 1 && !has_more;
            for vmid in guests {
                declared.insert(vmid, (Utf8PathBuf::from(source.path.as_str()), alone));
            }
        }
        Ok(Self { out: out.to_owned(), format, declared })
    }

    fn of(&self, guest: GuestId, force: bool) -> ImportPlace {
        match self.declared.get(&guest.vmid) {
            Some((path, true)) if force => {
                let format = path.extension().and_then(FileFormat::of_ending);
                ImportPlace::Write { path: path.clone(), format: format.unwrap_or(self.format) }
            }
            Some((path, _)) => ImportPlace::Declared(path.clone()),
            None => {
                let path = self.out.join(file_name(guest, self.format));
                ImportPlace::Write { path, format: self.format }
            }
        }
    }
}

/// The number a guest was named by.
fn number(guest: &GuestName) -> Option<VmId> {
    match guest {
        GuestName::Number(vmid) => Some(*vmid),
        GuestName::Id(id) => Some(id.vmid),
        GuestName::Name(_) => None,
    }
}

/// What was asked for must be there; a list that may not be whole is said, and an empty one is no answer.
fn all_seen(
    named: &BTreeSet<VmId>,
    snapshot: &Snapshot,
    scope: &PassScope,
) -> Result<(), CommandFailure> {
    if let Some(missing) = named.iter().find(|vmid| !snapshot.guests.contains_key(vmid)) {
        return Err(not_seen(*missing, snapshot));
    }
    let ListCoverage::Partial(why) = &snapshot.coverage else { return Ok(()) };
    if snapshot.guests.is_empty() {
        let message = format!("no guest of node {} can be seen: {why}", snapshot.node);
        return Err(CommandFailure::new(Exit::Denied, message).hint(DOCTOR));
    }
    if *scope == PassScope::Whole {
        let mut err = anstream::stderr();
        writeln!(err, "warning: the list of guests may not be whole: {why}\n  hint: {DOCTOR}")?;
    }
    Ok(())
}

const DOCTOR: &str = "run `evenkeel doctor` to see which rights the token lacks";

fn not_seen(vmid: VmId, snapshot: &Snapshot) -> CommandFailure {
    if let Some(there) = snapshot.elsewhere.get(&vmid) {
        let message = format!("guest {vmid} is on node {}, not on {}", there.node, snapshot.node);
        return CommandFailure::new(Exit::NotFound, message)
            .hint(format!("name that node with --node {}", there.node));
    }
    if snapshot.hidden.contains(&vmid) {
        let message = format!("guest {vmid} exists, but the token cannot see it");
        return CommandFailure::new(Exit::Denied, message).hint(DOCTOR);
    }
    match &snapshot.coverage {
        ListCoverage::Whole => {
            let message = format!("there is no guest {vmid} on node {}", snapshot.node);
            CommandFailure::new(Exit::NotFound, message)
                .hint("`pvesh get /cluster/resources --type vm` lists the guests of all nodes")
        }
        ListCoverage::Partial(why) => {
            let message =
                format!("guest {vmid} is not listed, and the list may not be whole: {why}");
            CommandFailure::new(Exit::NotFound, message).hint(DOCTOR)
        }
    }
}

/// All files or none: half an import would have to be told apart by hand.
fn none_there(files: &[(GuestId, Utf8PathBuf, DesiredFile)]) -> Result<(), CommandFailure> {
    let there: Vec<&Utf8PathBuf> =
        files.iter().map(|(_, path, _)| path).filter(|path| path.exists()).collect();
    match there.as_slice() {
        [] => Ok(()),
        [first, others @ ..] => {
            let more = match others.len() {
                0 => String::new(),
                others => format!(", and {} more", counted(others, "file")),
            };
            Err(CommandFailure::new(Exit::Failed, format!("{first} already exists{more}"))
                .hint("nothing was written; --force replaces the files"))
        }
    }
}

/// `lxc-101.toml`: a name that does not change when the guest is renamed.
pub(crate) fn file_name(guest: GuestId, format: FileFormat) -> String {
    format!("{}-{}.{}", guest.kind, guest.vmid, format.ending())
}

/// Without `replace`, a file that appeared meanwhile is still not overwritten.
fn write(path: &Utf8Path, text: &str, replace: bool) -> Result<(), CommandFailure> {
    let mut options = fs_err::OpenOptions::new();
    options.write(true).create(true).truncate(replace).create_new(!replace);
    let file = options.open(path.as_std_path());
    file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(cannot_write)
}

fn cannot_write(error: std::io::Error) -> CommandFailure {
    CommandFailure::new(Exit::Failed, "cannot write desired files")
        .because(error)
        .hint("name a directory you may write to with --out")
}

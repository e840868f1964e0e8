//! `evenkeel setup`: from a Proxmox VE node to a running agent, by the node's own tools, and back.
//!
//! ```text
//!   node.rs   what is there: pveum, pvesh and systemctl are asked, /etc is read; nothing is changed
//!   steps.rs  what is missing, as commands and files; pure
//!   fleet_part.rs  the hub, if the node becomes part of a fleet
//!   here      shown, agreed to, carried out in order
//! ```
//!
//! Every command is shown before the first one runs, and a second run finds nothing to do. Guests are not touched. The
//! token's secret goes from `pveum` into its file, and into nothing else: no message, no argument, no log.

mod fleet_part;
mod node;
mod steps;

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::{Command, Stdio};

use camino::Utf8Path;
use evenkeel_core::gate::rights::{self, Rights};
use evenkeel_core::sign::{Role, Signer, enrol, trust_file};

use super::signers::enrol::{KEY_TYPES, one_line};
use crate::atomic_file::{AtomicFile, FileMode};
use crate::cli::SetupArgs;
use crate::error::{CommandFailure, Exit};
use crate::terminal;
use fleet_part::FleetPart;
use node::NodeView;
use steps::{SetupFile, SetupStep};

pub(crate) async fn run(arguments: &SetupArgs) -> Result<Exit, CommandFailure> {
    let node = NodeView::look(&arguments.root)?;
    let fleet = FleetPart::read(arguments, &node)?;
    let (steps, notes) = if arguments.remove {
        steps::to_remove(&node)
    } else {
        let needed = needed(arguments, &node)?;
        steps::to_make(&node, &needed, trust(arguments)?, fleet.as_ref())
    };
    let mut out = std::io::stdout();
    for note in &notes {
        writeln!(out, "note: {note}")?;
    }
    if steps.is_empty() {
        writeln!(out, "Nothing to do on {}.", node.name)?;
        return Ok(Exit::Ok);
    }
    writeln!(out, "On {}, as root:", node.name)?;
    for step in &steps {
        write!(out, "{}", step.shown())?;
    }
    if arguments.dry_run {
        writeln!(out, "Nothing was changed: --dry-run.")?;
        return Ok(Exit::Ok);
    }
    if !arguments.yes && !agreed(steps.len())? {
        writeln!(out, "Nothing was changed.")?;
        return Ok(Exit::Ok);
    }
    let mut token = match &fleet {
        Some(fleet) if steps.iter().any(SetupStep::needs_token) => Some(fleet.read_token()?),
        Some(_) | None => None,
    };
    for step in &steps {
        match (step, &fleet, token.take_if(|_| step.needs_token())) {
            (SetupStep::Enrol { .. }, Some(fleet), Some(token)) => {
                terminal::print(&fleet.enrol(&node, token).await?.words())?;
            }
            _ => carry_out(step, &node)?,
        }
    }
    let next = if arguments.remove {
        "Done. Journal, desired files and signers are left: /var/lib/evenkeel, /etc/evenkeel."
    } else if fleet.is_some() {
        "Done. Push a document to this host: `evenkeel fleet push HOST DIR --key AUTHOR_KEY`; then run `evenkeel setup` \
         here once more, for the rights that keeping its guests takes."
    } else {
        "Done. `evenkeel doctor` looks at everything, `evenkeel import --out /etc/evenkeel/desired` writes down the guests there \
         are; then run setup once more, for the rights that keeping them takes."
    };
    writeln!(out, "{next}")?;
    Ok(Exit::Ok)
}

fn agreed(steps: usize) -> Result<bool, CommandFailure> {
    terminal::must_be_there("give -y to go on without being asked, or --dry-run to look only")?;
    terminal::agrees(&format!("Carry out these {steps} steps?"))
}

/// The fewest rights: to look, to keep what is declared, and for what somebody names.
fn needed(arguments: &SetupArgs, node: &NodeView) -> Result<Rights, CommandFailure> {
    let desired = node.desired(&arguments.desired)?;
    let mut needed = rights::to_keep(&desired, node.release);
    for purpose in &arguments.purposes {
        for (path, privileges) in purpose.rights(node.release) {
            needed.entry(path).or_default().extend(privileges);
        }
    }
    Ok(needed)
}

/// The trust file of the keys that were given; none if none were.
fn trust(arguments: &SetupArgs) -> Result<Option<String>, CommandFailure> {
    let operational = arguments.operational.iter().map(|path| (path, Role::Operational));
    let recovery = arguments.recovery.iter().map(|path| (path, Role::Recovery));
    let author = arguments.author.iter().map(|path| (path, Role::Author));
    let mut text = None;
    let mut names = BTreeSet::new();
    for (path, role) in operational.chain(recovery).chain(author) {
        let mut signer = signer(path, role)?;
        // One person's keys have one comment: the name says which of them it is.
        if names.contains(&signer.name) {
            let by_role = format!("{}-{role}", signer.name);
            signer.name = by_role.parse().unwrap_or(signer.name);
        }
        names.insert(signer.name.clone());
        let before = text.unwrap_or_else(trust_file::empty);
        let added = trust_file::add(&before, &signer).map_err(|error| {
            CommandFailure::new(Exit::Invalid, format!("{path} cannot be enrolled: {error}"))
                .hint("one role and one name per key")
        })?;
        text = Some(added);
    }
    Ok(text)
}

/// A key by the name in its comment, or by that of its file. Its line itself may stand in place of a file.
fn signer(path: &Utf8Path, role: Role) -> Result<Signer, CommandFailure> {
    let line = if is_key_line(path.as_str()) { path.to_string() } else { one_line(path)? };
    let comment = line
        .split_whitespace()
        .nth(2)
        .map(|comment| comment.split('@').next().unwrap_or(comment).to_owned());
    let name = comment.filter(|name| !name.is_empty());
    let stem = path.file_stem().filter(|_| !is_key_line(path.as_str()));
    let name = name.or_else(|| stem.map(str::to_owned)).unwrap_or_else(|| role.to_string());
    enrol::from_public_key(&name, role, &line)
        .map_err(|refusal| CommandFailure::from(refusal).in_file(path))
}

/// Whether a word is the line of a `.pub` file itself.
fn is_key_line(word: &str) -> bool {
    KEY_TYPES.iter().any(|kind| word.starts_with(kind)) && word.contains(' ')
}

fn carry_out(step: &SetupStep, node: &NodeView) -> Result<(), CommandFailure> {
    match step {
        SetupStep::Run(words) => {
            run_command(words)?;
        }
        SetupStep::MakeToken { words, file } => {
            let answer = run_command(words)?;
            let answer: serde_json::Value = serde_json::from_str(&answer).map_err(|error| {
                // Not what it said: the secret is in it.
                CommandFailure::new(
                    Exit::Failed,
                    format!("pveum's answer about the token is not JSON: {error}"),
                )
                .hint("run `evenkeel setup` again: it makes another token")
            })?;
            let id = answer["full-tokenid"].as_str();
            let secret = answer["value"].as_str();
            let (Some(id), Some(secret)) = (id, secret) else {
                return Err(CommandFailure::new(Exit::Failed, "pveum's answer has no token in it")
                    .hint("run `evenkeel setup` again: it makes another token"));
            };
            write(&SetupFile { text: format!("{id}={secret}\n"), ..file.clone() }, node)?;
        }
        SetupStep::Write(file) => write(file, node)?,
        SetupStep::Enrol { .. } => unreachable!("it is carried out where the token is"),
        SetupStep::Remove(path) => fs_err::remove_file(node.at(path).as_std_path())?,
        SetupStep::MakeDirectory { path, mode } => {
            let place = node.at(path);
            fs_err::create_dir_all(place.as_std_path())?;
            own(&place, *mode, node.group)?;
        }
    }
    Ok(())
}

/// One command of the node's own; what it said.
fn run_command(words: &[String]) -> Result<String, CommandFailure> {
    let (program, arguments) = words.split_first().expect("a command has a name");
    let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| {
        CommandFailure::new(Exit::Failed, format!("{program} cannot be run: {error}"))
    })?;
    if !ran.status.success() {
        let said = String::from_utf8_lossy(&ran.stderr);
        let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        let message = format!("`{}` failed: {}", words.join(" "), said.join("; "));
        return Err(CommandFailure::new(Exit::Failed, message).hint(
            "what was done before it stays; run `evenkeel setup` again when that is mended",
        ));
    }
    Ok(String::from_utf8_lossy(&ran.stdout).into_owned())
}

/// Whole or not at all, and never readable by others in between.
fn write(file: &SetupFile, node: &NodeView) -> Result<(), CommandFailure> {
    let place = node.at(file.path);
    let group = node.group.filter(|_| file.for_agent);
    let atomic =
        AtomicFile { owner: (None, group), ..AtomicFile::with_mode(FileMode::Exactly(file.mode)) };
    atomic.write(place.as_std_path(), file.text.as_bytes()).map_err(|error| {
        CommandFailure::new(Exit::Failed, format!("cannot write {place}")).because(error)
    })
}

fn own(place: &Utf8Path, mode: u32, group: Option<u32>) -> Result<(), CommandFailure> {
    use std::os::unix::fs::PermissionsExt as _;
    if let Some(group) = group {
        fs_err::os::unix::fs::chown(place.as_std_path(), None, Some(group))?;
    }
    Ok(fs_err::set_permissions(place.as_std_path(), std::fs::Permissions::from_mode(mode))?)
}

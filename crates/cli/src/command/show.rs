//! `evenkeel show GUEST`: one declared guest, whole, with everything it inherits. Reads desired files and nothing else.

use std::fmt::Write as _;
use std::io::Write as _;

use evenkeel_agent::source::dir::load;
use evenkeel_core::desired::{
    BlockLine, DeclaredGuest, Desired, GuestBlock, GuestOrigins, WantedState,
};
use evenkeel_core::diagnostic::{Sources, did_you_mean};
use evenkeel_core::id::{GuestId, GuestKind, VmId};
use serde_json::{Value, json};

use crate::cli::{OutputFormat, ShowArgs};
use crate::command::validate::tell_errors;
use crate::connect::{configuration_file, desired_path};
use crate::error::{Exit, Failure};
use crate::render::origin::{all_placed, told};
use crate::render::style::{FAINT, styled};
use crate::render::tamed;

const INFALLIBLE: &str = "writing to a string cannot fail";

/// How far comments are pushed to the right; a longer line stands out by itself.
const COMMENT_COLUMN_MAX: usize = 40;

/// What a terminal shows on one line. A comment that does not fit behind its line stands before it.
const LINE_WIDTH: usize = 80;

/// How many guests an error lists.
const LISTED_MAX: usize = 6;

pub(crate) fn run(arguments: &ShowArgs) -> Result<Exit, Failure> {
    let path = match &arguments.desired {
        Some(path) => path.as_std_path().to_owned(),
        None => desired_path(None, &configuration_file(arguments.config.as_deref())?)?,
    };
    let loaded = load(&path)?;
    let desired = match &loaded.desired {
        Ok(desired) => desired,
        Err(errors) => {
            tell_errors(errors, &loaded.sources)?;
            return Ok(Exit::Invalid);
        }
    };
    let guest = find(desired, &arguments.guest)?;
    let block = GuestBlock::of(guest);
    let nowhere = GuestOrigins::default();
    let origins = loaded.origins.guests.get(&guest.id.vmid).unwrap_or(&nowhere);
    match arguments.output.output {
        OutputFormat::Json => {
            let answer = as_json(guest.id, &block, origins, &loaded.sources);
            writeln!(std::io::stdout(), "{answer}")?;
        }
        OutputFormat::Table => {
            let origins = arguments.origin.then_some(origins);
            write!(anstream::stdout(), "{}", drawn(&block, origins, &loaded.sources))?;
        }
    }
    Ok(Exit::Ok)
}

/// A declared guest as people name it: `101`, `lxc/101`, or its name if only one has it.
fn find<'d>(desired: &'d Desired, named: &str) -> Result<&'d DeclaredGuest, Failure> {
    if let Ok(vmid) = named.parse::<VmId>() {
        return desired.guests.get(&vmid).ok_or_else(|| not_declared(desired, named));
    }
    if let Ok(id) = named.parse::<GuestId>() {
        let found = desired.guests.get(&id.vmid);
        if let Some(other) = found.filter(|guest| guest.id != id) {
            let message = format!("{id} is not declared: {} is", other.id);
            return Err(Failure::new(Exit::NotFound, message));
        }
        return found.ok_or_else(|| not_declared(desired, named));
    }
    let same: Vec<&DeclaredGuest> =
        desired.guests.values().filter(|guest| name_of(guest) == Some(named)).collect();
    match same.as_slice() {
        [only] => Ok(only),
        [] => Err(not_declared(desired, named)),
        several => {
            let ids: Vec<String> = several.iter().map(|guest| guest.id.to_string()).collect();
            let message = format!("several guests are called {named}: {}", ids.join(", "));
            Err(Failure::new(Exit::Usage, message).hint("name one of them by its number"))
        }
    }
}

fn not_declared(desired: &Desired, named: &str) -> Failure {
    let failure = Failure::new(Exit::NotFound, format!("{} is not declared", tamed(named, 64)));
    let names = desired.guests.values().filter_map(name_of);
    if let Some(near) = did_you_mean(named, names) {
        return failure.hint(format!("did you mean {near}?"));
    }
    let ids: Vec<String> = desired.guests.values().map(|guest| guest.id.to_string()).collect();
    let more = if ids.len() > LISTED_MAX { ", …" } else { "" };
    let listed = ids[..ids.len().min(LISTED_MAX)].join(", ");
    failure.hint(format!("declared are {listed}{more}"))
}

fn name_of(guest: &DeclaredGuest) -> Option<&str> {
    let key = match guest.id.kind {
        GuestKind::Lxc => "hostname",
        GuestKind::Qemu => "name",
    };
    match &guest.state {
        WantedState::Present(spec) => {
            let field = spec.fields.iter().find(|field| field.key.to_string() == key)?;
            field.want.as_ref()?.as_text()
        }
        WantedState::Absent => None,
    }
}

/// The block, with a comment behind each line that says where it comes from if that is asked for.
fn drawn(block: &GuestBlock, origins: Option<&GuestOrigins>, sources: &Sources) -> String {
    let mut text = format!("{}\n", block.heading);
    let width = |line: &BlockLine| line.text.lines().last().unwrap_or_default().chars().count();
    let column = block.lines.iter().map(width).filter(|width| *width <= COMMENT_COLUMN_MAX).max();
    let column = column.unwrap_or_default();
    for line in &block.lines {
        let comment = origins.map(|origins| comment(line, origins, sources)).unwrap_or_default();
        let comment = if comment.is_empty() { comment } else { format!("# {comment}") };
        let fits = column.max(width(line)) + 2 + comment.chars().count() <= LINE_WIDTH;
        let drawn = styled(FAINT, &comment);
        match (comment.is_empty(), fits) {
            (true, _) => writeln!(text, "{}", line.text),
            (false, true) => {
                let pad = " ".repeat(column.saturating_sub(width(line)));
                writeln!(text, "{}{pad}  {drawn}", line.text)
            }
            (false, false) => writeln!(text, "{drawn}\n{}", line.text),
        }
        .expect(INFALLIBLE);
    }
    if block.is_masked {
        let note = "# A secret is masked: this block does not say what is declared.";
        writeln!(text, "{}", styled(FAINT, note)).expect(INFALLIBLE);
    }
    text
}

/// Where a line comes from; of a list with items of several places, each of them.
fn comment(line: &BlockLine, origins: &GuestOrigins, sources: &Sources) -> String {
    let mut places: Vec<String> = Vec::new();
    for origin in line.subjects.iter().filter_map(|subject| origins.of(*subject)) {
        let place = tamed(&told(origin, sources), usize::MAX);
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places.join("; ")
}

fn as_json(guest: GuestId, block: &GuestBlock, origins: &GuestOrigins, sources: &Sources) -> Value {
    json!({
        "format_version": 1,
        "guest": guest,
        "declared": block.json(),
        "masked": block.is_masked,
        "origins": all_placed(origins, sources),
    })
}

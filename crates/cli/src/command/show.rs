//! `evenkeel show GUEST`: one declared guest, whole, with everything it inherits. Reads desired files and nothing else.

use std::fmt::Write as _;
use std::io::Write as _;

use evenkeel_agent::source::dir::load;
use evenkeel_core::desired::selection::{Candidate, DECLARED, find};
use evenkeel_core::desired::{BlockLine, GuestBlock, GuestOrigins};
use evenkeel_core::model::id::GuestId;
use evenkeel_core::words::diagnostic::Sources;

use crate::cli::{OutputFormat, ShowArgs};
use crate::command::validate::tell_errors;
use crate::connect::{configuration_file, desired_path};
use crate::error::{CommandFailure, Exit};
use crate::format;
use crate::format::tools::ShowFormat;
use crate::render::origin::{all_placed, told};
use crate::render::style::{FAINT, styled};
use crate::render::tamed;

const INFALLIBLE: &str = "writing to a string cannot fail";

/// How far comments are pushed to the right; a longer line stands out by itself.
const COMMENT_COLUMN_MAX: usize = 40;

/// What a terminal shows on one line. A comment that does not fit behind its line stands before it.
const LINE_WIDTH: usize = 80;

pub(crate) fn run(arguments: &ShowArgs) -> Result<Exit, CommandFailure> {
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
    let declared: Vec<Candidate> = desired.guests.values().map(Candidate::declared).collect();
    let found = find(&arguments.guest, &declared, DECLARED)?;
    let guest = &desired.guests[&found.id.vmid];
    let block = GuestBlock::of(guest);
    let nowhere = GuestOrigins::default();
    let origins = loaded.origins.guests.get(&guest.id.vmid).unwrap_or(&nowhere);
    match arguments.output.output {
        OutputFormat::Json => {
            format::print(&as_format(guest.id, &block, origins, &loaded.sources))?;
        }
        OutputFormat::Table => {
            let origins = arguments.origin.then_some(origins);
            write!(anstream::stdout(), "{}", drawn(&block, origins, &loaded.sources))?;
        }
    }
    Ok(Exit::Ok)
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

fn as_format(
    guest: GuestId,
    block: &GuestBlock,
    origins: &GuestOrigins,
    sources: &Sources,
) -> ShowFormat {
    ShowFormat {
        format_version: 1,
        guest: guest.to_string(),
        declared: block.json(),
        masked: block.is_masked,
        origins: all_placed(origins, sources),
    }
}

//! The few styles there are, so that colour means the same everywhere. Words alone say everything: colour
//! is dropped for pipes, files and `NO_COLOR` by the stream that prints it.

use anstyle::{AnsiColor, Style};

/// A guest's name: where the eye starts.
pub(crate) const GUEST: Style = Style::new().bold();
/// Something new.
pub(crate) const ADD: Style = AnsiColor::Green.on_default();
/// Something that changes.
pub(crate) const CHANGE: Style = AnsiColor::Yellow.on_default();
/// Something that goes.
pub(crate) const REMOVE: Style = AnsiColor::Red.on_default();
/// Something that interrupts.
pub(crate) const DISRUPTIVE: Style = AnsiColor::Magenta.on_default();
/// Something that destroys, or cannot be done.
pub(crate) const ALARM: Style = AnsiColor::Red.on_default().bold();
/// Something that waits.
pub(crate) const WAITS: Style = AnsiColor::Cyan.on_default();
/// What may be overlooked.
pub(crate) const FAINT: Style = Style::new().dimmed();

/// A text in a style.
pub(crate) fn styled(style: Style, text: impl std::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

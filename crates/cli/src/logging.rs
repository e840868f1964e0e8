//! The log of `evenkeel run` and `evenkeel hub`, on stderr: for people, for the system's journal, or as JSON lines.
//!
//! Only evenkeel's own lines are shown, whatever the level: what libraries say at theirs may hold a header, and so the
//! token.

use std::fmt;
use std::io::IsTerminal as _;
use std::os::unix::fs::MetadataExt as _;

use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{Format, Full, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::{Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::cli::{LogFormat, LogLevel};

/// Begins to log.
pub(crate) fn begin(level: LogLevel, format: LogFormat) {
    let level = match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    };
    let ours = Targets::new()
        .with_target("evenkeel", level)
        .with_target("evenkeel_agent", level)
        .with_target("evenkeel_hub", level);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let lines = match format {
        LogFormat::Json => layer.json().flatten_event(true).boxed(),
        LogFormat::Text if is_journal() => {
            let plain = Format::default().without_time().with_level(false).with_target(false);
            layer.with_ansi(false).event_format(ForJournal(plain)).boxed()
        }
        LogFormat::Text => {
            let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            layer.with_target(false).with_ansi(colour).boxed()
        }
    };
    // A second log in one process would be a mistake of ours, and is left out.
    let _ = tracing_subscriber::registry().with(lines.with_filter(ours)).try_init();
}

/// Whether stderr goes to the system's journal, which keeps the time itself.
fn is_journal() -> bool {
    let (Ok(named), Ok(stderr)) =
        (std::env::var("JOURNAL_STREAM"), std::fs::metadata("/dev/stderr"))
    else {
        return false;
    };
    named == format!("{}:{}", stderr.dev(), stderr.ino())
}

/// Lines that begin with the priority, as the system's journal reads it.
struct ForJournal(Format<Full, ()>);

impl<S, N> FormatEvent<S, N> for ForJournal
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            Level::DEBUG | Level::TRACE => 7,
        };
        write!(writer, "<{priority}>")?;
        self.0.format_event(context, writer, event)
    }
}

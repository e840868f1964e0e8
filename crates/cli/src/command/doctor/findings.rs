//! What `doctor` found, in order: ok, warning or failed, each with the next step, and the exit code of the worst.

use crate::cli::OutputFormat;
use crate::error::{CommandFailure, Exit};
use crate::format;
use crate::format::tools::{DoctorFormat, FindingFormat};
use crate::render::style::{ADD, ALARM, CHANGE, FAINT, styled};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::command) enum Verdict {
    Ok,
    Warning,
    Failed,
}

pub(in crate::command) struct Finding {
    verdict: Verdict,
    subject: &'static str,
    what: String,
    next: Option<String>,
}

/// What was looked at, in order.
#[derive(Default)]
pub(in crate::command) struct Findings(Vec<Finding>);

impl Findings {
    /// The code to end with: a warning is for a person to judge.
    pub(in crate::command) fn exit(&self) -> Exit {
        let failed = self.0.iter().any(|finding| finding.verdict == Verdict::Failed);
        if failed { Exit::Failed } else { Exit::Ok }
    }

    /// Something will not work, and what mends it is said with a later finding.
    pub(in crate::command) fn fail_with_the_next(&mut self, subject: &'static str, what: String) {
        self.0.push(Finding { verdict: Verdict::Failed, subject, what, next: None });
    }

    /// All is well.
    pub(in crate::command) fn ok(&mut self, subject: &'static str, what: String) {
        self.0.push(Finding { verdict: Verdict::Ok, subject, what, next: None });
    }

    /// What to do next about the last finding, which is well as it is.
    pub(in crate::command) fn advise(&mut self, next: &str) {
        if let Some(last) = self.0.last_mut() {
            last.next = Some(next.to_owned());
        }
    }

    /// A person must judge it.
    pub(in crate::command) fn warn(&mut self, subject: &'static str, what: &str, next: &str) {
        self.push(Verdict::Warning, subject, what, next);
    }

    /// Something will not work.
    pub(in crate::command) fn fail(&mut self, subject: &'static str, what: &str, next: &str) {
        self.push(Verdict::Failed, subject, what, next);
    }

    fn push(&mut self, verdict: Verdict, subject: &'static str, what: &str, next: &str) {
        self.0.push(Finding {
            verdict,
            subject,
            what: what.to_owned(),
            next: Some(next.to_owned()),
        });
    }

    /// All of them, for programs.
    pub(in crate::command) fn as_format(&self) -> Vec<FindingFormat> {
        self.0.iter().map(Finding::as_format).collect()
    }

    /// Tells them all.
    pub(in crate::command) fn tell(&self, output: OutputFormat) -> Result<(), CommandFailure> {
        match output {
            OutputFormat::Json => format::print(&DoctorFormat::new(self.as_format()))?,
            OutputFormat::Table => {
                let mut out = anstream::stdout();
                for finding in &self.0 {
                    finding.tell(&mut out)?;
                }
            }
        }
        Ok(())
    }
}

/// What is left of a terminal of 80 columns beside verdict and subject.
const WIDTH: usize = 80 - 17;

/// How a line begins that a person copies.
const COMMAND: &str = "pveum ";

/// A text in lines that fit, broken between words.
fn folded(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            Some(_) | None => lines.push(word.to_owned()),
        }
    }
    lines
}

impl Finding {
    fn word(&self) -> &'static str {
        match self.verdict {
            Verdict::Ok => "ok",
            Verdict::Warning => "warning",
            Verdict::Failed => "failed",
        }
    }

    fn as_format(&self) -> FindingFormat {
        let what = self.what.clone();
        let next = self.next.clone();
        FindingFormat { verdict: self.word(), subject: self.subject, what, next }
    }

    fn tell(&self, out: &mut impl std::io::Write) -> std::io::Result<()> {
        let style = match self.verdict {
            Verdict::Ok => ADD,
            Verdict::Warning => CHANGE,
            Verdict::Failed => ALARM,
        };
        let word = styled(style, format!("{:7}", self.word()));
        let mut lines = folded(&self.what).into_iter();
        let first = lines.next().unwrap_or_default();
        writeln!(out, "{word} {:8} {first}", self.subject)?;
        for line in lines {
            writeln!(out, "{:17}{line}", "")?;
        }
        for line in self.next.iter().flat_map(|next| next.lines()) {
            // What is to be copied stays in one piece.
            let lines =
                if line.starts_with(COMMAND) { vec![line.to_owned()] } else { folded(line) };
            for line in lines {
                writeln!(out, "{:17}{}", "", styled(FAINT, line))?;
            }
        }
        Ok(())
    }
}

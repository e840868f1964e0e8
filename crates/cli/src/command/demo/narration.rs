//! How the story is told: chapters, sentences, commands with what they answered, and what that proves.

use std::io::{BufRead as _, IsTerminal as _, Write as _};

use tokio::sync::oneshot;

use crate::error::CommandFailure;
use crate::render::style::{ADD, FAINT, GUEST, WAITS, styled};

/// As wide as a sentence is read easily.
const SENTENCE_WIDTH: usize = 84;

/// What a command printed is cut here: identifiers are long, and a wrapped table is unreadable.
const OUTPUT_WIDTH: usize = 116;

/// The one who tells.
pub(super) struct Narration {
    /// Whether a reader is there to turn the page.
    waits: bool,
    chapters: u32,
}

impl Narration {
    pub(super) fn new(headless: bool) -> Self {
        let reader = std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        Self { waits: reader && !headless, chapters: 0 }
    }

    /// Begins a chapter, when the reader is ready.
    pub(super) async fn chapter(&mut self, title: &str) -> Result<(), CommandFailure> {
        self.turn_page().await?;
        self.chapters += 1;
        let title = format!("{}. {title} ", self.chapters);
        let rule = "─".repeat(SENTENCE_WIDTH.saturating_sub(title.chars().count()));
        print(&format!("\n{}{}\n", styled(GUEST, title), styled(FAINT, rule)))
    }

    /// Waits for Enter, if a reader is there to press it.
    async fn turn_page(&self) -> Result<(), CommandFailure> {
        self.ask("press Enter").await.map(drop)
    }

    /// Asks the reader for a line; none without a reader, or at the end of the input.
    pub(super) async fn ask(&self, question: &str) -> Result<Option<String>, CommandFailure> {
        if !self.waits {
            return Ok(None);
        }
        print(&styled(FAINT, format!("\n  {question} ")))?;
        let (turned, page) = oneshot::channel();
        // A thread of its own: it may wait for ever, and must hold up neither the simulator nor the end.
        std::thread::spawn(move || {
            let mut line = String::new();
            let read = std::io::stdin().lock().read_line(&mut line);
            // Ctrl-C may have ended the demo meanwhile.
            let _ = turned.send(read.map(|_| line));
        });
        // The end of the input turns the page too.
        let typed = page.await.ok().and_then(Result::ok);
        Ok(typed.map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()))
    }

    /// Whether a reader is there.
    pub(super) fn has_reader(&self) -> bool {
        self.waits
    }
}

/// Sentences.
pub(super) fn say(text: &str) -> Result<(), CommandFailure> {
    let mut told = String::from("\n");
    let mut width = 0;
    for word in text.split_whitespace() {
        let letters = word.chars().count();
        if width > 0 && width + 1 + letters > SENTENCE_WIDTH {
            told.push('\n');
            width = 0;
        }
        if width > 0 {
            told.push(' ');
            width += 1;
        }
        told.push_str(word);
        width += letters;
    }
    print(&(told + "\n"))
}

/// A command as it could be typed.
pub(super) fn command(line: &str) -> Result<(), CommandFailure> {
    print(&format!("\n  {}\n", styled(WAITS, format!("$ {line}"))))
}

/// What a command printed, or what stands in a file.
pub(super) fn output(text: &str) -> Result<(), CommandFailure> {
    let mut told = String::new();
    for line in text.trim_end().lines() {
        let mut letters = line.chars();
        let mut shown: String = letters.by_ref().take(OUTPUT_WIDTH).collect();
        if letters.next().is_some() {
            shown.push('…');
        }
        told.push_str(format!("  {shown}").trim_end());
        told.push('\n');
    }
    print(&told)
}

/// Lines that belong together, each as it is.
pub(super) fn lines(lines: &[&str]) -> Result<(), CommandFailure> {
    print("\n")?;
    output(&lines.join("\n"))
}

/// Something that was promised, and was checked.
pub(super) fn proof(text: &str) -> Result<(), CommandFailure> {
    print(&format!("\n  {}\n", styled(ADD, format!("✓ {text}"))))
}

fn print(text: &str) -> Result<(), CommandFailure> {
    let mut out = anstream::stdout();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(())
}

//! Text for people: messages about files, log lines of tasks, warnings, and any foreign text made safe to show.

pub mod diagnostic;
pub mod op_warning;
pub mod shown_text;
pub mod task_log;

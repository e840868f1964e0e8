//! `evenkeel completions SHELL` and `evenkeel man`: what the command line says of itself.

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::error::{CommandFailure, Exit};

pub(crate) fn completions(shell: Shell) -> Result<Exit, CommandFailure> {
    // Generated into memory: the generator panics on a reader that goes away.
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "evenkeel", &mut text);
    std::io::Write::write_all(&mut std::io::stdout(), &text)?;
    Ok(Exit::Ok)
}

pub(crate) fn man(out: Option<&camino::Utf8Path>) -> Result<Exit, CommandFailure> {
    match out {
        None => clap_mangen::Man::new(Cli::command()).render(&mut std::io::stdout())?,
        Some(directory) => {
            fs_err::create_dir_all(directory.as_std_path())?;
            clap_mangen::generate_to(Cli::command(), directory.as_std_path())?;
        }
    }
    Ok(Exit::Ok)
}

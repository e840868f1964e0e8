//! `evenkeel demo`: the whole story on loopback, told to somebody who has never seen evenkeel. Needs no Proxmox VE.
//!
//! Only the server pretends. Everything else is this very executable in processes of its own (the agent, and every
//! command that is shown), with real files, TLS, keys and signals. What is told is checked while it is told: a story
//! that comes out differently ends with 1, so the demo is a test of the whole as well.
//!
//! Nothing outside of one temporary directory is written, and that is gone at the end.

mod approval;
mod crash;
mod farewell;
mod files;
mod fleet;
mod guests;
mod keeping;
mod making;
mod narration;
mod sandbox;

use evenkeel_sim::RequestRecord;

use self::narration::{lines, proof, say};
use self::sandbox::{Sandbox, demand};
use crate::error::{CommandFailure, Exit};
use crate::interrupt::Interrupts;

/// What alice signs that is obeyed: the old test container and the wiki.
const SIGNED_DESTROYS: usize = 2;

pub(crate) async fn run(headless: bool, of_fleet: bool) -> Result<Exit, CommandFailure> {
    if of_fleet {
        return fleet::run(headless).await;
    }
    let mut stop = Interrupts::listen()?;
    let mut sandbox = Sandbox::set(headless).await?;
    tokio::select! {
        // Dropped in the middle, the sandbox still ends its agent and removes its directory.
        told = story(&mut sandbox) => told.map_err(|failure| sandbox.explain(failure))?,
        () = stop.next() => {
            return Err(CommandFailure::new(Exit::Failed, "the demo was interrupted")
                .hint("nothing is left behind; `evenkeel demo --headless` runs without pauses"));
        }
    }
    Ok(Exit::Ok)
}

async fn story(sandbox: &mut Sandbox) -> Result<(), CommandFailure> {
    say(
        "evenkeel keeps Proxmox VE guests as you declared them, survives a crash at any instant, and destroys \
         nothing unless an operator's SSH key signed exactly that. This is the real program against a simulated \
         Proxmox VE, in a temporary directory; nothing else on this machine is touched.",
    )?;
    keeping::written_down(sandbox).await?;
    keeping::healed(sandbox).await?;
    crash::killed(sandbox).await?;
    making::made(sandbox).await?;
    approval::waits(sandbox).await?;
    if sandbox.can_sign {
        approval::refused(sandbox).await?;
        approval::signed(sandbox).await?;
        approval::number_taken(sandbox).await?;
        farewell::gone_and_back(sandbox).await?;
    } else {
        say(
            "SKIPPED: ssh-keygen is not installed, and it is what signs for an operator. With it \
             (apt install openssh-client) you would see approvals refused and obeyed, and a guest that goes with a \
             last backup and comes back from it.",
        )?;
    }
    end(sandbox).await
}

async fn end(sandbox: &mut Sandbox) -> Result<(), CommandFailure> {
    sandbox.narration.chapter("What happened").await?;
    say(
        "Every decision and every step is in the journal. Each record is on the disk before evenkeel acts on it, and \
         holds the hash of the one before, so that none can be changed or cut out unnoticed.",
    )?;
    sandbox.shows(&["journal"]).await?.succeeds()?;
    sandbox.shows(&["journal", "verify"]).await?.succeeds()?;
    if sandbox.can_sign {
        say("What was refused, and why; and what was signed, with which key:")?;
        let since = sandbox.asked_at.strftime("%FT%TZ").to_string();
        sandbox.shows(&["audit", "--since", &since, "--refused"]).await?.succeeds()?;
        sandbox.shows(&["audit", "--since", &since, "--signed"]).await?.succeeds()?;
    }
    sandbox.stop_agent().await?;
    let starts = sandbox.writes(|record| record.path.ends_with("/qemu/202/status/start"));
    demand(starts.len() == 1, "the start of qemu/202 was sent once, in the whole story")?;
    let destroyed = sandbox.writes(is_destructive);
    let allowed = if sandbox.can_sign { SIGNED_DESTROYS } else { 0 };
    demand(destroyed.len() == allowed, "only what was signed was destroyed")?;
    proof(&format!(
        "qemu/202 was started once; guests destroyed: {allowed}, exactly what was signed"
    ))?;
    say("Where to go next:")?;
    lines(&[
        "evenkeel sim --guests 20     the same simulated Proxmox VE, to play with (docs/guide/try-it.md)",
        "evenkeel doctor              your own server: connection, trust, and the rights of the token",
        "evenkeel import, plan        your own guests as files; looking changes nothing",
        "evenkeel apply, run          once, and for ever",
        "evenkeel demo --fleet        many hosts through one hub that none of them trusts",
        "evenkeel --help              everything else",
    ])
}

/// Whether a request asks Proxmox VE to destroy a guest.
fn is_destructive(record: &RequestRecord) -> bool {
    record.method == "DELETE"
}

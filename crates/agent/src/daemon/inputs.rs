//! Everything the loop listens to besides its own lanes: signals, files, clients, the clock.
//!
//! The service manager's watchdog is fed here and nowhere else, and only while the loop listens: a loop that hangs
//! falls silent, and is restarted.

use std::io;
use std::path::Path;

use evenkeel_core::actual::remembered::ChangedGuests;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, Interval, MissedTickBehavior};

use super::socket::SocketCommand;
use super::systemd::Systemd;
use super::watch::DirWatch;
use crate::hub_link::DeskRequest;

/// What was heard.
pub(super) enum LoopInput {
    /// A pass is due.
    Due,
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP.
    Reload,
    /// Desired files changed.
    FilesChanged,
    /// A client of the socket wants something.
    Command(SocketCommand),
    /// The link to the hub brings something.
    Hub(DeskRequest),
    /// Configurations of guests were written.
    GuestsChanged(ChangedGuests),
}

/// Everything the loop waits for.
pub(super) struct LoopInputs {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
    watch: DirWatch,
    commands: mpsc::Receiver<SocketCommand>,
    hub: Option<mpsc::Receiver<DeskRequest>>,
    cluster: Option<mpsc::Receiver<ChangedGuests>>,
    pub(super) systemd: Systemd,
    watchdog: Option<Interval>,
}

impl LoopInputs {
    /// Begins to listen.
    pub(super) fn open(
        systemd: Systemd,
        commands: mpsc::Receiver<SocketCommand>,
    ) -> io::Result<Self> {
        let watchdog = systemd.watchdog_period().map(|period| {
            let mut interval = tokio::time::interval(period);
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
            interval
        });
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
            watch: DirWatch::begin(None),
            commands,
            hub: None,
            cluster: None,
            systemd,
            watchdog,
        })
    }

    /// Hears the link to the hub from now on.
    pub(super) fn hear_hub(&mut self, requests: mpsc::Receiver<DeskRequest>) {
        self.hub = Some(requests);
    }

    /// Hears of guests whose configurations were written from now on.
    pub(super) fn hear_cluster(&mut self, changes: mpsc::Receiver<ChangedGuests>) {
        self.cluster = Some(changes);
    }

    /// Watches another directory from now on.
    pub(super) fn watch(&mut self, directory: Option<&Path>) {
        self.watch = DirWatch::begin(directory);
    }

    /// The next thing heard; no pass is due while there is no moment for it. Dropping the future loses nothing: signals, changes and commands stay where they are
    /// until they are taken.
    pub(super) async fn hear(&mut self, due: Option<Instant>) -> LoopInput {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return LoopInput::Stop,
                _ = self.interrupt.recv() => return LoopInput::Stop,
                _ = self.hang_up.recv() => return LoopInput::Reload,
                () = self.watch.changed() => return LoopInput::FilesChanged,
                Some(command) = self.commands.recv() => return LoopInput::Command(command),
                request = heard(self.hub.as_mut()) => return LoopInput::Hub(request),
                changed = heard(self.cluster.as_mut()) => return LoopInput::GuestsChanged(changed),
                () = until(due) => return LoopInput::Due,
                () = tick(self.watchdog.as_mut()) => self.systemd.alive(),
            }
        }
    }

    /// Resolves when somebody wants the agent to end; everything else waits. The same holds for dropping it.
    pub(super) async fn stop(&mut self) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                () = tick(self.watchdog.as_mut()) => self.systemd.alive(),
            }
        }
    }
}

/// Nothing comes of a task that is not there, or that has ended.
async fn heard<T>(told: Option<&mut mpsc::Receiver<T>>) -> T {
    match told {
        Some(told) => match told.recv().await {
            Some(told) => told,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

async fn tick(watchdog: Option<&mut Interval>) {
    match watchdog {
        Some(interval) => {
            interval.tick().await;
        }
        None => std::future::pending().await,
    }
}

//! Tells the service manager how the agent is: ready, reloading, stopping, alive.
//!
//! The protocol is `sd_notify(3)`: lines of text in one datagram to the socket the manager names in the environment.
//! Without one nothing is sent. A manager that does not listen must never hold up the agent, so nothing here waits.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// The way to the service manager, if there is one.
#[derive(Debug, Default)]
pub struct Systemd {
    socket: Option<(UnixDatagram, SocketAddr)>,
    watchdog: Option<Duration>,
}

impl Systemd {
    /// The manager named in this process's environment.
    pub fn from_environment() -> Self {
        let own = |pid: String| pid == std::process::id().to_string();
        let ours = std::env::var("WATCHDOG_PID").map_or(true, own);
        let timeout = std::env::var("WATCHDOG_USEC").ok().filter(|_| ours);
        let timeout = timeout.and_then(|text| text.parse().ok()).map(Duration::from_micros);
        Self::new(std::env::var_os("NOTIFY_SOCKET").as_deref(), timeout)
    }

    /// A manager that listens at `address` (`@name` is an abstract one) and gives up on us after `timeout`.
    pub fn new(address: Option<&OsStr>, timeout: Option<Duration>) -> Self {
        let socket = address.and_then(|address| {
            let address = match address.as_bytes().strip_prefix(b"@") {
                Some(name) => SocketAddr::from_abstract_name(name),
                None => SocketAddr::from_pathname(address),
            };
            let socket = UnixDatagram::unbound().and_then(|socket| {
                socket.set_nonblocking(true)?;
                Ok(socket)
            });
            address.ok().zip(socket.ok()).map(|(address, socket)| (socket, address))
        });
        Self { socket, watchdog: timeout.filter(|timeout| !timeout.is_zero()) }
    }

    /// How often the manager wants to hear that the loop turns: twice in the time it waits.
    pub(crate) fn watchdog_period(&self) -> Option<Duration> {
        self.watchdog.map(|timeout| timeout / 2)
    }

    /// Started, or reloaded.
    pub fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}\n", one_line(status)));
    }

    /// The configuration is read again; `ready` follows.
    pub(crate) fn reloading(&self) {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = i128::from(now.tv_sec) * 1_000_000 + i128::from(now.tv_nsec) / 1_000;
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={micros}\n"));
    }

    /// The agent goes down.
    pub fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=stopping\n");
    }

    /// How it stands, in a sentence for `systemctl status`.
    pub fn status(&self, status: &str) {
        self.send(&format!("STATUS={}\n", one_line(status)));
    }

    /// The loop turns.
    pub fn alive(&self) {
        self.send("WATCHDOG=1\n");
    }

    fn send(&self, state: &str) {
        if let Some((socket, address)) = &self.socket
            && let Err(error) = socket.send_to_addr(state.as_bytes(), address)
        {
            tracing::debug!(%error, "the service manager was not told");
        }
    }
}

/// A line break would begin another variable.
fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        socket.set_read_timeout(Some(Duration::from_mins(1))).unwrap();
        let mut bytes = [0; 512];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn a_manager_hears_every_state_on_its_socket() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let systemd = Systemd::new(Some(path.as_os_str()), Some(Duration::from_secs(10)));
        assert_eq!(systemd.watchdog_period(), Some(Duration::from_secs(5)));
        systemd.ready("3 guests\nSTOPPING=1");
        assert_eq!(heard(&manager), "READY=1\nSTATUS=3 guests STOPPING=1\n");
        systemd.reloading();
        let told = heard(&manager);
        let micros = told.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(micros.trim_end().parse::<u64>().unwrap() > 0, "{told}");
        systemd.alive();
        assert_eq!(heard(&manager), "WATCHDOG=1\n");
        systemd.stopping();
        assert!(heard(&manager).starts_with("STOPPING=1\n"));
    }

    #[test]
    fn an_abstract_socket_is_reached_by_its_name() {
        let name = format!("evenkeel-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        Systemd::new(Some(OsStr::new(&format!("@{name}"))), None).status("well");
        assert_eq!(heard(&manager), "STATUS=well\n");
    }

    #[test]
    fn without_a_manager_or_with_a_deaf_one_nothing_is_held_up() {
        let none = Systemd::new(None, Some(Duration::ZERO));
        assert_eq!(none.watchdog_period(), None);
        none.alive();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("notify");
        let deaf = UnixDatagram::bind(&path).unwrap();
        let systemd = Systemd::new(Some(path.as_os_str()), None);
        for _ in 0..10_000 {
            systemd.alive();
        }
        drop(deaf);
        systemd.alive();
    }
}

//! What a call that did not succeed says: not sent, refused, or unknown.
//!
//! The three are never mixed up, because they decide what may follow: a request that was not sent
//! may be sent again; a refused one had an answer, to be read; after an unknown one only the world
//! tells. A refusal does not prove that nothing changed: PVE commits some writes key by key.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use evenkeel_core::actual::storage_hearing::StorageSilence;
use evenkeel_core::operate::operation::UnixSeconds;

use super::storage_watch::StorageQuestion;
use super::tls::CertFingerprint;

/// A call that did not succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// Nothing reached the node's API; sending again is harmless.
    NotSent {
        /// Method and path.
        call: String,
        /// Why.
        why: NotSent,
    },
    /// PVE answered, and the answer was no.
    Refused(Box<PveRefusal>),
    /// It may have been executed, or may still be running.
    Unknown {
        /// Method and path.
        call: String,
        /// Why.
        why: Unknown,
    },
}

/// Why a request never reached the node's API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSent {
    /// No connection: name not found, refused, no route.
    #[error("cannot connect to {server}: {detail}")]
    Connect {
        /// Scheme, host and port.
        server: String,
        /// What the system said.
        detail: String,
    },
    /// No connection in time.
    #[error("no connection to {server} within {after:?}")]
    ConnectTimeout {
        /// Scheme, host and port.
        server: String,
        /// How long it was tried.
        after: Duration,
    },
    /// The server's certificate is not one of the pinned ones.
    #[error("the certificate of {server} is not the pinned one; it presented {presented}")]
    WrongPin {
        /// Scheme, host and port.
        server: String,
        /// What the server presented.
        presented: CertFingerprint,
    },
    /// The server's certificate is not trusted.
    #[error("the certificate of {server} is not trusted: {detail}")]
    Untrusted {
        /// Scheme, host and port.
        server: String,
        /// What the TLS library said.
        detail: String,
    },
    /// The TLS handshake failed for another reason.
    #[error("the TLS handshake with {server} failed: {detail}")]
    Tls {
        /// Scheme, host and port.
        server: String,
        /// What the TLS library said.
        detail: String,
    },
    /// PVE's proxy could not reach the node or the local daemon (status 595): not executed.
    #[error("Proxmox could not reach the node: {text}")]
    NodeNotReached {
        /// What PVE said.
        text: String,
    },
    /// PVE would cut the connection in the middle of such a request.
    #[error("the request has {bytes} bytes; Proxmox accepts {max_bytes}")]
    TooLarge {
        /// The size.
        bytes: usize,
        /// The limit.
        max_bytes: usize,
    },
    /// A storage did not answer and is left alone for a while. When it is asked again is in `status` and not here: what
    /// holds a guest is written down when its words change.
    #[error("{about} does not answer since {}", shown(silence.since))]
    StorageSilent {
        /// Which.
        about: StorageQuestion,
        /// Since when, and until when.
        silence: StorageSilence,
    },
    /// As many storages do not answer as the node may have processes for.
    #[error(
        "evenkeel does not ask {about} while other storages do not answer: the node keeps a process for each"
    )]
    StoragesCrowded {
        /// Which would have been asked.
        about: StorageQuestion,
    },
    /// A storage answers slowly, and others would have had to wait for it.
    #[error("{about} answers slowly")]
    StorageSlow {
        /// Which.
        about: StorageQuestion,
    },
}

fn shown(at: UnixSeconds) -> String {
    crate::journal::moment(at).map_or_else(String::new, |at| at.to_string())
}

/// Why the outcome of a request is not known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unknown {
    /// No answer in time.
    #[error("no answer within {after:.1?}")]
    Timeout {
        /// How long was waited.
        after: Duration,
    },
    /// The connection ended before an answer.
    #[error("the connection ended before an answer: {detail}")]
    ConnectionLost {
        /// What the system said.
        detail: String,
    },
    /// PVE's proxy lost the node (596, 597, 599): it may still be working.
    #[error("Proxmox lost the node during the call ({status}): {text}")]
    NodeLost {
        /// 596, 597 or 599.
        status: u16,
        /// What PVE said.
        text: String,
    },
    /// PVE forked a worker and did not hear of it: the task may be listed, and may even work.
    #[error("Proxmox got no report from the worker that it started: {text}")]
    WorkerLost {
        /// What PVE said.
        text: String,
    },
    /// A status only a machine in between gives, such as 502, or an HTML error page.
    #[error("a proxy or another server before Proxmox answered with {status}")]
    Gateway {
        /// The status.
        status: u16,
    },
    /// The answer broke off.
    #[error("the answer ({status}) broke off")]
    Truncated {
        /// The status it began with.
        status: u16,
    },
    /// The answer was larger than any true one.
    #[error("the answer ({status}) is larger than {max_bytes} bytes")]
    TooLarge {
        /// The status it began with.
        status: u16,
        /// The limit.
        max_bytes: usize,
    },
    /// The answer is not HTTP.
    #[error("the answer is not HTTP")]
    NotHttp,
    /// The answer is not the JSON this call answers with.
    #[error("the answer ({status}) does not fit this call: {detail}")]
    Unreadable {
        /// The status.
        status: u16,
        /// What was wrong with it.
        detail: String,
    },
}

/// An answer that was no.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PveRefusal {
    /// Method and path.
    pub call: String,
    /// What kind of no.
    pub class: ErrorClass,
    /// The HTTP status.
    pub status: u16,
    /// PVE's words, from the body or the reason phrase.
    pub text: String,
    /// PVE's words per parameter.
    pub errors: BTreeMap<String, String>,
}

/// What kind of no it was; the same on every release, for answers and for ended tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorClass {
    /// The token is wrong, expired or disabled (401).
    Authentication,
    /// The token lacks a privilege (403).
    Permission,
    /// Only `root@pam` itself may do this; no token can.
    RootOnly,
    /// The guest has no config on that node. It may live elsewhere.
    GuestNotFound,
    /// Something else named in the call does not exist: a storage, bridge, volume, snapshot.
    NotFound,
    /// The node's name is unknown.
    UnknownNode,
    /// PVE has forgotten the task, or never had it.
    NoSuchTask,
    /// The guest number is taken.
    AlreadyExists,
    /// The guest's config has this `lock`.
    Locked {
        /// The lock's name, such as `backup`.
        lock: String,
    },
    /// A lock file could not be taken or kept in time.
    LockTimeout,
    /// The config changed since it was read.
    DigestMismatch,
    /// The cluster has no quorum: nothing can be written.
    NoQuorum,
    /// The guest runs already.
    AlreadyRunning,
    /// The guest does not run.
    NotRunning,
    /// The guest runs, and must not for this.
    GuestRunning,
    /// The guest did not stop in time.
    DidNotStop,
    /// The guest is a template.
    IsTemplate,
    /// The disk has that size already.
    AlreadyAtSize,
    /// The disk would shrink.
    Shrink,
    /// `protection` is set.
    Protected,
    /// HA manages the guest.
    UsedInHa,
    /// No free `unusedN` slot is left.
    TooManyUnused,
    /// The call would have changed nothing.
    NothingToDo,
    /// A parameter was refused (400).
    ParameterRefused,
    /// This release does not have the call (501).
    NotImplemented,
    /// The request body is larger than this release takes.
    BodyTooLarge,
    /// The server points elsewhere (3xx); evenkeel does not follow.
    Redirected,
    /// None of the above.
    Other,
}

impl ErrorClass {
    /// True if the same request may succeed later without anyone doing anything.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, Self::Locked { .. } | Self::LockTimeout | Self::NoQuorum)
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Authentication => {
                "check token_file; on the node: pveum user token list USER@REALM"
            }
            Self::Permission => {
                "grant the privilege named above; `evenkeel doctor` prints the role"
            }
            Self::RootOnly => "set it on the node as root (pct set, qm set); no API token can",
            Self::GuestNotFound => {
                "the guest may be on another node or destroyed; look at `evenkeel status`"
            }
            Self::NotFound => "check the name in the desired state",
            Self::UnknownNode => "check `node` in agent.toml against `pvesh get /nodes`",
            Self::NoSuchTask => "Proxmox keeps only the latest tasks; look at the guest itself",
            Self::AlreadyExists => "choose a free number: pvesh get /cluster/nextid",
            Self::Locked { .. } => {
                "wait for the running task; if it died: pct unlock ID or qm unlock ID on the node"
            }
            Self::LockTimeout => "another task works on this guest; the agent tries again later",
            Self::DigestMismatch => "someone else changed the guest; plan again",
            Self::NoQuorum => "bring back a majority of the cluster's nodes: pvecm status",
            Self::AlreadyRunning | Self::NotRunning | Self::AlreadyAtSize | Self::NothingToDo => {
                "nothing to do; plan again"
            }
            Self::GuestRunning => "stop the guest first",
            Self::DidNotStop => "the guest ignored the shutdown; look at its console",
            Self::IsTemplate => "a template cannot do this; clone it",
            Self::Shrink => "disks only grow; declare at least the actual size",
            Self::Protected => "the guest has protection = 1; to do this, set it to 0 first",
            Self::UsedInHa => "remove the guest from HA first: ha-manager remove",
            Self::TooManyUnused => "remove unused volumes of this guest first",
            Self::ParameterRefused => "correct the parameters named above",
            Self::NotImplemented => "this Proxmox VE release does not offer it; pveversion",
            Self::BodyTooLarge => "shorten the description: before 8.4 a request has 64 KiB",
            Self::Redirected => "check `url` in agent.toml: https and the port, usually 8006",
            Self::Other => "read Proxmox's words above; the node's log: journalctl -u pvedaemon",
        }
    }
}

impl Error {
    /// The class, if PVE refused.
    pub fn class(&self) -> Option<&ErrorClass> {
        match self {
            Self::Refused(refusal) => Some(&refusal.class),
            Self::NotSent { .. } | Self::Unknown { .. } => None,
        }
    }

    /// Whether a storage was not waited for.
    pub(crate) fn is_silent_storage(&self) -> bool {
        match self {
            Self::NotSent { why, .. } => {
                matches!(
                    why,
                    NotSent::StorageSilent { .. }
                        | NotSent::StoragesCrowded { .. }
                        | NotSent::StorageSlow { .. }
                )
            }
            Self::Refused(_) | Self::Unknown { .. } => false,
        }
    }

    /// True if asking again later can help without anyone doing anything. Says nothing about
    /// whether a *write* may be repeated: that depends on the kind of error alone.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.class.is_transient(),
            Self::Unknown { .. } => true,
            Self::NotSent { why, .. } => match why {
                NotSent::Connect { .. }
                | NotSent::ConnectTimeout { .. }
                | NotSent::Tls { .. }
                | NotSent::NodeNotReached { .. }
                | NotSent::StorageSilent { .. }
                | NotSent::StoragesCrowded { .. }
                | NotSent::StorageSlow { .. } => true,
                NotSent::WrongPin { .. } | NotSent::Untrusted { .. } | NotSent::TooLarge { .. } => {
                    false
                }
            },
        }
    }

    /// What to do about it: the next command, or where to look.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::NotSent { why, .. } => why.hint(),
            Self::Refused(refusal) => refusal.class.hint(),
            Self::Unknown { call, why } if is_read(call) => why.hint_to_read(),
            Self::Unknown { why, .. } => why.hint(),
        }
    }
}

/// Whether a call, as `Request::call` prints it, changes nothing.
fn is_read(call: &str) -> bool {
    call.starts_with("GET ")
}

impl NotSent {
    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Connect { .. } | Self::ConnectTimeout { .. } => {
                "check `url` in agent.toml and that pveproxy runs: systemctl status pveproxy"
            }
            Self::WrongPin { .. } => {
                "compare on the node: openssl x509 -in /etc/pve/local/pve-ssl.pem -noout \
                 -fingerprint -sha256; only if it matches, set `fingerprint`"
            }
            Self::Untrusted { .. } => {
                "set `ca_file` (/etc/pve/pve-root-ca.pem of the node) or `fingerprint`"
            }
            Self::Tls { .. } => "check that `url` leads to pveproxy, port 8006",
            Self::NodeNotReached { .. } => "the node or its pvedaemon is down: pvecm status",
            Self::TooLarge { .. } => "shorten the values of this request",
            Self::StorageSilent { .. }
            | Self::StoragesCrowded { .. }
            | Self::StorageSlow { .. } => {
                "look at the storage on the node: pvesm status; `evenkeel status` shows the start"
            }
        }
    }
}

impl Unknown {
    /// What to do about it if nothing was to be changed.
    fn hint_to_read(&self) -> &'static str {
        match self {
            Self::Timeout { .. }
            | Self::ConnectionLost { .. }
            | Self::NodeLost { .. }
            | Self::WorkerLost { .. } => {
                "try again; if it fails again, on the node: systemctl status pveproxy pvedaemon"
            }
            Self::Gateway { .. } | Self::NotHttp | Self::Unreadable { .. } => self.hint(),
            Self::Truncated { .. } | Self::TooLarge { .. } => {
                "check that `url` leads to pveproxy itself; the node's log: journalctl -u pveproxy"
            }
        }
    }

    /// What to do about it.
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Timeout { .. }
            | Self::ConnectionLost { .. }
            | Self::NodeLost { .. }
            | Self::WorkerLost { .. } => "look at the guest and its tasks before doing it again",
            Self::Gateway { .. } | Self::NotHttp | Self::Unreadable { .. } => {
                "check that `url` leads to pveproxy itself and not to another server"
            }
            Self::Truncated { .. } | Self::TooLarge { .. } => {
                "look at the guest and its tasks; the node's log: journalctl -u pveproxy"
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent { call, why } => write!(f, "{call} was not sent: {why}"),
            Self::Refused(refusal) => refusal.fmt(f),
            // A read changes nothing, so whether it was executed is nobody's worry.
            Self::Unknown { call, why } if is_read(call) => write!(f, "{call} failed: {why}"),
            Self::Unknown { call, why } => write!(f, "{call} may have been executed: {why}"),
        }
    }
}

impl fmt::Display for PveRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} was refused ({}): {}", self.call, self.status, self.text)?;
        for (parameter, why) in &self.errors {
            write!(f, "; {parameter}: {why}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

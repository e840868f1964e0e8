//! The flags of `sim`, with the words people read in `--help`; they never reach a real node.

use std::net::SocketAddr;

use camino::Utf8PathBuf;
use clap::Args;
use evenkeel_core::model::id::NodeName;
use evenkeel_core::model::release::Release;

use super::OutputArgs;

/// Arguments of `sim`.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// The loopback address to listen on; port 0 takes a free port
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:8006")]
    pub(crate) listen: SocketAddr,
    /// The number of guests: a mix of kinds, disks, odd values and changes that wait for a restart
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) guests: u32,
    /// The name of the node
    #[arg(long, default_value = "pve1")]
    pub(crate) node: NodeName,
    /// The release to simulate: 7.4, 8.4 or 9.2
    #[arg(long, value_name = "RELEASE", default_value = "8.4", value_parser = simulated)]
    pub(crate) pve: Release,
    /// Delay every answer by so many milliseconds
    #[arg(long = "latency", value_name = "MS", default_value_t = 0)]
    pub(crate) latency_ms: u64,
    /// A JSON file with a list of faults
    #[arg(long, value_name = "FILE")]
    pub(crate) faults: Option<Utf8PathBuf>,
    /// A JSON file with storages, templates, images, guests and backups to start with
    #[arg(long, value_name = "FILE")]
    pub(crate) scenario: Option<Utf8PathBuf>,
    /// Keep the state in this file between runs
    #[arg(long, value_name = "FILE")]
    pub(crate) state: Option<Utf8PathBuf>,
    /// Write the node's configuration files and active tasks to this directory, as in /etc/pve
    #[arg(long, value_name = "DIR")]
    pub(crate) cluster_fs: Option<Utf8PathBuf>,
    /// Speak plain HTTP instead of TLS
    #[arg(long)]
    pub(crate) plain_http: bool,
    /// The seed of addresses and odd values: the same seed gives the same guests
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}

/// A release the simulator was held to.
fn simulated(text: &str) -> Result<Release, String> {
    let release: Release = text.parse().map_err(|error| format!("{error}"))?;
    match release {
        Release::V7_4 | Release::V8_4 | Release::V9_2 => Ok(release),
        _ => Err("the simulator knows 7.4, 8.4 and 9.2".to_owned()),
    }
}

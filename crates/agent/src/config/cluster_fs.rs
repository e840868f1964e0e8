//! `cluster_fs` under `[pve]`: whether the agent reads the node's own cluster file system, and where.
//!
//! By itself it does so only where it is certain that the directory is the one behind the API it speaks to: two clusters
//! may each have a node of the same name.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use evenkeel_core::model::id::NodeName;
use serde::Deserialize;

use crate::cluster_files::{CLUSTER_FS, ClusterDirectory, ClusterFiles};
use crate::pve::endpoint::Endpoint;

/// Where the node tells which configuration files were written.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum ClusterFsConfig {
    /// In its usual place, if it can be read there and the address is this machine's.
    #[default]
    Auto,
    /// Nowhere: every declared guest is read at each pass.
    Off,
    /// In this directory.
    At(PathBuf),
}

impl TryFrom<String> for ClusterFsConfig {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match text.as_str() {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            path if Path::new(path).is_absolute() => Ok(Self::At(path.into())),
            _ => {
                Err("it must be \"auto\", \"off\" or the path of a directory, from / on".to_owned())
            }
        }
    }
}

impl ClusterFsConfig {
    /// The files that are read, if any. What was configured and cannot be used is said; without them passes read every
    /// declared guest, which costs time and nothing else.
    pub fn files(&self, node: &NodeName, endpoint: &Endpoint) -> Option<Arc<dyn ClusterFiles>> {
        let path = match self {
            Self::Off => return None,
            Self::Auto if !endpoint.is_this_machine(node) => return None,
            Self::Auto => Path::new(CLUSTER_FS),
            Self::At(path) => path,
        };
        match (ClusterDirectory::of_node(path, node), self) {
            (Ok(directory), _) => {
                tracing::info!(directory = %path.display(), "tells which configurations were written");
                Some(Arc::new(directory))
            }
            (Err(error), Self::At(_)) => {
                tracing::warn!(%error, "`cluster_fs` cannot be used; every declared guest is read at each pass");
                None
            }
            (Err(error), Self::Auto | Self::Off) => {
                tracing::debug!(%error, "no cluster file system of this node");
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_word_or_a_whole_path() {
        let read = |text: &str| ClusterFsConfig::try_from(text.to_owned());
        assert_eq!(read("auto"), Ok(ClusterFsConfig::Auto));
        assert_eq!(read("off"), Ok(ClusterFsConfig::Off));
        assert_eq!(read("/etc/pve"), Ok(ClusterFsConfig::At("/etc/pve".into())));
        for wrong in ["", "on", "true", "etc/pve", "./pve"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn by_itself_it_is_read_only_where_the_address_is_this_machines() {
        let node: NodeName = "pve1".parse().unwrap();
        for (url, here) in [
            ("https://127.0.0.1:8006", true),
            ("https://[::1]:8006", true),
            ("https://localhost:8006", true),
            ("https://pve1:8006", true),
            ("https://PVE1.example:8006", true),
            ("https://pve10.example:8006", false),
            ("https://pve2.example:8006", false),
            ("https://192.0.2.1:8006", false),
        ] {
            let endpoint: Endpoint = url.parse().unwrap();
            assert_eq!(endpoint.is_this_machine(&node), here, "{url}");
        }
    }
}

//! A statement of any kind an operator signs, told apart by its own first field.
//!
//! The command line asks here what a file holds, so that the namespace of a signature follows from the
//! bytes that are signed and never from a flag. The host does not: it knows what it asks for.

use super::denial::{DENIAL_FORMAT, DenialStatement};
use super::hash::PendingId;
use super::json;
use super::render;
use super::rotation::{Rotation, RotationAuthority};
use super::sshsig::Namespace;
use super::statement::{
    HostBinding, STATEMENT_BYTES_MAX, STATEMENT_FORMAT, Statement, Window, payload,
};
use crate::fleet::{ACKNOWLEDGE_FORMAT, AcknowledgeStatement};
use crate::model::reason::{ReasonCode, Refusal};

/// What an operator signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnyStatement {
    /// The approval of an act.
    Op(Statement),
    /// The denial of an item.
    Deny(DenialStatement),
    /// A change of signers.
    Rotation(Rotation),
    /// That a rollback of a journal is known.
    Acknowledge(AcknowledgeStatement),
}

impl AnyStatement {
    /// The statement in exact bytes, of the kind its `format` says.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        let mut fields = json::parse(bytes, STATEMENT_BYTES_MAX).map_err(|e| payload(&e))?;
        let format = fields.text("format").map_err(|error| payload(&error))?;
        if format == STATEMENT_FORMAT {
            return Statement::parse(bytes).map(Self::Op);
        }
        if format == DENIAL_FORMAT {
            return DenialStatement::parse(bytes).map(Self::Deny);
        }
        if format == ACKNOWLEDGE_FORMAT {
            return AcknowledgeStatement::parse(bytes).map(Self::Acknowledge);
        }
        let authority =
            RotationAuthority::ALL.into_iter().find(|authority| authority.format() == format);
        let authority = authority.ok_or_else(|| {
            let format = render::visible(&format);
            let detail = format!("`{format}` is no format of a statement operators sign");
            Refusal::new(ReasonCode::Payload, detail)
        })?;
        Rotation::parse(bytes, authority).map(Self::Rotation)
    }

    /// What its signatures are for.
    pub fn namespace(&self) -> Namespace {
        match self {
            Self::Op(_) => Namespace::Op,
            Self::Deny(_) => Namespace::Deny,
            Self::Rotation(rotation) => rotation.authority.namespace(),
            Self::Acknowledge(_) => Namespace::Acknowledge,
        }
    }

    /// Whether it is signed by a person at a terminal and never by a flag. An act on one guest was put before them by its
    /// host and has one use; these change who may sign from then on, or what a host has forgotten, and no host asked.
    pub fn needs_a_person(&self) -> bool {
        match self {
            Self::Op(_) | Self::Deny(_) => false,
            Self::Rotation(_) | Self::Acknowledge(_) => true,
        }
    }

    /// What it is, for a sentence about it.
    pub fn in_words(&self) -> &'static str {
        match self {
            Self::Op(_) => "an approval of an act",
            Self::Deny(_) => "a denial of an item",
            Self::Rotation(rotation) => rotation.authority.in_words(),
            Self::Acknowledge(_) => "an acknowledgement of a rolled back journal",
        }
    }

    /// What a file with it is called, if nobody says otherwise: by what it is about, so that two are never mistaken for each
    /// other. Two approvals of one item allow the same act.
    pub fn file_name(&self) -> String {
        match self {
            Self::Op(statement) => format!("approval-{}.json", beginning(statement.item)),
            Self::Deny(statement) => format!("denial-{}.json", beginning(statement.item)),
            Self::Rotation(rotation) => {
                format!("rotation-{}-{}.json", rotation.host.id, rotation.version)
            }
            Self::Acknowledge(statement) => {
                format!("acknowledgement-{}-{}.json", statement.host.id, statement.found.seq)
            }
        }
    }

    /// Where it holds.
    pub fn host(&self) -> &HostBinding {
        match self {
            Self::Op(statement) => &statement.host,
            Self::Deny(statement) => &statement.host,
            Self::Rotation(rotation) => &rotation.host,
            Self::Acknowledge(statement) => &statement.host,
        }
    }

    /// When it holds.
    pub fn window(&self) -> Window {
        match self {
            Self::Op(statement) => statement.window,
            Self::Deny(statement) => statement.window,
            Self::Rotation(rotation) => rotation.window,
            Self::Acknowledge(statement) => statement.window,
        }
    }
}

/// As much of an item's name as lists show.
fn beginning(item: PendingId) -> String {
    item.to_string().chars().take(16).collect()
}

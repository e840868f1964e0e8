//! A statement of any kind an operator signs, told apart by its own first field.
//!
//! The command line asks here what a file holds, so that the namespace of a signature follows from the
//! bytes that are signed and never from a flag. The host does not: it knows what it asks for.

use super::json;
use super::render;
use super::rotation::{Rotation, RotationAuthority};
use super::sshsig::Namespace;
use super::statement::{
    HostBinding, STATEMENT_BYTES_MAX, STATEMENT_FORMAT, Statement, Window, payload,
};
use crate::fleet::{ACKNOWLEDGE_FORMAT, AcknowledgeStatement};
use crate::reason::{ReasonCode, Refusal};

/// What an operator signs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnyStatement {
    /// The approval of an act.
    Op(Statement),
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
            Self::Rotation(rotation) => rotation.authority.namespace(),
            Self::Acknowledge(_) => Namespace::Acknowledge,
        }
    }

    /// Where it holds.
    pub fn host(&self) -> &HostBinding {
        match self {
            Self::Op(statement) => &statement.host,
            Self::Rotation(rotation) => &rotation.host,
            Self::Acknowledge(statement) => &statement.host,
        }
    }

    /// When it holds.
    pub fn window(&self) -> Window {
        match self {
            Self::Op(statement) => statement.window,
            Self::Rotation(rotation) => rotation.window,
            Self::Acknowledge(statement) => statement.window,
        }
    }
}

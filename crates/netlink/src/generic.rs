//! Generic netlink: families that the kernel numbers at registration, behind one protocol.

use std::collections::BTreeMap;

use crate::attribute::{Attributes, Writer};
use crate::error::Error;
use crate::numbers::{CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME, CTRL_CMD_GETFAMILY};
use crate::socket::{Answers, Protocol, Socket};

/// The family that lists all others, `GENL_ID_CTRL`.
const CONTROL: u16 = 16;
/// Bytes of a generic netlink header: command, version, two unused.
const HEADER: usize = 4;

/// A generic netlink socket, and the families resolved so far.
#[derive(Debug)]
pub struct Generic {
    socket: Socket,
    families: BTreeMap<&'static str, u16>,
}

impl Generic {
    /// Opens a socket in the calling thread's network namespace.
    ///
    /// # Errors
    /// As [`Socket::open`].
    pub fn open() -> Result<Self, Error> {
        Ok(Self::over(Socket::open(Protocol::Generic)?))
    }

    /// Over an open socket of the protocol.
    #[must_use]
    pub const fn over(socket: Socket) -> Self {
        Self { socket, families: BTreeMap::new() }
    }

    /// A request to a family; `fill` writes its attributes.
    ///
    /// # Errors
    /// `EOPNOTSUPP` if the kernel lacks the family; otherwise as [`Socket::request`].
    pub fn request(
        &mut self,
        family: &'static str,
        command: u16,
        fill: impl FnOnce(&mut Writer),
    ) -> Result<Answers, Error> {
        let kind = self.family(family)?;
        self.socket.request(kind, &body(command, fill)?)
    }

    /// A dump of a family; `fill` writes its attributes.
    ///
    /// # Errors
    /// As [`request`](Self::request) and [`Socket::dump`].
    pub fn dump(
        &mut self,
        family: &'static str,
        command: u16,
        fill: impl FnOnce(&mut Writer),
    ) -> Result<Answers, Error> {
        let kind = self.family(family)?;
        self.socket.dump(kind, &body(command, fill)?)
    }

    /// The number of a family.
    fn family(&mut self, name: &'static str) -> Result<u16, Error> {
        if let Some(number) = self.families.get(name) {
            return Ok(*number);
        }
        let body = body(CTRL_CMD_GETFAMILY, |body| {
            body.text(CTRL_ATTR_FAMILY_NAME, name);
        })?;
        let answers = self.socket.request(CONTROL, &body).map_err(|error| match error.errno {
            Some(libc::ENOENT) => Error {
                errno: Some(libc::EOPNOTSUPP),
                detail: Some(format!("this kernel has no netlink family {name}")),
                ..error
            },
            _ => error,
        })?;
        let number = attributes(&answers).find_map(|answer| answer.number(CTRL_ATTR_FAMILY_ID));
        let number = number.and_then(|number| u16::try_from(number).ok());
        let number = number.ok_or_else(|| Error::other(format_args!("the family {name} has no number")))?;
        self.families.insert(name, number);
        Ok(number)
    }
}

fn body(command: u16, fill: impl FnOnce(&mut Writer)) -> Result<Vec<u8>, Error> {
    let command = u8::try_from(command).map_err(Error::other)?;
    let mut body = Writer::after(&[command, 1, 0, 0]);
    fill(&mut body);
    Ok(body.finish())
}

/// The attributes of each answer, without netlink's header and generic netlink's.
pub fn attributes(answers: &Answers) -> impl Iterator<Item = Attributes<'_>> {
    answers.bodies().map(|body| Attributes::new(body.get(HEADER..).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_family_that_the_kernel_lacks_is_named() {
        let error = Generic::open().unwrap().request("no-such-family", 1, |_| {}).unwrap_err();
        assert_eq!(error.errno, Some(libc::EOPNOTSUPP));
        assert!(error.why().starts_with("this kernel has no netlink family no-such-family"), "{error:?}");
    }
}

//! What a server says to a question, in words that can be compared.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};

use domain::base::Message;
use domain::rdata::AllRecordData;
use udpath_rig::TIMEOUT;

/// Type of aliases.
const CNAME: u16 = 5;

/// A server as the client sees it.
pub(super) struct Asked<'a> {
    name: &'static str,
    socket: UdpSocket,
    /// Connects over TCP, for what is truncated.
    connect: &'a dyn Fn(SocketAddr) -> TcpStream,
    /// Whether it is asked for signatures.
    secure: bool,
}

/// Code, flags, answer, authority and glue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Said {
    code: String,
    answer: Vec<String>,
    authority: Vec<String>,
    glue: Vec<String>,
    /// What the authority section may have besides: of an alias, what its zone says of the target, which another zone
    /// has.
    also: Vec<String>,
}

impl Said {
    /// The name's CNAME record and its target; not one made of a DNAME record.
    fn alias_of(&self, name: &str) -> Option<(String, String)> {
        let owner = name.trim_end_matches('.');
        let words = self.answer.iter().map(|record| record.split(' ').collect::<Vec<_>>());
        let made =
            words.clone().any(|words| words[2] == "dname" && owner.ends_with(&format!(".{}", words[0])));
        let mut own = words.filter(|words| !made && words[0] == owner && words[2] == "cname");
        own.next().map(|words| (words.join(" "), words[3].to_owned()))
    }

    /// Whether it says the same. Of a wildcard that has no records, but names below it, it may also say that: NSD and
    /// Knot leave that out of a chain of NSEC records, and it is needed (RFC 4035, 3.1.3.4).
    pub(super) fn is(&self, other: &Self) -> bool {
        let needed = other.authority.iter().all(|record| self.authority.contains(record));
        let own = self.authority.iter();
        let more: Vec<&String> =
            own.filter(|record| !other.authority.contains(record) && !other.also.contains(record)).collect();
        let known = match &more[..] {
            [] => true,
            [denial, signature] => {
                let words: Vec<&str> = denial.split(' ').collect();
                let signed =
                    signature.starts_with(&format!("{} ", words[0])) && signature.contains(" rrsig nsec ");
                signed && words[2] == "nsec" && words[3].contains(".*.")
            }
            _ => false,
        };
        needed && known && (&self.code, &self.answer, &self.glue) == (&other.code, &other.answer, &other.glue)
    }

    /// Whether it says that there is no such name.
    pub(super) fn is_no_name(&self) -> bool {
        self.code.starts_with("NXDOMAIN")
    }

    /// Whether it says what does not exist.
    pub(super) fn proves(&self) -> bool {
        self.authority.iter().any(|record| is_denial(record))
    }

    /// Whether it says the same and proves it with these records and others.
    pub(super) fn proves_more_than(&self, other: &Self) -> bool {
        (&self.code, &self.answer) == (&other.code, &other.answer)
            && other.authority.iter().all(|record| self.authority.contains(record))
    }

    /// Whether it says that there is no such name, and neither who says it nor why.
    pub(super) fn has_failed(&self) -> bool {
        self.code == "NXDOMAIN" && !self.has_answer() && self.authority.is_empty()
    }

    /// Whether it has records.
    pub(super) fn has_answer(&self) -> bool {
        !self.answer.is_empty()
    }

    /// Whether it is the beginning of an answer through a DNAME record.
    pub(super) fn begins(&self, whole: &Self) -> bool {
        let through = whole.answer.iter().any(|record| record.contains(" dname "));
        through
            && !self.answer.is_empty()
            && self.code == "NOERROR aa"
            && self.answer.iter().all(|record| whole.answer.contains(record))
    }
}

impl<'a> Asked<'a> {
    pub(super) fn new(
        name: &'static str,
        socket: UdpSocket,
        connect: &'a dyn Fn(SocketAddr) -> TcpStream,
        secure: bool,
    ) -> Self {
        Self { name, socket, connect, secure }
    }

    /// The answer to a question whose aliases are asked for one by one, as the server's own search would begin again
    /// with each.
    pub(super) fn follows(&self, number: u16, name: &str, qtype: u16) -> Said {
        let (mut name, mut aliases) = (name.to_owned(), Vec::new());
        // With signatures.
        let (mut signed, mut denial) = (Vec::new(), Vec::new());
        loop {
            let mut said = self.says(number, &name, qtype);
            let alias = said.alias_of(&name).filter(|_| qtype != CNAME);
            match alias {
                // Another server's, or one that was there before: the client asks on.
                _ if !aliases.is_empty() && !said.code.ends_with(" aa") => break,
                Some((record, _)) if aliases.contains(&record) => break,
                Some((record, target)) => {
                    let owner = format!("{} ", name.trim_end_matches('.'));
                    let own = |other: &&String| other.starts_with(&owner) && other.contains(" rrsig cname ");
                    signed.extend(said.answer.iter().filter(own).cloned());
                    denial.extend(said.authority);
                    aliases.push(record);
                    name = target;
                }
                None if aliases.is_empty() => return said,
                None => {
                    said.answer.extend([aliases, signed].concat());
                    said.answer.sort();
                    let authority = only_denial(said.authority);
                    return Said { authority, glue: Vec::new(), also: only_denial(denial), ..said };
                }
            }
        }
        aliases.extend(signed);
        aliases.sort();
        let [authority, glue] = [const { Vec::new() }; 2];
        Said { code: "NOERROR aa".into(), answer: aliases, authority, glue, also: only_denial(denial) }
    }

    pub(super) fn says(&self, number: u16, name: &str, qtype: u16) -> Said {
        let mut query = [&number.to_be_bytes()[..], &[0, 0, 0, 1, 0, 0, 0, 0, 0, 1]].concat();
        for label in name.trim_end_matches('.').split('.') {
            query.push(label.len() as u8);
            query.extend(label.as_bytes());
        }
        let flags = if self.secure { 0x80 } else { 0 };
        query.extend(
            [&[0], &qtype.to_be_bytes()[..], &[0, 1, 0, 0, 41, 4, 208, 0, 0, flags, 0, 0, 0]].concat(),
        );
        self.socket.send(&query).unwrap();
        let mut reply = [0; 1500];
        loop {
            let len = match self.socket.recv(&mut reply) {
                Ok(len) => len,
                // Another test's child has ended.
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(error) => panic!("{} for {name}: {error}", self.name),
            };
            if reply[..2] != query[..2] {
                continue;
            }
            // Where two servers truncate is their own matter; what it is that they truncate is not.
            if self.secure && reply[2] & 2 != 0 {
                return said(&self.whole(&query));
            }
            return said(&reply[..len]);
        }
    }

    /// The reply over TCP.
    fn whole(&self, query: &[u8]) -> Vec<u8> {
        let mut stream = (self.connect)(self.socket.peer_addr().unwrap());
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(&[&(query.len() as u16).to_be_bytes()[..], query].concat()).unwrap();
        let mut len = [0; 2];
        stream.read_exact(&mut len).unwrap();
        let mut reply = vec![0; usize::from(u16::from_be_bytes(len))];
        stream.read_exact(&mut reply).unwrap();
        reply
    }
}

fn said(reply: &[u8]) -> Said {
    let message = Message::from_octets(reply).unwrap();
    let header = message.header();
    let [answer, authority, glue] =
        [message.answer().unwrap(), message.authority().unwrap(), message.additional().unwrap()].map(
            |section| {
                let mut records: Vec<String> = section
                    .map(|record| record.unwrap().into_record::<AllRecordData<_, _>>().unwrap().unwrap())
                    .filter(|record| record.rtype().to_int() != 41)
                    .map(|record| {
                        let (ttl, rtype) = (record.ttl().as_secs(), record.rtype());
                        format!("{} {ttl} {rtype} {}", record.owner(), record.data()).to_lowercase()
                    })
                    .collect();
                records.sort();
                records
            },
        );
    let code = format!(
        "{}{}{}",
        header.rcode(),
        if header.aa() { " aa" } else { "" },
        if header.tc() { " tc" } else { "" }
    );
    // A referral's glue is needed; other additional records, and signatures of addresses that are no glue, are a
    // favour.
    let glue: Vec<String> = glue.into_iter().filter(|record| !record.contains(" rrsig ")).collect();
    let referral = answer.is_empty() && !header.aa();
    let (authority, glue) = match (answer.is_empty(), referral) {
        (true, true) => (authority, glue),
        (true, false) => (authority, Vec::new()),
        (false, _) => (only_denial(authority), Vec::new()),
    };
    Said { code, answer, authority, glue, also: Vec::new() }
}

/// Those that say what does not exist, each once.
fn only_denial(mut records: Vec<String>) -> Vec<String> {
    records.retain(|record| is_denial(record));
    records.sort();
    records.dedup();
    records
}

/// Whether it says what does not exist, or signs that.
fn is_denial(record: &str) -> bool {
    let words: Vec<&str> = record.split(' ').collect();
    let rtype = if words[2] == "rrsig" { words[3] } else { words[2] };
    ["nsec", "nsec3"].contains(&rtype)
}

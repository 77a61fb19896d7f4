//! The options of `udpath load snmp`.

use super::list;
use super::oid::Oid;
use super::pdu::{Operation, Question};
use super::usm::{Auth, Hash, User};
use super::{AUTH, COMMUNITY, MAX_REPETITIONS, OIDS, OPERATION, PRIV, USER};
use crate::{OptionError, OptionSpec, Options};

/// Rows of a GETBULK unless the user chooses another number: what `snmpbulkget` asks for.
const DEFAULT_REPETITIONS: u32 = 10;
/// Most rows of a GETBULK: more than fit any message.
const MAX_ROWS: u32 = 1000;
/// Longest community. There is no limit in RFC 1901; net-snmp's is 256.
const MAX_COMMUNITY: usize = 255;
/// Longest user name (RFC 3414, 5: SnmpAdminString of 1 to 32).
const MAX_USER: usize = 32;
/// Shortest password (RFC 3414, 11.2).
const MIN_PASSWORD: usize = 8;
/// sysUpTime.0: every agent has it.
const SYS_UP_TIME: &str = "1.3.6.1.2.1.1.3.0";

/// Who asks, and what.
#[derive(Debug, Clone)]
pub struct SnmpConfig {
    /// The version, and who asks in it.
    pub asker: Asker,
    /// The requests, sent in turn; at least one.
    pub questions: Vec<Question>,
}

/// Who asks.
#[derive(Debug, Clone)]
pub enum Asker {
    /// Version 2c with this community.
    Community(String),
    /// Version 3 as this user.
    User(User),
}

impl SnmpConfig {
    /// From the options of `udpath load snmp`.
    pub(super) fn from_options(options: &Options) -> Result<Self, OptionError> {
        let operation = text(options, &OPERATION)?.map(|name| {
            name.parse().map_err(|()| invalid(&OPERATION, &name, "expected get, getnext or getbulk"))
        });
        let operation = operation.transpose()?.unwrap_or(Operation::Get);
        let rows = format_args!("1 to {MAX_ROWS} rows");
        let rows = options.parsed(&MAX_REPETITIONS, rows, |rows| (1..=MAX_ROWS).contains(rows))?;
        let repetitions = rows.unwrap_or(DEFAULT_REPETITIONS);
        let questions = match options.paths(&OIDS).last() {
            Some(file) => list::read(&file, operation, repetitions)
                .map_err(|error| invalid(&OIDS, &file.display().to_string(), &error.to_string()))?,
            None => {
                let oid = SYS_UP_TIME
                    .parse::<Oid>()
                    .map_err(|error| invalid(&OIDS, SYS_UP_TIME, &format!("{error}")))?;
                vec![Question { operation, oids: vec![oid], repetitions }]
            }
        };
        Ok(Self { asker: asker(options)?, questions })
    }
}

fn asker(options: &Options) -> Result<Asker, OptionError> {
    let (community, user) = (text(options, &COMMUNITY)?, text(options, &USER)?);
    let (auth, privacy) = (text(options, &AUTH)?, text(options, &PRIV)?);
    let needs = |option: &OptionSpec, other: &OptionSpec| OptionError::Needs {
        option: option.name,
        other: other.name,
    };
    let Some(name) = user else {
        return match (auth, privacy) {
            (Some(_), _) => Err(needs(&AUTH, &USER)),
            (None, Some(_)) => Err(needs(&PRIV, &USER)),
            (None, None) => {
                let community = community.unwrap_or_else(|| "public".to_owned());
                let reason = format!("expected up to {MAX_COMMUNITY} bytes");
                let fits = community.len() <= MAX_COMMUNITY;
                if fits { Ok(Asker::Community(community)) } else { Err(invalid(&COMMUNITY, "...", &reason)) }
            }
        };
    };
    if community.is_some() {
        return Err(invalid(
            &COMMUNITY,
            "...",
            "version 2c has communities, version 3 --user: remove one of them",
        ));
    }
    if !(1..=MAX_USER).contains(&name.len()) {
        return Err(invalid(&USER, &name, &format!("expected 1 to {MAX_USER} bytes")));
    }
    if privacy.is_some() && auth.is_none() {
        return Err(needs(&PRIV, &AUTH));
    }
    let auth = auth.map(|auth| {
        let (hash, password) = secret(&AUTH, &auth, "sha256")?;
        let known = "the hash before the colon is one of sha, sha224, sha256, sha384 and sha512";
        let hash: Hash = hash.parse().map_err(|()| invalid(&AUTH, &format!("{hash}:..."), known))?;
        Ok(Auth { hash, password: password.to_owned(), privacy: None })
    });
    let auth = match (auth.transpose()?, privacy) {
        (Some(auth), Some(privacy)) => {
            let (cipher, password) = secret(&PRIV, &privacy, "aes")?;
            if cipher != "aes" {
                return Err(invalid(&PRIV, &format!("{cipher}:..."), "the cipher before the colon is aes"));
            }
            Some(Auth { privacy: Some(password.to_owned()), ..auth })
        }
        (auth, _) => auth,
    };
    Ok(Asker::User(User { name, auth }))
}

/// What stands before and after the colon. No error shows the password.
fn secret<'a>(option: &OptionSpec, value: &'a str, example: &str) -> Result<(&'a str, &'a str), OptionError> {
    let Some((kind, password)) = value.split_once(':') else {
        return Err(invalid(
            option,
            "...",
            &format!("expected a colon before the password, such as {example}:PASSWORD"),
        ));
    };
    if password.len() < MIN_PASSWORD {
        let reason = format!("the password has fewer than {MIN_PASSWORD} bytes, the fewest of RFC 3414");
        return Err(invalid(option, &format!("{kind}:..."), &reason));
    }
    Ok((kind, password))
}

fn text(options: &Options, option: &OptionSpec) -> Result<Option<String>, OptionError> {
    options.parsed(option, "text in UTF-8", |_| true)
}

fn invalid(option: &OptionSpec, value: &str, reason: &str) -> OptionError {
    OptionError::Invalid { option: option.name, value: value.to_owned(), reason: reason.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(given: &[(OptionSpec, &str)]) -> Result<SnmpConfig, String> {
        let mut options = Options::default();
        given.iter().for_each(|(spec, value)| options.push(spec, *value));
        SnmpConfig::from_options(&options).map_err(|error| error.to_string())
    }

    #[test]
    fn the_default_asks_everyone_for_the_time_since_start() {
        let config = config(&[]).unwrap();
        assert!(matches!(config.asker, Asker::Community(name) if name == "public"));
        let [question] = &config.questions[..] else { panic!("one") };
        assert_eq!((question.operation, question.repetitions), (Operation::Get, 10));
        assert_eq!(question.oids[0].contents(), [0x2b, 6, 1, 2, 1, 1, 3, 0]);
    }

    #[test]
    fn users_have_levels() {
        let of = |given: &[(OptionSpec, &str)]| match config(given).unwrap().asker {
            Asker::User(user) => user,
            Asker::Community(_) => panic!("version 2c"),
        };
        assert!(of(&[(USER, "joe")]).auth.is_none());
        let auth = of(&[(USER, "joe"), (AUTH, "sha:with:colon")]).auth.unwrap();
        assert_eq!((auth.hash, auth.password.as_str(), auth.privacy), (Hash::Sha1, "with:colon", None));
        let auth =
            of(&[(USER, "joe"), (AUTH, "sha512:password"), (PRIV, "aes:other password")]).auth.unwrap();
        assert_eq!((auth.hash, auth.privacy.as_deref()), (Hash::Sha512, Some("other password")));
    }

    #[test]
    fn wrong_options_are_named_and_passwords_are_not() {
        let (joe, long) = ((USER, "joe"), "x".repeat(256));
        for (given, said) in [
            (&[(OPERATION, "set")][..], "invalid --operation set: expected get, getnext or getbulk"),
            (&[(MAX_REPETITIONS, "0")], "invalid --max-repetitions 0: expected 1 to 1000 rows"),
            (&[(OIDS, "/nowhere")], "invalid --oids /nowhere: cannot read it: "),
            (&[(COMMUNITY, &long)], "expected up to 255 bytes"),
            (&[joe, (COMMUNITY, "public")], "invalid --community ...: version 2c has communities"),
            (&[(USER, "")], "expected 1 to 32 bytes"),
            (&[(USER, &long[..33])], "expected 1 to 32 bytes"),
            (&[(AUTH, "sha:password")], "--auth needs --user"),
            (&[(PRIV, "aes:password")], "--priv needs --user"),
            (&[joe, (PRIV, "aes:password")], "--priv needs --auth"),
            (
                &[joe, (AUTH, "password")],
                "invalid --auth ...: expected a colon before the password, such as sha256:",
            ),
            (
                &[joe, (AUTH, "md5:password")],
                "invalid --auth md5:...: the hash before the colon is one of sha,",
            ),
            (&[joe, (AUTH, "sha:short")], "invalid --auth sha:...: the password has fewer than 8 bytes"),
            (&[joe, (AUTH, "sha:password"), (PRIV, "des:password")], "invalid --priv des:...: the cipher"),
        ] {
            let error = config(given).unwrap_err();
            assert!(error.contains(said), "{error}");
            assert!(!error.contains(":password") && !error.contains("short"), "{error}");
        }
    }
}

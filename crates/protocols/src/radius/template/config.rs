//! What the requests of a load are made of.

use std::path::Path;

use super::super::packet::{DIGEST, HEADER};
use super::super::secret::Secret;
use super::super::state::invalid;
use super::super::text::{FileError, LineError, lines, read};
use super::super::users::{EXAMPLE, User, Users, padded};
use super::super::{ACCOUNTING, CLIENTS, DEFAULT_SECRET, METHOD, SECRET, SECRET_FILE, USERS};
use super::{NAS_IDENTIFIER, PROXY_STATE, SESSION};
use crate::misfits::SKIP_INVALID;
use crate::{OptionError, Options, ServerOption, ServerValue};

/// How users prove their password.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Auth {
    /// The password itself, hidden with the secret (RFC 2865, 5.2).
    Pap,
    /// A digest of it and the request's authenticator (RFC 2865, 5.3).
    Chap,
}

/// What the requests of a load are made of.
#[derive(Debug, Clone)]
pub struct LoadConfig {
    /// The secret shared with the server.
    pub secret: Secret,
    /// The users, in turn; a load without users sends nothing valid.
    pub users: Users,
    /// What the file of users has besides, in words.
    pub left_out: Option<String>,
    /// How they prove their password.
    pub auth: Auth,
    /// Whether accounting is sent instead of Access-Requests.
    pub accounting: bool,
}

impl Default for LoadConfig {
    /// Fits a server without files.
    fn default() -> Self {
        let secret = Secret::new(DEFAULT_SECRET.as_bytes());
        Self { secret, users: Users::example(), left_out: None, auth: Auth::Pap, accounting: false }
    }
}

impl LoadConfig {
    /// From the options of `udpath load radius`.
    pub(in super::super) fn from_options(options: &Options) -> Result<Self, OptionError> {
        let default = Self::default();
        let secret = Secret::new(secret(options)?.as_bytes());
        let mut left_out = None;
        let users = match options.paths(&USERS).last() {
            None => default.users,
            Some(path) => {
                let users = if options.has(&SKIP_INVALID) {
                    Users::read_valid(&path).map(|(users, misfits)| {
                        left_out = misfits.hint(users.count(), "users");
                        users
                    })
                } else {
                    Users::read(&path)
                };
                let users = users.map_err(|error| invalid(USERS.name, error))?;
                if users.all().is_empty() {
                    let but = left_out.map_or_else(String::new, |left_out| format!(": {left_out}"));
                    let reason = format!("it has no users{but}");
                    return Err(invalid(USERS.name, FileError { path, reason }));
                }
                users
            }
        };
        let auth = options
            .parsed::<String>(&METHOD, "pap or chap", |auth| ["pap", "chap"].contains(&auth.as_str()))?;
        let auth = if auth.as_deref() == Some("chap") { Auth::Chap } else { Auth::Pap };
        let accounting = options.has(&ACCOUNTING);
        if accounting && options.has(&METHOD) {
            return Err(OptionError::Invalid {
                option: METHOD.name,
                value: if auth == Auth::Chap { "chap" } else { "pap" }.into(),
                reason: "--accounting sends no passwords; remove one of them".into(),
            });
        }
        Ok(Self { secret, users, left_out, auth, accounting })
    }

    /// Bytes of a request of `user`.
    pub(super) fn request_len(&self, user: &User) -> usize {
        let values = [PROXY_STATE, user.name.len(), NAS_IDENTIFIER.len()];
        let more: &[usize] = match self.auth {
            _ if self.accounting => &[4, SESSION],
            Auth::Pap => &[DIGEST, padded(user.password.len())],
            Auth::Chap => &[DIGEST, 1 + DIGEST],
        };
        HEADER + values.iter().chain(more).map(|len| 2 + len).sum::<usize>()
    }
}

/// A server for a load with these options: every address is a client with the load's secret, and the users are the
/// same.
pub(in super::super) fn server_for(load: &Options) -> Result<Vec<ServerOption>, OptionError> {
    // Within quotes a backslash takes the next character as it is.
    let secret = secret(load)?.replace('\\', r"\\").replace('"', r#"\""#);
    let clients = ServerValue::FileWith(format!("0.0.0.0/0 \"{secret}\"\n::/0 \"{secret}\"\n"));
    let users = load.paths(&USERS).last();
    let users = users.map_or_else(|| ServerValue::FileWith(EXAMPLE.to_owned()), ServerValue::FileAt);
    Ok(vec![ServerOption { spec: &CLIENTS, value: clients }, ServerOption { spec: &USERS, value: users }])
}

/// The secret shared with the server.
fn secret(options: &Options) -> Result<String, OptionError> {
    let text = options.parsed::<String>(&SECRET, "text that is not empty", |text| !text.is_empty())?;
    match (text, options.paths(&SECRET_FILE).last()) {
        (None, None) => Ok(DEFAULT_SECRET.to_owned()),
        (Some(text), None) => Ok(text),
        (None, Some(path)) => first_line(&path).map_err(|error| invalid(SECRET_FILE.name, error)),
        (Some(_), Some(path)) => Err(OptionError::Invalid {
            option: SECRET_FILE.name,
            value: path.display().to_string(),
            reason: "--secret is given as well; remove one of them".into(),
        }),
    }
}

/// The first line of a file.
fn first_line(path: &Path) -> Result<String, FileError> {
    read(path, |bytes| {
        let (line, text) = lines(bytes).next().unwrap_or(Ok((1, "")))?;
        if text.is_empty() {
            return Err(LineError { line, reason: "expected the secret".into() });
        }
        Ok(text.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(given: &[(crate::OptionSpec, &str)]) -> Result<LoadConfig, String> {
        let mut options = Options::default();
        given.iter().for_each(|(spec, value)| options.push(spec, *value));
        LoadConfig::from_options(&options).map_err(|error| error.to_string())
    }

    /// Whether two secrets sign alike.
    fn same(config: &LoadConfig, secret: &str) -> bool {
        let mut packet = [0; HEADER];
        config.secret.authenticate(&mut packet, &[0; 16]).unwrap();
        Secret::new(secret.as_bytes()).has_authenticated(&packet, &[0; 16])
    }

    /// The file of clients is read by the server as the load's secret, whatever characters it has.
    #[test]
    fn a_server_for_the_load_shares_its_secret_and_its_users() {
        for text in ["testing123", "with spaces # and \\ and \"quotes\"", "a,b := c", "\\"] {
            let mut load = Options::default();
            load.push(&SECRET, text);
            load.push(&USERS, "/etc/users");
            let [clients, users] = server_for(&load).unwrap().try_into().unwrap();
            let ServerValue::FileWith(lines) = clients.value else { panic!("{clients:?}") };
            let clients = super::super::super::Clients::parse(lines.as_bytes()).unwrap();
            for address in ["10.0.0.1", "2001:db8::1"] {
                let client = clients.find(address.parse().unwrap()).expect(address);
                assert!(same(&LoadConfig { secret: client.secret.clone(), ..LoadConfig::default() }, text));
            }
            assert_eq!((users.spec.name, users.value), ("users", ServerValue::FileAt("/etc/users".into())));
        }
        let [_, users] = server_for(&Options::default()).unwrap().try_into().unwrap();
        let ServerValue::FileWith(users) = users.value else { panic!("{users:?}") };
        let (users, example) = (Users::parse(users.as_bytes()).unwrap(), Users::example());
        let facts = |user: &User| (user.name.clone(), user.password.clone(), user.verdict.clone());
        assert!(users.all().iter().map(facts).eq(example.all().iter().map(facts)));
    }

    #[test]
    fn options_make_the_requests() {
        let none = options(&[]).unwrap();
        assert!(same(&none, "testing123") && none.users.find(b"bob").is_some() && none.auth == Auth::Pap);
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.to_str().unwrap().to_owned()
        };
        let (secret, users) = (file("secret", "a b\nrest\n"), file("users", "eve Cleartext-Password := x\n"));
        let given = options(&[(SECRET_FILE, &secret), (USERS, &users), (METHOD, "chap")]).unwrap();
        assert!(same(&given, "a b") && given.users.find(b"eve").is_some() && given.auth == Auth::Chap);
        assert!(options(&[(SECRET, "x"), (ACCOUNTING, "")]).unwrap().accounting);
        let empty = file("empty", "\n");
        for (given, reason) in [
            (&[(SECRET, "")][..], "invalid --secret : expected text that is not empty".to_owned()),
            (&[(METHOD, "eap")], "invalid --method eap: expected pap or chap".to_owned()),
            (
                &[(SECRET, "x"), (SECRET_FILE, &secret)],
                format!("invalid --secret-file {secret}: --secret is given as well"),
            ),
            (&[(SECRET_FILE, &empty)], format!("invalid --secret-file {empty}: line 1: expected the secret")),
            (&[(USERS, &empty)], format!("invalid --users {empty}: it has no users")),
            (
                &[(USERS, &secret)],
                format!("invalid --users {secret}: line 1: expected := after b, but the line ends"),
            ),
            (
                &[(ACCOUNTING, ""), (METHOD, "pap")],
                "invalid --method pap: --accounting sends no passwords".to_owned(),
            ),
        ] {
            let error = options(given).unwrap_err();
            assert!(error.starts_with(&reason), "{error}");
        }
    }
}

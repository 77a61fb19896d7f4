//! What a NATS server, callers and agents of a fleet have in production: TLS, and credentials that an operator signs.
//! The permissions of both users are those of docs/commands/agent.md.
//!
//! ```text
//! operator ── signs ─▸ account ── signs ─▸ caller, agent: a JWT and the seed of its key, in one file (NATS, decentralised JWT)
//! CA ─────── signs ─▸ the server's certificate
//! ```

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use nkeys::KeyPair;
use serde_json::{Value, json};

/// Files of a NATS server and its users. Everybody may read them: agents are not root's.
#[derive(Debug)]
pub struct SecuredNats {
    folder: tempfile::TempDir,
}

impl SecuredNats {
    /// For a server at this IP address.
    ///
    /// # Panics
    /// The files cannot be made.
    #[must_use]
    pub fn new(address: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        certificates(folder.path(), address);
        credentials(folder.path());
        let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        open(folder.path(), 0o755);
        fs::read_dir(folder.path()).unwrap().for_each(|file| open(&file.unwrap().path(), 0o644));
        Self { folder }
    }

    /// Its folder: `ca.pem`, `agent.creds`, `caller.creds` and others.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A file in it, as an argument.
    #[must_use]
    pub fn file(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

fn certificates(folder: &Path, address: &str) {
    let openssl = |arguments: &[&str]| {
        let mut command = Command::new("openssl");
        command.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
        let done = command.args(["-days", "2"]).args(arguments).current_dir(folder).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    };
    openssl(&["-subj", "/CN=fleet", "-keyout", "ca.key", "-out", "ca.pem"]);
    let name = format!("subjectAltName=IP:{address}");
    let extensions = ["-addext", &name, "-addext", "basicConstraints=critical,CA:FALSE"];
    let signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-subj", "/CN=nats"];
    openssl(&[&signed[..], &extensions, &["-keyout", "server.key", "-out", "server.pem"]].concat());
}

fn credentials(folder: &Path) {
    let (operator, account) = (KeyPair::new_operator(), KeyPair::new_account());
    let operator_token = token(&operator, &operator, &json!({ "type": "operator" }));
    let any = json!({ "subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1 });
    let account_token = token(&operator, &account, &json!({ "type": "account", "limits": any }));
    fs::write(folder.join("operator.jwt"), operator_token).unwrap();
    let configuration = format!(
        "operator: {folder}/operator.jwt\nresolver: MEMORY\nresolver_preload: {{ {}: {account_token} }}\n\
         tls {{ cert_file: {folder}/server.pem, key_file: {folder}/server.key }}\n",
        account.public_key(),
        folder = folder.display()
    );
    fs::write(folder.join("nats.conf"), configuration).unwrap();
    for (name, publish, subscribe) in [
        ("caller", &["udpath.*.agents", "udpath.*.agent.*"][..], &["udpath.*.run.*"][..]),
        ("agent", &["udpath.*.run.*"], &["udpath.*.agents", "udpath.*.agent.*"]),
    ] {
        let user = KeyPair::new_user();
        let rights = json!({
            "type": "user", "subs": -1, "data": -1, "payload": -1,
            "pub": { "allow": publish }, "sub": { "allow": subscribe }
        });
        let (jwt, seed) = (token(&account, &user, &rights), user.seed().unwrap());
        let text = format!(
            "-----BEGIN NATS USER JWT-----\n{jwt}\n------END NATS USER JWT------\n\n\
             -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
        );
        fs::write(folder.join(format!("{name}.creds")), text).unwrap();
    }
}

/// A JWT of `subject`, signed by `issuer`.
fn token(issuer: &KeyPair, subject: &KeyPair, rights: &Value) -> String {
    let mut nats = rights.clone();
    nats["version"] = json!(2);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({
        "jti": "test", "iat": now, "iss": issuer.public_key(), "name": "test", "sub": subject.public_key(), "nats": nats
    });
    let header = json!({ "typ": "JWT", "alg": "ed25519-nkey" });
    let signed =
        format!("{}.{}", base64(header.to_string().as_bytes()), base64(claims.to_string().as_bytes()));
    let signature = issuer.sign(signed.as_bytes()).unwrap();
    format!("{signed}.{}", base64(&signature))
}

/// base64url without padding (RFC 4648, 5).
fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for digit in 0..=three.len() {
            text.push(char::from(DIGITS[(bits >> (18 - 6 * digit)) as usize & 63]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::base64;

    #[test]
    fn base64_is_that_of_the_rfc() {
        let all = ["", "f", "fo", "foo", "foob"].map(|text| base64(text.as_bytes()));
        assert_eq!(all, ["", "Zg", "Zm8", "Zm9v", "Zm9vYg"]);
        assert_eq!(base64(&[0xfb, 0xff]), "-_8");
    }
}

//! The address of an OpenTelemetry collector, as `--otlp` takes it.

use std::fmt;

/// The port of OTLP over HTTP, allocated by IANA.
const PORT: u16 = 4318;
/// The path of metrics, by the OTLP specification.
const PATH: &str = "/v1/metrics";

/// An address for metrics: `http://HOST[:PORT][/PATH]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Host and port: `collector:4318`, `[::1]:4318`.
    pub(crate) authority: String,
    /// The path, with its slash.
    pub(crate) path: String,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.authority, self.path)
    }
}

/// Parses an endpoint.
pub(super) fn endpoint(text: &str) -> Result<Endpoint, String> {
    let wrong = |why: &str| format!("invalid endpoint `{text}`: {why}; expected http://HOST[:PORT][/PATH]");
    if text.starts_with("https:") {
        return Err(wrong("udpath sends without TLS, to a collector on this machine or a trusted network"));
    }
    let rest = text.strip_prefix("http://").ok_or_else(|| wrong("it is not a URL with http"))?;
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    // It becomes part of the head of a request.
    if !text.bytes().all(|byte| byte.is_ascii_graphic())
        || host.contains(['@', '?', '#'])
        || path.contains('#')
    {
        return Err(wrong("it has characters that no host or path has"));
    }
    let end = host.rfind(']').map_or(0, |end| end + 1);
    let (name, port) = match host[end..].split_once(':') {
        Some((name, port)) => {
            let port = port.parse::<u16>().ok().filter(|port| *port > 0);
            (&host[..end + name.len()], port.ok_or_else(|| wrong("its port is not 1 to 65535"))?)
        }
        None => (host, PORT),
    };
    if name.is_empty() {
        return Err(wrong("it has no host"));
    }
    let path = if path.trim_end_matches('/').is_empty() { PATH } else { path };
    Ok(Endpoint { authority: format!("{name}:{port}"), path: path.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_and_path_have_the_defaults_of_otlp() {
        for (text, whole) in [
            ("http://collector", "http://collector:4318/v1/metrics"),
            ("http://10.0.0.1:9090/", "http://10.0.0.1:9090/v1/metrics"),
            ("http://[::1]", "http://[::1]:4318/v1/metrics"),
            ("http://[::1]:80/api/v1/otlp/v1/metrics", "http://[::1]:80/api/v1/otlp/v1/metrics"),
        ] {
            assert_eq!(endpoint(text).unwrap().to_string(), whole);
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_the_reason() {
        for (text, why) in [
            ("https://collector", "without TLS"),
            ("collector:4318", "not a URL"),
            ("http://", "no host"),
            ("http://:4318", "no host"),
            ("http://a:0", "its port"),
            ("http://a:b", "its port"),
            ("http://user@a", "characters"),
            ("http://a/ b", "characters"),
            ("http://a/\r\nX: y", "characters"),
        ] {
            let said = endpoint(text).unwrap_err();
            assert!(said.contains(why) && said.ends_with("expected http://HOST[:PORT][/PATH]"), "{said}");
        }
    }
}

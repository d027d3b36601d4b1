//! Names, origins, TLS, and lines about requests.

use crate::client::{self, get, post, reply, send};
use crate::stand_in::{Running, StandIn, expected};
use llmcc_serve::{Model, ServeError, Server, Settings, TlsFiles};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

/// A request with headers as they are.
fn raw(s: &Running, method: &str, path: &str, headers: &[(&str, &str)]) -> client::Reply {
    let mut stream = TcpStream::connect(s.address).expect("connected");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    write!(stream, "{method} {path} HTTP/1.1\r\nConnection: close\r\n{lines}\r\n").expect("sent");
    reply(stream)
}

#[test]
fn pages_elsewhere_have_no_name_for_the_server() {
    let s = Running::start(StandIn::new(4, Duration::ZERO), |s| s.hosts = vec!["my.host".into()]);
    for (host, status) in [
        ("127.0.0.1", 200),
        ("localhost:8080", 200),
        ("my.host:80", 200),
        ("evil.example.com", 403),
        ("127.0.0.1.example.com", 403),
    ] {
        for path in ["/v1/models", "/health", "/"] {
            assert_eq!(raw(&s, "GET", path, &[("Host", host)]).status, status, "{host} {path}");
        }
    }
    assert_eq!(raw(&s, "GET", "http://evil.example.com/health", &[]).status, 403);
    let with_key = Running::start(StandIn::new(4, Duration::ZERO), |s| s.keys = vec!["k".into()]);
    assert_eq!(raw(&with_key, "GET", "/health", &[("Host", "evil.example.com")]).status, 200, "it needs a key");
}

#[test]
fn origins_are_allowed_or_not() {
    let origin = ("Origin", "https://page.example.com");
    let host = ("Host", "localhost");
    let asks = [
        host,
        origin,
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization,content-type"),
    ];
    let closed = Running::plain();
    assert!(raw(&closed, "OPTIONS", "/v1/completions", &asks).header("access-control-allow-origin").is_none());
    assert!(raw(&closed, "GET", "/v1/models", &[host, origin]).header("access-control-allow-origin").is_none());
    let s = Running::start(StandIn::new(4, Duration::ZERO), |s| {
        (s.origins, s.keys) = (vec!["https://page.example.com".into()], vec!["k".into()]);
    });
    let asked = raw(&s, "OPTIONS", "/v1/completions", &asks);
    assert_eq!((asked.status, asked.header("access-control-allow-origin")), (200, Some(origin.1)));
    assert_eq!(asked.header("access-control-allow-headers"), Some("authorization,content-type"));
    let refused = raw(&s, "GET", "/v1/models", &[host, origin]);
    assert_eq!((refused.status, refused.header("access-control-allow-origin")), (401, Some(origin.1)));
    let other = raw(&s, "GET", "/v1/models", &[host, ("Origin", "https://other.example.com")]);
    assert!(other.header("access-control-allow-origin").is_none());
    let any = Running::start(StandIn::new(4, Duration::ZERO), |s| s.origins = vec!["*".into()]);
    let any = raw(&any, "GET", "/v1/models", &[host, origin]);
    assert_eq!(any.header("access-control-allow-origin"), Some("*"));
}

fn bound(change: impl FnOnce(&mut Settings)) -> Result<Server, ServeError> {
    let model: Arc<dyn Model> = Arc::new(StandIn::new(1, Duration::ZERO));
    let mut settings = Settings { port: 0, ..Settings::default() };
    change(&mut settings);
    Server::bind(vec![("m".into(), model)], None, settings)
}

#[test]
fn wrong_settings_are_refused() {
    let none = bound(|s| s.origins = vec!["page.example.com".into()]);
    assert!(matches!(none, Err(ServeError::Origin(_))));
    let own = files();
    for (cert, key, says) in [
        (&own.cert, Path::new("/nowhere"), "/nowhere"),
        (&own.key, &*own.key, "no certificate"),
        (&own.cert, &*own.cert, "cert.pem"),
    ] {
        let files = TlsFiles { cert: cert.clone(), key: key.to_owned() };
        let error = bound(|s| s.tls = Some(files)).err().map(|e| e.to_string()).unwrap_or_default();
        assert!(error.starts_with("TLS: ") && error.contains(says), "{error}");
    }
}

/// A certificate for `localhost`, made for these tests, and its key.
fn files() -> TlsFiles {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls");
    TlsFiles { cert: folder.join("cert.pem"), key: folder.join("key.pem") }
}

#[test]
fn clients_talk_by_tls() {
    let s = Running::start(StandIn::new(4, Duration::ZERO), |s| s.tls = Some(files()));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(files().cert).expect("a certificate")).expect("added");
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots)
        .with_no_client_auth();
    let ask = json!({ "prompt": "hi", "max_tokens": 500, "seed": 0 }).to_string();
    let name = ServerName::try_from("localhost").expect("a name");
    let connection = ClientConnection::new(Arc::new(config), name).expect("a connection");
    let mut stream = StreamOwned::new(connection, TcpStream::connect(s.address).expect("connected"));
    let head = format!(
        "Host: localhost\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: {}",
        ask.len()
    );
    write!(stream, "POST /v1/completions HTTP/1.1\r\n{head}\r\n\r\n{ask}").expect("sent");
    let mut text = String::new();
    let _ = stream.read_to_string(&mut text);
    assert!(text.contains(&expected("hi", 0, 500)), "{text}");
    // Others are cut off, and hold up nobody.
    let mut plain = TcpStream::connect(s.address).expect("connected");
    plain.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("sent");
    let mut answer = vec![];
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
}

#[test]
fn requests_have_names() {
    let s = Running::plain();
    let own = get(s.address, "/health").header("x-request-id").expect("a name").to_owned();
    assert!(own.starts_with("req_"), "{own}");
    let given = reply(send(s.address, "GET", "/nowhere", &[("X-Request-Id", "mine")], b""));
    assert_eq!((given.status, given.header("x-request-id")), (404, Some("mine")));
    let long = "x".repeat(200);
    let replaced = reply(send(s.address, "GET", "/health", &[("X-Request-Id", &long)], b""));
    assert!(replaced.header("x-request-id").is_some_and(|id| id.starts_with("req_")));
}

#[test]
fn heads_have_limits() {
    let s = Running::plain();
    let many: Vec<(String, String)> = (0..200).map(|i| (format!("X-{i}"), "x".into())).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(reply(send(s.address, "GET", "/health", &many, b"")).status, 431);
    let long = reply(send(s.address, "GET", "/health", &[("X", &"x".repeat(40_000))], b""));
    assert!(long.status == 431 && long.json()["error"]["message"].is_string(), "{}", long.text());
    let long = "x".repeat(1_000_000);
    let mut stream = TcpStream::connect(s.address).expect("connected");
    let _ = write!(stream, "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX: {long}\r\n\r\n");
    let mut answer = vec![];
    let _ = stream.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431"), "{}", String::from_utf8_lossy(&answer));
    assert_eq!(post(s.address, "/v1/completions", &json!({ "prompt": "hi", "max_tokens": 1 })).status, 200);
}

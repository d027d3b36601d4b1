//! Requests to the hub: redirects followed by hand, so that the token goes to the hub alone, and errors tried again.

use crate::error::HubError;
use crate::names;
use crate::settings::{Settings, Token};
use crate::watch::Watch;
use std::sync::Arc;
use std::time::Duration;
use ureq::http::header::{HeaderMap, LOCATION, RETRY_AFTER};
use ureq::http::{Method, Uri};
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::{Agent, Body, Error};

/// How often a request is tried.
pub(crate) const TRIES: u32 = 6;
/// Redirects that are followed.
const MOST_REDIRECTS: usize = 10;
/// The longest pause that a server may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(120);
/// Answers after which another try may succeed.
const PASSING: [u16; 6] = [408, 429, 500, 502, 503, 504];
/// The hash of a large file, in the answer that sends elsewhere for its bytes.
pub(crate) const LINKED_ETAG: &str = "x-linked-etag";

/// Which redirects are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Follow {
    /// Those that stay on the hub, up to the answer that describes the file.
    Hub,
    /// All.
    Everywhere,
}

/// A request.
pub(crate) struct Ask<'a> {
    pub method: Method,
    pub url: &'a str,
    /// The first byte wanted.
    pub from: u64,
    pub follow: Follow,
}

/// An answer whose status is no error.
pub(crate) struct Answer {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Body,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        header(&self.headers, name)
    }
}

/// An error of the server, and its words.
#[derive(Debug)]
pub(crate) struct Refusal {
    pub url: String,
    pub status: u16,
    pub headers: HeaderMap,
    /// How often it was asked.
    pub tries: u32,
}

impl Refusal {
    pub(crate) fn header(&self, name: &str) -> &str {
        header(&self.headers, name).unwrap_or_default()
    }
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The server refuses.
    Refused(Box<Refusal>),
    /// Anything else.
    Other(HubError),
}

impl From<HubError> for Failure {
    fn from(e: HubError) -> Failure {
        Failure::Other(e)
    }
}

/// A client of one hub.
pub(crate) struct Http {
    agent: Agent,
    origin: Origin,
    token: Option<Token>,
    pause: Duration,
}

/// Scheme, host and port of an address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin(String, String, u16);

impl Origin {
    fn of(uri: &Uri) -> Option<Origin> {
        let scheme = uri.scheme_str()?.to_ascii_lowercase();
        let usual = match scheme.as_str() {
            "https" => 443,
            "http" => 80,
            _ => return None,
        };
        Some(Origin(scheme, uri.host()?.to_ascii_lowercase(), uri.port_u16().unwrap_or(usual)))
    }

    fn is_loopback(&self) -> bool {
        let host = self.1.trim_matches(['[', ']']);
        host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl Http {
    /// A client by these settings.
    ///
    /// # Errors
    /// The system has no certificates of authorities.
    pub(crate) fn new(settings: &Settings) -> Result<Http, HubError> {
        let wrong = || HubError::Usage(format!("HF_ENDPOINT is `{}`, which is no address", settings.endpoint));
        let uri: Uri = settings.endpoint.parse().map_err(|_| wrong())?;
        let origin = Origin::of(&uri).ok_or_else(wrong)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = TlsConfig::builder().root_certs(roots(&origin)?).unversioned_rustls_crypto_provider(provider).build();
        let config = Agent::config_builder()
            .tls_config(tls)
            .user_agent(concat!("llmcc/", env!("CARGO_PKG_VERSION")))
            // Sizes and hashes are of the bytes as they are.
            .accept_encoding("identity")
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_connect(Some(settings.answer))
            .timeout_per_read(Some(settings.bytes.max(settings.answer)));
        // A proxy's loopback is not this machine's.
        let config = if origin.is_loopback() { config.proxy(None) } else { config }.build();
        Ok(Http { agent: Agent::new_with_config(config), origin, token: settings.token.clone(), pause: settings.pause })
    }

    /// Where the token comes from, if there is one.
    pub(crate) fn token_from(&self) -> Option<String> {
        self.token.as_ref().map(|token| token.from.clone())
    }

    /// The pause before the try that follows `tries` tries.
    pub(crate) fn pause(&self, tries: u32) -> Duration {
        self.pause.saturating_mul(1 << tries.saturating_sub(1).min(5))
    }

    /// Asks until there is an answer, or an error that stays.
    pub(crate) fn ask(&self, ask: &Ask<'_>, watch: &dyn Watch) -> Result<Answer, Failure> {
        let mut tries = 1;
        loop {
            let (why, pause) = match self.follow(ask) {
                Ok(answer) => return Ok(answer),
                Err(Failure::Refused(refusal)) => {
                    if !PASSING.contains(&refusal.status) || tries == TRIES {
                        return Err(Failure::Refused(Box::new(Refusal { tries, ..*refusal })));
                    }
                    let asked = asked_pause(&refusal.headers).unwrap_or_default();
                    if asked > LONGEST_PAUSE {
                        return Err(HubError::Busy { url: refusal.url, wait: asked }.into());
                    }
                    (format!("the server answers {}", refusal.status), asked.max(self.pause(tries)))
                }
                Err(Failure::Other(HubError::Network { url, why })) if tries < TRIES && is_passing(&why) => {
                    (format!("{url}: {why}"), self.pause(tries))
                }
                Err(other) => return Err(other),
            };
            watch.say(&format!("{why}; trying again in {:.0?}", pause));
            std::thread::sleep(pause);
            tries += 1;
        }
    }

    /// Asks, and goes where the answer sends.
    fn follow(&self, ask: &Ask<'_>) -> Result<Answer, Failure> {
        let mut url: Uri = ask.url.parse().map_err(|_| untrusted(ask.url, "this is no address"))?;
        for _ in 0..=MOST_REDIRECTS {
            let answer = self.once(ask, &url)?;
            let sent = answer.header(LOCATION.as_str()).filter(|_| (300..400).contains(&answer.status));
            let Some(location) = sent else {
                return match answer.status {
                    200..300 => Ok(answer),
                    status => {
                        let url = plain(&url);
                        Err(Failure::Refused(Box::new(Refusal { url, status, headers: answer.headers, tries: 1 })))
                    }
                };
            };
            let target = resolve(&url, location)
                .ok_or_else(|| untrusted(&plain(&url), "the server sends to an address that makes no sense"))?;
            let (from, to) = (Origin::of(&url), Origin::of(&target));
            let on_hub = to.as_ref() == Some(&self.origin);
            if ask.follow == Follow::Hub && (answer.header(LINKED_ETAG).is_some() || !on_hub) {
                return Ok(answer);
            }
            if from.is_some_and(|o| o.0 == "https") && to.is_none_or(|o| o.0 != "https") {
                return Err(untrusted(&plain(&url), "the server sends to an address without encryption").into());
            }
            url = target;
        }
        Err(untrusted(ask.url, "the server sends from one address to the next without end").into())
    }

    /// A single request. The token goes to the hub's own address only.
    fn once(&self, ask: &Ask<'_>, url: &Uri) -> Result<Answer, HubError> {
        let mut request = ureq::http::Request::builder().method(ask.method.clone()).uri(url);
        if let Some(token) = self.token.as_ref().filter(|_| Origin::of(url).as_ref() == Some(&self.origin)) {
            request = request.header("Authorization", format!("Bearer {}", token.text));
        }
        if ask.from > 0 {
            request = request.header("Range", format!("bytes={}-", ask.from));
        }
        let request = request.body(()).map_err(|_| untrusted(&plain(url), "this is no address"))?;
        let answer = self.agent.run(request).map_err(|e| HubError::Network { url: plain(url), why: reason(&e) })?;
        let (head, body) = answer.into_parts();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }
}

/// Certificates of the system's authorities; none are needed for a hub without encryption.
fn roots(origin: &Origin) -> Result<RootCerts, HubError> {
    let found = rustls_native_certs::load_native_certs();
    let certificates: Vec<_> = found.certs.iter().map(|c| Certificate::from_der(c.as_ref()).to_owned()).collect();
    if certificates.is_empty() && origin.0 == "https" {
        return Err(HubError::Usage(
            "this system has no certificates to know a server by: install its package (ca-certificates), or give \
             their file in SSL_CERT_FILE"
                .into(),
        ));
    }
    Ok(RootCerts::Specific(Arc::new(certificates)))
}

/// An address without its query, which may be a secret.
fn plain(url: &Uri) -> String {
    let text = url.to_string();
    text.split(['?', '#']).next().unwrap_or_default().to_owned()
}

/// The address that a redirect means.
fn resolve(base: &Uri, location: &str) -> Option<Uri> {
    let (scheme, authority) = (base.scheme_str()?, base.authority()?);
    let text = if location.starts_with("https://") || location.starts_with("http://") {
        location.to_owned()
    } else if location.starts_with("//") {
        format!("{scheme}:{location}")
    } else if location.starts_with('/') {
        format!("{scheme}://{authority}{location}")
    } else {
        let folder = base.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        format!("{scheme}://{authority}{folder}/{location}")
    };
    text.parse().ok()
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// The pause that a server asks for: `Retry-After`, or the `t` of `RateLimit`.
fn asked_pause(headers: &HeaderMap) -> Option<Duration> {
    let after = header(headers, RETRY_AFTER.as_str()).and_then(|text| text.trim().parse().ok());
    let limited =
        || header(headers, "ratelimit")?.split(';').find_map(|part| part.trim().strip_prefix("t=")?.parse().ok());
    after.or_else(limited).map(Duration::from_secs)
}

fn untrusted(place: &str, why: &str) -> HubError {
    HubError::Untrusted { place: place.to_owned(), why: why.to_owned() }
}

/// Beginnings of reasons that may pass.
const PASSING_REASONS: [&str; 3] = ["no answer", "the connection broke", "the answer is cut"];

fn is_passing(why: &str) -> bool {
    PASSING_REASONS.iter().any(|reason| why.starts_with(reason))
}

/// Why a server could not be asked.
fn reason(e: &Error) -> String {
    use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    match e {
        Error::Timeout(_) => format!("{} within the time that it has", PASSING_REASONS[0]),
        Error::HostNotFound => "there is no host of this name, or no network".into(),
        Error::Io(e) if [BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof].contains(&e.kind()) => {
            format!("{} ({e})", PASSING_REASONS[1])
        }
        Error::Io(e) => format!("it cannot be reached ({e})"),
        Error::Protocol(e) => format!("{} ({e})", PASSING_REASONS[2]),
        other => format!("it cannot be reached ({})", names::shown(&other.to_string())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirects_lead_where_they_say() {
        let base: Uri = "https://hub.example:8443/a/b/resolve/main/c?x=1".parse().unwrap();
        for (location, target) in [
            ("https://cdn.example/x?sig=1", Some("https://cdn.example/x?sig=1")),
            ("//cdn.example/x", Some("https://cdn.example/x")),
            ("/d/e", Some("https://hub.example:8443/d/e")),
            ("e", Some("https://hub.example:8443/a/b/resolve/main/e")),
            ("https://", None),
        ] {
            assert_eq!(resolve(&base, location).map(|u| u.to_string()).as_deref(), target, "{location}");
        }
        assert_eq!(plain(&"https://a/b?token=secret".parse().unwrap()), "https://a/b");
        let origin = |text: &str| Origin::of(&text.parse().unwrap());
        assert_eq!(origin("https://A.example/x"), origin("https://a.example:443/y"));
        assert_ne!(origin("https://a.example"), origin("http://a.example"));
        assert_ne!(origin("https://a.example"), origin("https://a.example.org"));
        assert_eq!(origin("ftp://a.example"), None);
    }

    #[test]
    fn pauses_are_as_asked() {
        let pause = |name: &'static str, value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            asked_pause(&headers)
        };
        assert_eq!(pause("retry-after", "7"), Some(Duration::from_secs(7)));
        assert_eq!(pause("ratelimit", "\"api\";r=0;t=55"), Some(Duration::from_secs(55)));
        assert_eq!(pause("retry-after", "Wed, 21 Oct 2015 07:28:00 GMT"), None);
    }
}

//! Where the hub and its cache are, as the environment says: the variables of Python's `huggingface_hub`.

use crate::error::HubError;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

const ENDPOINT: &str = "https://huggingface.co";
/// Seconds to wait for an answer, or for more of it.
const PATIENCE: u64 = 10;
/// Time before a request is tried again; it doubles.
const PAUSE: Duration = Duration::from_secs(1);

/// A key of a user's account. It is sent to the endpoint alone, and never printed.
#[derive(Clone)]
pub struct Token {
    pub(crate) text: String,
    /// The variable or file that it comes from.
    pub from: String,
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token from {}", self.from)
    }
}

/// Where models come from and go to.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the hub, without a sign at its end (`HF_ENDPOINT`).
    pub endpoint: String,
    /// The user's token (`HF_TOKEN`, or the file of `hf auth login`).
    pub token: Option<Token>,
    /// Folder of the cache (`HF_HUB_CACHE`, or `hub` in `HF_HOME`).
    pub cache: PathBuf,
    /// Nothing is fetched (`HF_HUB_OFFLINE`).
    pub offline: bool,
    /// Snapshots have links to their files, and not the files (unless `HF_HUB_DISABLE_SYMLINKS`).
    pub links: bool,
    /// Longest time without an answer (`HF_HUB_ETAG_TIMEOUT`).
    pub answer: Duration,
    /// Longest time without further bytes of a file (`HF_HUB_DOWNLOAD_TIMEOUT`).
    pub bytes: Duration,
    /// Time before a request is tried again; it doubles.
    pub pause: Duration,
}

/// Reads variables of an environment.
struct Environment<'a>(&'a dyn Fn(&str) -> Option<OsString>);

impl Environment<'_> {
    fn text(&self, name: &str) -> Result<Option<String>, HubError> {
        let Some(value) = (self.0)(name).filter(|v| !v.is_empty()) else { return Ok(None) };
        value.into_string().map(Some).map_err(|_| HubError::Usage(format!("{name} is not UTF-8")))
    }

    fn first(&self, names: &[&str]) -> Result<Option<String>, HubError> {
        names.iter().map(|name| self.text(name)).find(|found| !matches!(found, Ok(None))).unwrap_or(Ok(None))
    }

    fn is_on(&self, name: &str) -> Result<bool, HubError> {
        let on = |value: String| ["1", "ON", "YES", "TRUE"].contains(&value.to_uppercase().as_str());
        Ok(self.text(name)?.is_some_and(on))
    }

    /// A folder or file; a `~` at its beginning and variables in it stand for their values.
    fn path(&self, name: &str) -> Option<PathBuf> {
        let value = (self.0)(name).filter(|v| !v.is_empty())?;
        match value.to_str() {
            Some(text) => Some(self.expanded(text)),
            None => Some(value.into()),
        }
    }

    fn expanded(&self, text: &str) -> PathBuf {
        let (mut out, mut rest) = (OsString::new(), text);
        if let Some(home) = (self.0)("HOME").filter(|_| text == "~" || text.starts_with("~/")) {
            out.push(home);
            rest = &text[1..];
        }
        while let Some(at) = rest.find('$') {
            out.push(&rest[..at]);
            let after = &rest[at + 1..];
            let word = |c: char| c == '_' || c.is_ascii_alphanumeric();
            let (name, used) = match after.strip_prefix('{').and_then(|a| a.split_once('}')) {
                Some((name, _)) => (name, name.len() + 2),
                None => {
                    let end = after.find(|c| !word(c)).unwrap_or(after.len());
                    (&after[..end], end)
                }
            };
            match (self.0)(name) {
                Some(value) => out.push(value),
                None => out.push(&rest[at..at + 1 + used]),
            }
            rest = &after[used..];
        }
        out.push(rest);
        out.into()
    }

    fn seconds(&self, name: &str) -> Result<Duration, HubError> {
        let Some(text) = self.text(name)? else { return Ok(Duration::from_secs(PATIENCE)) };
        match text.parse() {
            Ok(seconds @ 1..) => Ok(Duration::from_secs(seconds)),
            _ => Err(HubError::Usage(format!("{name} is `{text}`; give seconds, from 1 on"))),
        }
    }

    fn endpoint(&self) -> Result<String, HubError> {
        let given = self.text("HF_ENDPOINT")?.unwrap_or_else(|| ENDPOINT.into());
        let endpoint = given.trim_end_matches('/');
        let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
        match host {
            Some(host) if !host.is_empty() && !host.contains(['@', '?', '#', ' ']) => Ok(endpoint.to_owned()),
            _ => Err(HubError::Usage(format!("HF_ENDPOINT is `{given}`; give an address such as {ENDPOINT}"))),
        }
    }

    fn token(&self, home: &Path) -> Result<Option<Token>, HubError> {
        if self.is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")? {
            return Ok(None);
        }
        for name in ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"] {
            if let Some(text) = self.text(name)? {
                return clean(&text, name.into());
            }
        }
        let file = self.path("HF_TOKEN_PATH").unwrap_or_else(|| home.join("token"));
        match std::fs::read_to_string(&file) {
            Ok(text) => clean(&text, file.display().to_string()),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(HubError::Io { action: "read", path: file, source }),
        }
    }
}

/// A token without the white space around it; `None` where nothing else is there.
fn clean(text: &str, from: String) -> Result<Option<Token>, HubError> {
    let text = text.trim();
    match text.bytes().all(|b| b.is_ascii_graphic()) {
        true if text.is_empty() => Ok(None),
        true => Ok(Some(Token { text: text.to_owned(), from })),
        false => Err(HubError::Usage(format!("the token in {from} has characters that no token has"))),
    }
}

impl Settings {
    /// Settings of this process's environment.
    ///
    /// # Errors
    /// A variable makes no sense; the token's file cannot be read.
    pub fn from_env() -> Result<Settings, HubError> {
        Settings::read(&|name| std::env::var_os(name))
    }

    /// Settings of an environment.
    ///
    /// # Errors
    /// As [`Settings::from_env`].
    pub fn read(environment: &dyn Fn(&str) -> Option<OsString>) -> Result<Settings, HubError> {
        let e = Environment(environment);
        let usual = || {
            let caches = e.path("XDG_CACHE_HOME").or_else(|| Some(e.path("HOME")?.join(".cache")))?;
            Some(caches.join("huggingface"))
        };
        let home = e
            .path("HF_HOME")
            .or_else(usual)
            .ok_or_else(|| HubError::Usage("no folder for downloads: HOME is not set; give one with HF_HOME".into()))?;
        let cache = ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"].iter().find_map(|name| e.path(name));
        let offline = e.first(&["HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"])?;
        let on = |value: &String| ["1", "ON", "YES", "TRUE"].contains(&value.to_uppercase().as_str());
        Ok(Settings {
            endpoint: e.endpoint()?,
            token: e.token(&home)?,
            cache: cache.unwrap_or_else(|| home.join("hub")),
            offline: offline.as_ref().is_some_and(on),
            links: !e.is_on("HF_HUB_DISABLE_SYMLINKS")?,
            answer: e.seconds("HF_HUB_ETAG_TIMEOUT")?,
            bytes: e.seconds("HF_HUB_DOWNLOAD_TIMEOUT")?,
            pause: PAUSE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, HubError> {
        let all: HashMap<&str, &str> = variables.iter().copied().collect();
        Settings::read(&|name| all.get(name).map(|value| OsString::from(*value)))
    }

    #[test]
    fn folders_are_those_of_python_s_library() {
        for (variables, cache) in [
            (&[("HOME", "/h")][..], "/h/.cache/huggingface/hub"),
            (&[("HOME", "/h"), ("XDG_CACHE_HOME", "/x")], "/x/huggingface/hub"),
            (&[("HOME", "/h"), ("HF_HOME", "~/hf")], "/h/hf/hub"),
            (&[("HOME", "/h"), ("HF_HOME", "$D/a${E}b$F"), ("D", "/d"), ("E", "e")], "/d/aeb$F/hub"),
            (&[("HOME", "/h"), ("HF_HOME", "/hf"), ("HUGGINGFACE_HUB_CACHE", "/old")], "/old"),
            (&[("HOME", "/h"), ("HUGGINGFACE_HUB_CACHE", "/old"), ("HF_HUB_CACHE", "/new")], "/new"),
        ] {
            assert_eq!(read(variables).unwrap().cache, Path::new(cache), "{variables:?}");
        }
        assert!(read(&[]).unwrap_err().to_string().contains("HF_HOME"));
    }

    #[test]
    fn variables_that_make_no_sense_are_refused() {
        for (name, value, says) in [
            ("HF_ENDPOINT", "huggingface.co", "give an address"),
            ("HF_ENDPOINT", "ftp://a", "give an address"),
            ("HF_ENDPOINT", "https://user@a", "give an address"),
            ("HF_HUB_DOWNLOAD_TIMEOUT", "soon", "give seconds"),
            ("HF_HUB_ETAG_TIMEOUT", "0", "give seconds"),
            ("HF_TOKEN", "a b", "characters that no token has"),
        ] {
            let found = read(&[("HOME", "/h"), (name, value)]).unwrap_err().to_string();
            assert!(found.contains(says) && found.contains(name), "{name}={value}: {found}");
        }
        let all = read(&[("HOME", "/h"), ("HF_ENDPOINT", "http://a:1/x//"), ("HF_HUB_OFFLINE", "yes")]).unwrap();
        assert_eq!((all.endpoint.as_str(), all.offline), ("http://a:1/x", true));
    }

    #[test]
    fn tokens_come_from_variables_or_a_file_and_are_not_printed() {
        let folder = tempfile::tempdir().unwrap();
        let home = folder.path().to_str().unwrap();
        assert!(read(&[("HF_HOME", home)]).unwrap().token.is_none());
        std::fs::write(folder.path().join("token"), "hf_file\n").unwrap();
        let found = read(&[("HF_HOME", home)]).unwrap();
        assert!(!format!("{found:?}").contains("hf_file"), "{found:?}");
        let token = found.token.unwrap();
        assert!(token.text == "hf_file" && token.from.ends_with("/token"));
        let token = read(&[("HF_HOME", home), ("HF_TOKEN", " hf_variable ")]).unwrap().token.unwrap();
        assert_eq!((token.text.as_str(), token.from.as_str()), ("hf_variable", "HF_TOKEN"));
        let without = read(&[("HF_HOME", home), ("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")]).unwrap();
        assert!(without.token.is_none());
    }
}

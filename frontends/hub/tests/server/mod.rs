//! A hub of tests: the routes of the Hugging Face hub, with faults on request.
#![allow(dead_code)]

use llmcc_hub::{Client, HubError, Plan, Reference, Settings, Unwatched, Watch, Wishes};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

pub const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
pub const ID: &str = "org/model";
pub const TOKEN: &str = "hf_secret";

/// A request that came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    pub method: String,
    pub path: String,
    pub host: String,
    pub token: Option<String>,
    pub from: Option<u64>,
}

/// A fault of the server.
#[derive(Clone, Debug)]
pub enum Fault {
    /// An answer with headers, and no more.
    Answer(u16, Vec<(&'static str, String)>),
    /// The connection ends after so many bytes of the body.
    Cut(usize),
    /// No further bytes come, and the connection stays open.
    Silent(usize),
    /// Other bytes of the same length.
    Damaged,
    /// More bytes than there are.
    Longer,
    /// The whole file, whatever was asked for.
    Whole,
    /// Headers replaced in an answer that is right otherwise; an empty value takes one away.
    Headers(Vec<(&'static str, String)>),
}

/// A fault, and where it happens how often.
struct Trap {
    method: &'static str,
    part: String,
    left: usize,
    fault: Fault,
}

struct State {
    files: BTreeMap<String, Vec<u8>>,
    /// Names in the list, of files that are not there.
    odd: Vec<String>,
    traps: Vec<Trap>,
    asked: Vec<Asked>,
    gated: bool,
}

/// A running server, whose files are of one commit.
pub struct Hub {
    port: u16,
    state: Arc<Mutex<State>>,
    pub cache: tempfile::TempDir,
}

/// SHA-256 and Git's hash of a file, by the system's programs' rules.
pub fn hashes(bytes: &[u8]) -> (String, String) {
    use sha1::Digest;
    let hex = |bytes: &[u8]| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>();
    let header = format!("blob {}\0", bytes.len());
    let git = sha1::Sha1::digest([header.as_bytes(), bytes].concat());
    (hex(&sha2::Sha256::digest(bytes)), hex(&git))
}

/// Whether the hub keeps a file elsewhere.
pub fn is_large(name: &str) -> bool {
    [".safetensors", ".bin", ".gguf", ".onnx", ".pth"].iter().any(|ending| name.ends_with(ending))
}

/// The name of a file in the cache.
pub fn hash_of(name: &str, bytes: &[u8]) -> String {
    let (large, small) = hashes(bytes);
    if is_large(name) { large } else { small }
}

impl Hub {
    pub fn new(files: &[(&str, &[u8])]) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let files = files.iter().map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec())).collect();
        let state = State { files, odd: vec![], traps: vec![], asked: vec![], gated: false };
        let state = Arc::new(Mutex::new(state));
        let own = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = own.clone();
                // A client that goes away is no error of the server's.
                std::thread::spawn(move || drop(serve(stream, &state, port)));
            }
        });
        Hub { port, state, cache: tempfile::tempdir().expect("a folder") }
    }

    pub fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Lists a name that is no file's.
    pub fn list_odd(&self, name: &str) {
        self.state.lock().expect("alive").odd.push(name.to_owned());
    }

    pub fn trap(&self, method: &'static str, part: &str, times: usize, fault: Fault) {
        self.state.lock().expect("alive").traps.push(Trap { method, part: part.to_owned(), left: times, fault });
    }

    /// Requests without the right token are refused.
    pub fn gate(&self) {
        self.state.lock().expect("alive").gated = true;
    }

    /// Requests since the last call.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut self.state.lock().expect("alive").asked)
    }

    /// Environment of a client of this server.
    pub fn environment(&self, more: &[(&str, &str)]) -> BTreeMap<String, OsString> {
        let mut all = BTreeMap::from([
            ("HF_HOME".to_owned(), self.cache.path().as_os_str().to_owned()),
            ("HF_ENDPOINT".to_owned(), self.endpoint().into()),
        ]);
        all.extend(more.iter().map(|(name, value)| ((*name).to_owned(), (*value).into())));
        all
    }

    pub fn settings(&self, more: &[(&str, &str)]) -> Settings {
        let all = self.environment(more);
        let settings = Settings::read(&|name| all.get(name).cloned()).expect("settings");
        Settings { pause: Duration::from_millis(1), bytes: Duration::from_millis(500), ..settings }
    }

    pub fn client(&self) -> Client {
        Client::new(self.settings(&[])).expect("a client")
    }

    pub fn plan(&self, what: &str, wishes: &Wishes) -> Result<Plan, HubError> {
        self.client().plan(&Reference::parse(what).expect("a name"), wishes, &Unwatched)
    }

    /// Fetches everything that compiling needs; the path for the compiler.
    pub fn pull(&self, what: &str) -> Result<PathBuf, HubError> {
        self.pull_watched(what, &Unwatched)
    }

    pub fn pull_watched(&self, what: &str, watch: &dyn Watch) -> Result<PathBuf, HubError> {
        let client = self.client();
        let plan = client.plan(&Reference::parse(what).expect("a name"), &Wishes::default(), watch)?;
        client.fetch(&plan, watch).map(|()| plan.path)
    }

    /// A path in the repository's part of the cache.
    pub fn at(&self, path: &str) -> PathBuf {
        self.cache.path().join("hub/models--org--model").join(path)
    }

    pub fn snapshot(&self) -> PathBuf {
        self.at("snapshots").join(COMMIT)
    }
}

/// Names of all files below a folder.
pub fn tree(folder: &Path) -> Vec<String> {
    fn walk(folder: &Path, prefix: &str, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            match entry.file_type().expect("a type").is_dir() {
                true => walk(&entry.path(), &format!("{name}/"), found),
                false => found.push(name),
            }
        }
    }
    let mut found = vec![];
    walk(folder, "", &mut found);
    found.sort();
    found
}

type Headers = Vec<(&'static str, String)>;

fn serve(mut stream: TcpStream, state: &Mutex<State>, port: u16) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let first = lines.next().transpose()?.unwrap_or_default();
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(':') else { break };
        headers.insert(name.to_lowercase(), value.trim().to_owned());
    }
    let ours = headers.get("user-agent").is_some_and(|agent| agent.starts_with("llmcc/"));
    assert!(!ours || headers.get("accept-encoding").map(String::as_str) == Some("identity"), "{path}");
    let range = headers.get("range").and_then(|r| r.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok());
    let asked = Asked {
        method: method.clone(),
        path: path.clone(),
        host: headers.get("host").cloned().unwrap_or_default(),
        token: headers.get("authorization").cloned(),
        from: range,
    };
    let mut s = state.lock().expect("alive");
    let trap = s.traps.iter_mut().find(|t| t.left > 0 && t.method == method && path.contains(&t.part));
    let fault = trap.map(|t| {
        t.left -= 1;
        t.fault.clone()
    });
    let (status, mut answer, mut body) = match &fault {
        Some(Fault::Answer(status, headers)) => (*status, headers.clone(), vec![]),
        Some(Fault::Whole) => route(&s, &Asked { from: None, ..asked.clone() }, port),
        _ => route(&s, &asked, port),
    };
    s.asked.push(asked);
    drop(s);
    let mut length = body.len();
    let mut silent = false;
    match fault {
        Some(Fault::Cut(at)) => body.truncate(at),
        Some(Fault::Silent(at)) => {
            body.truncate(at);
            silent = true;
        }
        Some(Fault::Damaged) => body.iter_mut().for_each(|b| *b ^= 1),
        Some(Fault::Longer) => {
            body.extend(b"more");
            length = body.len();
        }
        Some(Fault::Headers(other)) => {
            answer.retain(|(name, _)| !other.iter().any(|(o, _)| o == name));
            answer.extend(other.into_iter().filter(|(_, value)| !value.is_empty()));
        }
        _ => {}
    }
    let mut head = format!("HTTP/1.1 {status} X\r\nConnection: close\r\n");
    if !answer.iter().any(|(name, _)| *name == "Content-Length") {
        head.push_str(&format!("Content-Length: {length}\r\n"));
    }
    answer.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    if method != "HEAD" {
        stream.write_all(&body)?;
    }
    stream.flush()?;
    if silent {
        std::thread::sleep(Duration::from_secs(5));
    }
    Ok(())
}

fn error(status: u16, code: &str, message: &str) -> (u16, Headers, Vec<u8>) {
    let headers = vec![("X-Error-Code", code.into()), ("X-Error-Message", message.into())];
    (status, headers, format!("{{\"error\": \"{message}\"}}").into_bytes())
}

/// The right answer.
fn route(s: &State, asked: &Asked, port: u16) -> (u16, Headers, Vec<u8>) {
    let path = asked.path.split('?').next().unwrap_or_default();
    if let Some(hash) = path.strip_prefix("/cdn/") {
        let file = s.files.iter().find(|(_, bytes)| hashes(bytes).0 == hash);
        return file.map_or_else(|| error(404, "", ""), |(_, bytes)| part(bytes, asked.from, vec![]));
    }
    if s.gated && asked.token.as_deref() != Some(&format!("Bearer {TOKEN}")) {
        return error(401, "GatedRepo", "Access to model org/model is restricted.");
    }
    let known = |revision: &str| ["main", "v1", "refs%2Fpr%2F1", COMMIT].contains(&revision);
    if let Some(revision) = path.strip_prefix(&format!("/api/models/{ID}/revision/")) {
        return match known(revision) {
            true => (200, vec![("Content-Type", "application/json".into())], list(s).into_bytes()),
            false => error(404, "RevisionNotFound", "Invalid rev id"),
        };
    }
    if let Some(rest) = path.strip_prefix(&format!("/{ID}/resolve/")) {
        let (revision, name) = rest.split_once('/').unwrap_or_default();
        let name = name.replace("%20", " ");
        return match s.files.get(&name) {
            Some(bytes) if known(revision) => file(&name, bytes, asked, port),
            _ => error(404, "EntryNotFound", "Entry not found"),
        };
    }
    error(401, "RepoNotFound", "Repository not found")
}

fn list(s: &State) -> String {
    let large = |name: &str, bytes: &[u8]| {
        let lfs =
            format!(r#", "lfs": {{"sha256": "{}", "size": {}, "pointerSize": 134}}"#, hashes(bytes).0, bytes.len());
        if is_large(name) { lfs } else { String::new() }
    };
    let entry = |(name, bytes): (&String, &Vec<u8>)| {
        let (size, git) = (bytes.len(), hashes(bytes).1);
        format!(r#"{{"rfilename": "{name}", "size": {size}, "blobId": "{git}"{}}}"#, large(name, bytes))
    };
    let odd = s.odd.iter().map(|name| format!(r#"{{"rfilename": "{name}", "size": 1, "blobId": "{COMMIT}"}}"#));
    let all: Vec<String> = s.files.iter().map(entry).chain(odd).collect();
    format!(r#"{{"id": "{ID}", "sha": "{COMMIT}", "siblings": [{}]}}"#, all.join(", "))
}

fn file(name: &str, bytes: &[u8], asked: &Asked, port: u16) -> (u16, Headers, Vec<u8>) {
    let (large, git) = hashes(bytes);
    let mut headers = vec![("X-Repo-Commit", COMMIT.to_owned())];
    if !is_large(name) {
        headers.push(("ETag", format!("\"{git}\"")));
        return part(bytes, asked.from, headers);
    }
    headers.push(("X-Linked-Etag", format!("\"{large}\"")));
    headers.push(("X-Linked-Size", bytes.len().to_string()));
    headers.push(("ETag", format!("\"{git}\"")));
    // Another name of this machine is another host.
    headers.push(("Location", format!("http://localhost:{port}/cdn/{large}?signature=x")));
    (302, headers, vec![])
}

fn part(bytes: &[u8], from: Option<u64>, mut headers: Headers) -> (u16, Headers, Vec<u8>) {
    let from = usize::try_from(from.unwrap_or(0)).expect("small");
    match from {
        0 => (200, headers, bytes.to_vec()),
        _ if from >= bytes.len() => error(416, "", ""),
        _ => {
            headers.push(("Content-Range", format!("bytes {from}-{}/{}", bytes.len() - 1, bytes.len())));
            (206, headers, bytes[from..].to_vec())
        }
    }
}

//! The files of a revision, as the hub lists them.

use crate::digest::Digest;
use crate::names;
use serde::Deserialize;

/// A file of a repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Remote {
    /// Its path in the repository: relative, and without steps upwards.
    pub name: String,
    /// Bytes, where the hub says.
    pub size: Option<u64>,
    /// Its hash, by which the cache names it, where the hub says.
    pub hash: Option<String>,
}

/// The files of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listing {
    /// The commit.
    pub commit: String,
    /// Its files, in order of their names.
    pub files: Vec<Remote>,
    /// Names that no file may have, for a terminal.
    pub refused: Vec<String>,
}

/// The answer of `/api/models/ID/revision/REVISION?blobs=true`.
#[derive(Deserialize)]
struct Answer {
    sha: String,
    siblings: Vec<Sibling>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Sibling {
    rfilename: String,
    size: Option<u64>,
    blob_id: Option<String>,
    lfs: Option<Lfs>,
}

#[derive(Deserialize)]
struct Lfs {
    sha256: String,
    size: u64,
}

impl Listing {
    /// Reads the hub's answer.
    ///
    /// # Errors
    /// It is no such answer.
    pub(crate) fn read(bytes: &[u8]) -> Result<Listing, String> {
        let answer: Answer = serde_json::from_slice(bytes).map_err(|e| {
            let page = bytes.trim_ascii_start().first() == Some(&b'<');
            let hint = if page { ": it is a web page, perhaps of a proxy or a login" } else { "" };
            format!("the answer is no list of a model's files ({}){hint}", names::shown(&e.to_string()))
        })?;
        if !names::is_commit(&answer.sha) {
            return Err(format!("the answer has `{}` in place of a commit", names::shown(&answer.sha)));
        }
        let (mut files, mut refused) = (vec![], vec![]);
        for file in answer.siblings {
            if !names::is_file(&file.rfilename) {
                refused.push(names::shown(&file.rfilename));
                continue;
            }
            let (size, hash) = match file.lfs {
                Some(lfs) => (Some(lfs.size), Some(lfs.sha256)),
                None => (file.size, file.blob_id),
            };
            files.push(Remote { name: file.rfilename, size, hash: hash.filter(|hash| Digest::is_name(hash)) });
        }
        files.sort_by(|a, b| a.name.cmp(&b.name));
        files.dedup_by(|a, b| a.name == b.name);
        Ok(Listing { commit: answer.sha, files, refused })
    }
}

/// The shards that an index of tensors names, in order.
///
/// # Errors
/// It is no index.
pub(crate) fn shards(index: &[u8]) -> Result<Vec<String>, String> {
    let index: serde_json::Value = serde_json::from_slice(index).map_err(|e| names::shown(&e.to_string()))?;
    let map = index["weight_map"].as_object().ok_or("it has no `weight_map`")?;
    let mut found: Vec<String> = map.values().filter_map(|v| v.as_str()).map(str::to_owned).collect();
    found.sort();
    found.dedup();
    match found.iter().find(|name| !names::is_file(name)) {
        Some(odd) => Err(format!("it names `{}`, which no file may be called", names::shown(odd))),
        None => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_their_names_checked() {
        let sha = "0123456789abcdef0123456789abcdef01234567";
        let big = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        let text = format!(
            r#"{{"id": "a/b", "sha": "{sha}", "siblings": [
                {{"rfilename": "model.safetensors", "size": 5, "blobId": "{sha}",
                  "lfs": {{"sha256": "{big}", "size": 5, "pointerSize": 9}}}},
                {{"rfilename": "config.json", "size": 3, "blobId": "{sha}"}},
                {{"rfilename": "../../.bashrc", "size": 3, "blobId": "{sha}"}},
                {{"rfilename": "/etc/passwd"}},
                {{"rfilename": "a.json", "blobId": "../x"}}
            ]}}"#
        );
        let found = Listing::read(text.as_bytes()).unwrap();
        let file =
            |name: &str, size, hash: Option<&str>| Remote { name: name.into(), size, hash: hash.map(Into::into) };
        let want = [
            file("a.json", None, None),
            file("config.json", Some(3), Some(sha)),
            file("model.safetensors", Some(5), Some(big)),
        ];
        assert_eq!((found.commit.as_str(), &found.files[..]), (sha, &want[..]));
        assert_eq!(found.refused, ["../../.bashrc", "/etc/passwd"]);
        for (text, says) in [
            ("<html>", "a web page"),
            ("{}", "no list"),
            (r#"{"sha": "main/../..", "siblings": []}"#, "in place of a commit"),
        ] {
            let found = Listing::read(text.as_bytes()).unwrap_err();
            assert!(found.contains(says), "{text}: {found}");
        }
    }

    #[test]
    fn an_index_names_its_shards() {
        let index = br#"{"weight_map": {"a": "x-2.safetensors", "b": "x-1.safetensors", "c": "x-2.safetensors"}}"#;
        assert_eq!(shards(index), Ok(vec!["x-1.safetensors".into(), "x-2.safetensors".into()]));
        assert!(shards(b"{}").unwrap_err().contains("weight_map"));
        assert!(shards(br#"{"weight_map": {"a": "../x"}}"#).unwrap_err().contains("no file may be called"));
    }

    /// Whatever a server sends, names stay in their folder and nothing panics.
    #[test]
    fn damaged_lists_are_harmless() {
        let sha = "0123456789abcdef0123456789abcdef01234567";
        let list = format!(
            r#"{{"sha": "{sha}", "siblings": [{{"rfilename": "a/b.json", "size": 3, "blobId": "{sha}"}},
                {{"rfilename": "model.safetensors", "lfs": {{"sha256": "{sha}", "size": 18446744073709551615}}}}]}}"#
        );
        let index = r#"{"weight_map": {"a": "x-2.safetensors", "b": "x-1.safetensors"}}"#;
        let parts: [&[u8]; 8] = [b"../", b"/", b"\\u0000", b"\\\\", b"null", b"-1", b"[", b"\xff"];
        let mut state = 1_u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % below
        };
        let mut read = 0;
        for round in 0..4000 {
            let mut bytes = if round % 2 == 0 { list.as_bytes() } else { index.as_bytes() }.to_vec();
            for _ in 0..=random(3) {
                let at = random(bytes.len());
                let end = (at + random(3)).min(bytes.len());
                bytes.splice(at..end, parts[random(parts.len())].iter().copied());
            }
            let names: Vec<String> = match round % 2 {
                0 => Listing::read(&bytes).map(|l| l.files.into_iter().map(|f| f.name).collect()).unwrap_or_default(),
                _ => shards(&bytes).unwrap_or_default(),
            };
            read += names.len();
            assert!(names.iter().all(|name| names::is_file(name)), "{names:?}");
        }
        assert!(read > 500, "most changes are no list any more: {read}");
    }
}

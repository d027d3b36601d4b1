//! Signed artifacts: `compile --sign`, `sign`, `verify --key`, `run --key`.

use crate::common::{Folder, WITH_TOKENIZER, text};
use std::fs;
use std::process::Command;

/// The keys of RFC 8410, section 10.
const SECRET: &str = "-----BEGIN PRIVATE KEY-----\n\
                      MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n\
                      -----END PRIVATE KEY-----\n";
const PUBLIC: &str = "-----BEGIN PUBLIC KEY-----\n\
                      MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n\
                      -----END PUBLIC KEY-----\n";
/// Another one: that of RFC 8032's first test.
const OTHER: &str = "-----BEGIN PUBLIC KEY-----\n\
                     MCowBQYDK2VwAyEA11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=\n\
                     -----END PUBLIC KEY-----\n";

fn with_keys() -> Folder {
    let f = Folder::new();
    for (name, pem) in [("secret.pem", SECRET), ("public.pem", PUBLIC), ("other.pem", OTHER)] {
        fs::write(f.at(name), pem).expect("written");
    }
    f
}

fn refused(f: &Folder, args: &[&str], says: &str) {
    let done = f.llmcc(args);
    let message = text(&done.stderr);
    assert!(!done.status.success() && message.contains(says), "{args:?}: {message}");
}

#[test]
fn signatures_are_checked_before_anything_runs() {
    let f = with_keys();
    f.compile(WITH_TOKENIZER, "m.so", &["--w4", "--no-golden", "--sign", "secret.pem"]);
    let said = f.says(&[], &["verify", "m.so", "--key", "public.pem", "--no-run"]);
    assert!(said.contains("signature    right, with the given key") && !said.contains("golden"), "{said}");
    let greedy = ["-p", "def ", "-n", "3"];
    f.says(&[], &[&["run", "m.so", "--key", "public.pem"], &greedy[..]].concat());
    // Signed later: the same file.
    let first = fs::read(f.at("m.so.sig")).expect("a signature");
    fs::remove_file(f.at("m.so.sig")).expect("removed");
    refused(&f, &["run", "m.so", "--key", "public.pem", "-p", "x"], "m.so is not signed");
    f.says(&[], &["sign", "m.so", "--key", "secret.pem"]);
    assert_eq!(fs::read(f.at("m.so.sig")).expect("a signature"), first);
    for command in [
        &["run", "m.so", "-p", "x"][..],
        &["bench", "m.so"],
        &["verify", "m.so"],
        &["tap", "m.so", "-p", "x", "-o", "y"],
    ] {
        refused(&f, &[command, &["--key", "other.pem"]].concat(), "it was signed with another key, 19bf4409");
    }
    refused(&f, &["run", "m.so", "--key", "secret.pem", "-p", "x"], "it is a private key; give the public one");
    refused(&f, &["sign", "m.so", "--key", "public.pem"], "it is no private key of Ed25519");
    // Another artifact with this one's signature.
    f.compile(WITH_TOKENIZER, "n.so", &["--w8", "--no-golden"]);
    fs::write(f.at("n.so.sig"), &first).expect("written");
    refused(&f, &["run", "n.so", "--key", "public.pem", "-p", "x"], "it is the signature of another artifact");
    // A signature with one bit changed; a text that is none.
    let mut wrong = first.clone();
    let last = wrong.len() - 2;
    wrong[last] = if wrong[last] == b'0' { b'1' } else { b'0' };
    for (file, says) in
        [(&wrong[..], "the signature is wrong"), (b"x\ny\n", "it is no signature by llmcc"), (b"", "no signature")]
    {
        fs::write(f.at("m.so.sig"), file).expect("written");
        refused(&f, &["run", "m.so", "--key", "public.pem", "-p", "x"], says);
    }
    // A changed byte of the weights.
    fs::write(f.at("m.so.sig"), &first).expect("written");
    let mut bytes = fs::read(f.at("m.so")).expect("an artifact");
    let weights = f.manifest("m.so")["weights"]["bytes"].as_u64().expect("bytes") as usize;
    let at = bytes.len() - weights / 2 - 200_000;
    bytes[at] ^= 1;
    fs::write(f.at("m.so"), bytes).expect("written");
    refused(&f, &["run", "m.so", "--key", "public.pem", "-p", "x"], "were changed after it was signed");
    refused(&f, &["sign", "m.so", "--key", "secret.pem"], "it is damaged");
    refused(&f, &["compile", "m", "--sign", "nowhere.pem"], "m: ");
}

/// OpenSSL, too, finds the signature right.
#[test]
fn openssl_checks_signatures() {
    if Command::new("openssl").arg("version").output().is_err() {
        println!("skipped: openssl is not installed");
        return;
    }
    let f = with_keys();
    f.compile(WITH_TOKENIZER, "m.so", &["--w4", "--no-golden", "--sign", "secret.pem"]);
    let file = fs::read_to_string(f.at("m.so.sig")).expect("a signature");
    let (signed, rest) = file.split_at(file.find("key ").expect("a key"));
    let digits = rest.lines().nth(1).and_then(|line| line.strip_prefix("signature ")).expect("a signature").as_bytes();
    let digit = |d: u8| char::from(d).to_digit(16).expect("a digit") as u8;
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| digit(pair[0]) * 16 + digit(pair[1])).collect();
    fs::write(f.at("signed"), signed).expect("written");
    fs::write(f.at("signature"), bytes).expect("written");
    let args =
        ["pkeyutl", "-verify", "-pubin", "-inkey", "public.pem", "-rawin", "-in", "signed", "-sigfile", "signature"];
    let done = Command::new("openssl").args(args).current_dir(f.root()).output().expect("runs");
    assert!(text(&done.stdout).contains("Signature Verified Successfully"), "{}", text(&done.stderr));
}

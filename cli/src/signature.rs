//! Signatures of artifacts: `m.so.sig` beside `m.so`.
//!
//! A signature is by Ed25519 (RFC 8032), of the line `llmcc signature 1`, the artifact's root in hexadecimal digits and
//! the ends of both lines. The root covers every byte of the artifact and of its side file ([`llmcc_abi::tree`]). Keys
//! are in PEM, as OpenSSL writes them (RFC 8410), which can also make and check the signature:
//!
//! ```text
//! openssl genpkey -algorithm ed25519 -out secret.pem
//! openssl pkey -in secret.pem -pubout -out public.pem
//! ```

use crate::digest::hex;
use crate::{Error, output};
use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey};
use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use llmcc_abi::tree::Hash;
use llmcc_codegen::sealed::{Damage, Sealed};
use llmcc_frontends::input;
use std::path::{Path, PathBuf};

/// First line of the signed text and of the file.
const LABEL: &str = "llmcc signature 1";

/// The file of an artifact's signature.
pub fn path_of(artifact: &Path) -> PathBuf {
    let mut name = artifact.as_os_str().to_owned();
    name.push(".sig");
    name.into()
}

fn text(root: &Hash) -> String {
    format!("{LABEL}\n{}\n", hex(root))
}

/// The key with which artifacts are signed.
///
/// # Errors
/// No readable file, or one without a private key of Ed25519 in PEM.
pub fn secret(path: &Path) -> Result<SigningKey, Error> {
    let pem = input::read_text(path)?;
    SigningKey::from_pkcs8_pem(&pem).map_err(|_| {
        Error::Usage(format!(
            "{}: it is no private key of Ed25519 in PEM: `openssl genpkey -algorithm ed25519 -out secret.pem` makes \
             one",
            path.display()
        ))
    })
}

/// The key by which signatures are checked.
///
/// # Errors
/// No readable file, or one without a public key of Ed25519 in PEM.
pub fn public(path: &Path) -> Result<VerifyingKey, Error> {
    let pem = input::read_text(path)?;
    VerifyingKey::from_public_key_pem(&pem).map_err(|_| {
        let what = match pem.contains("PRIVATE KEY") {
            true => "it is a private key; give the public one",
            false => "it is no public key of Ed25519 in PEM",
        };
        Error::Usage(format!(
            "{}: {what}: `openssl pkey -in secret.pem -pubout -out public.pem` makes it of the private key",
            path.display()
        ))
    })
}

/// Signs an artifact: writes the file beside it, and returns its path.
///
/// # Errors
/// The file cannot be written.
pub fn write(artifact: &Path, root: &Hash, key: &SigningKey) -> Result<PathBuf, Error> {
    let path = path_of(artifact);
    let signature = key.sign(text(root).as_bytes());
    let file = format!(
        "{}key {}\nsignature {}\n",
        text(root),
        hex(key.verifying_key().as_bytes()),
        hex(&signature.to_bytes())
    );
    output::write_text(&path, &file)?;
    Ok(path)
}

/// Checks that an artifact's root was signed with a key. (Its bytes are another matter: [`check`].)
///
/// # Errors
/// No signature, or one of another artifact, by another key, or a wrong one.
pub fn check_root(artifact: &Path, root: &Hash, key: &VerifyingKey) -> Result<(), Error> {
    let path = path_of(artifact);
    let failed = |what: &str| Error::Failed(format!("{}: {what}", path.display()));
    if !path.exists() {
        return Err(failed(&format!(
            "there is no such file, so {} is not signed: ask whoever made it for the signature, or leave out --key",
            artifact.display()
        )));
    }
    let file = input::read_text(&path)?;
    let [label, of, by, signature] = file.lines().collect::<Vec<_>>()[..] else {
        return Err(failed("it is no signature by llmcc"));
    };
    let signature = signature.strip_prefix("signature ").and_then(bytes::<{ Signature::BYTE_SIZE }>);
    let (of, by) = (bytes::<32>(of), by.strip_prefix("key ").and_then(bytes::<32>));
    let (Some(of), Some(by), Some(signature)) = (of, by, signature.filter(|_| label == LABEL)) else {
        return Err(failed("it is no signature by llmcc"));
    };
    if of != *root {
        return Err(failed(&format!(
            "it is the signature of another artifact, with the root {}: {} has {}",
            hex(&of),
            artifact.display(),
            hex(root)
        )));
    }
    if by != *key.as_bytes() {
        return Err(failed(&format!("it was signed with another key, {}", hex(&by))));
    }
    let right = key.verify_strict(text(root).as_bytes(), &Signature::from_bytes(&signature));
    right.map_err(|_| failed("the signature is wrong: it was not made with this key"))
}

/// Checks that every byte of an artifact is as it was signed with a key. Nothing of it is run.
///
/// # Errors
/// As [`check_root`]; bytes that have changed since; weights that the signature does not cover.
pub fn check(artifact: &Path, key: &Path) -> Result<(), Error> {
    let key = public(key)?;
    let sealed = Sealed::open(artifact)?;
    check_root(artifact, &sealed.root(), &key)?;
    match damage(artifact, &sealed)? {
        None => Ok(()),
        Some(Damage { from, to, .. }) => Err(Error::Failed(format!(
            "{}: bytes {from} to {to} were changed after it was signed; nothing of it was run",
            artifact.display()
        ))),
    }
}

/// The first bytes of an artifact that are not as their hashes say.
///
/// # Errors
/// As [`check_covered`]; a file that cannot be read, or that belongs to another artifact.
pub fn damage(artifact: &Path, sealed: &Sealed) -> Result<Option<Damage>, Error> {
    check_covered(artifact, sealed)?;
    sealed.check_side_file()?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(sealed.check(|_| true, threads)?.first().copied())
}

/// Refuses artifacts whose weights are not hashed.
///
/// # Errors
/// [`Error::Failed`].
pub fn check_covered(artifact: &Path, sealed: &Sealed) -> Result<(), Error> {
    match sealed.weights_unhashed() {
        false => Ok(()),
        true => Err(Error::Failed(format!(
            "{}: it was compiled with --weights absent, so no signature covers its weights",
            artifact.display()
        ))),
    }
}

/// Bytes of hexadecimal digits.
fn bytes<const N: usize>(digits: &str) -> Option<[u8; N]> {
    let digits = digits.as_bytes();
    let digit = |d: u8| char::from(d).to_digit(16).map(|d| d as u8);
    let pair = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    let all: Option<Vec<u8>> = digits.chunks_exact(2).map(pair).collect();
    all.filter(|_| digits.len() == 2 * N)?.try_into().ok()
}

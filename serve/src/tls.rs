//! TLS: the server's certificate and its private key, which may be replaced while it runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{DEFAULT_VERSIONS, ServerConfig};

/// Files of a server's identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// Its certificate, and those that vouch for it, in PEM.
    pub cert: PathBuf,
    /// Its private key, in PEM.
    pub key: PathBuf,
}

/// The identity of a server.
pub struct Tls {
    files: TlsFiles,
    current: RwLock<TlsAcceptor>,
}

impl Tls {
    /// Reads the files.
    ///
    /// # Errors
    /// Files that cannot be read, have no certificate or key, or do not belong together.
    pub fn new(files: TlsFiles) -> Result<Tls, String> {
        let current = RwLock::new(read(&files)?);
        Ok(Tls { files, current })
    }

    /// Reads the files again: connections from now on have the identity that they say.
    ///
    /// # Errors
    /// As [`Tls::new`]; the identity stays as it is then.
    pub(crate) fn reload(&self) -> Result<(), String> {
        let new = read(&self.files)?;
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// For the next connection.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        self.current.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn read(files: &TlsFiles) -> Result<TlsAcceptor, String> {
    let of = |path: &Path, e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
    let certificates = CertificateDer::pem_file_iter(&files.cert).map_err(|e| of(&files.cert, &e))?;
    let certificates: Vec<CertificateDer> = certificates.collect::<Result<_, _>>().map_err(|e| of(&files.cert, &e))?;
    if certificates.is_empty() {
        return Err(of(&files.cert, &"there is no certificate in PEM"));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|e| of(&files.key, &e))?;
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(DEFAULT_VERSIONS)
        .map_err(|e| e.to_string())?
        .with_no_client_auth()
        .with_single_cert(certificates, key);
    let mut config = config.map_err(|e| format!("{} and {}: {e}", files.cert.display(), files.key.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsAcceptor::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn broken_files_change_nothing() {
        let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls");
        let folder = std::env::temp_dir().join(format!("llmcc-tls-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let copy = |name: &str| {
            fs::copy(own.join(name), folder.join(name)).unwrap();
            folder.join(name)
        };
        let files = TlsFiles { cert: copy("cert.pem"), key: copy("key.pem") };
        let tls = Tls::new(files.clone()).unwrap();
        let before = tls.acceptor();
        assert!(tls.reload().is_ok() && !Arc::ptr_eq(before.config(), tls.acceptor().config()));
        let now = tls.acceptor();
        fs::write(&files.key, "no key").unwrap();
        assert!(tls.reload().is_err() && Arc::ptr_eq(now.config(), tls.acceptor().config()));
        fs::remove_dir_all(&folder).unwrap();
    }
}

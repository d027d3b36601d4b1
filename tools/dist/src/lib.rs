//! Everything around the program that a package of llmcc holds: manual pages and completions from the
//! definition of the command line, notices of third parties and a bill of materials from Cargo's
//! graph, and the checks that a binary runs on the platform that it is for and names no folder of its
//! builder.

pub mod bionic;
pub mod closure;
pub mod licence;
pub mod notices;
pub mod pages;
pub mod paths;
pub mod platform;
pub mod sbom;

/// An error in words.
pub type Failure = Box<dyn std::error::Error>;

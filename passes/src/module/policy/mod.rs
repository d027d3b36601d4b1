//! Policies: which tokens of a sequence a cache keeps. A table, with a file for each.
//!
//! A policy changes the module that the front end lifts: states get another lifetime, and attention reads what is left.
//! So the runtime, the cost model and the kernels need not know it, a sequence takes as many bytes as the states say,
//! and what a token sees depends on its position alone, however steps were cut.

mod caches;
mod caote;
mod given;
mod gkv;
mod h2o;
mod heads;
mod kept;
mod lazy;
mod model;
mod quest;
mod rebuild;
mod scissorhands;
mod scored;
mod shared;
mod sinks;
mod tova;
mod variants;
mod work;

pub use given::{Given, Policy};
use llmcc_ir::graph::Module;
use model::Model;
pub use model::{Applied, lengthen};

/// All policies.
pub const POLICIES: &[Policy] = &[
    sinks::SINKS,
    heads::HEADS,
    shared::SHARED,
    h2o::H2O,
    tova::TOVA,
    scissorhands::SCISSORHANDS,
    caote::CAOTE,
    gkv::GKV,
    lazy::LAZY,
    quest::QUEST,
];

/// Reads the text of an option, as in `sinks:first=4,window=1020`.
///
/// # Errors
/// Says which part is not as expected, and lists what may stand there.
pub fn parse(text: &str) -> Result<Given, String> {
    Given::read(text, POLICIES)
}

/// Lets a module's caches keep what the policies say, each in layers of its own.
///
/// # Errors
/// A message where a setting is out of range, a layer has two policies, or no cache can be changed so.
pub fn apply(module: &mut Module, policies: &[Given]) -> Result<Vec<Applied>, String> {
    let mut model = Model::of(module);
    let each =
        |given: &Given| (given.policy.apply)(&mut model, given).map_err(|why| format!("{}: {why}", given.policy.name));
    policies.iter().map(each).collect()
}

#[cfg(test)]
mod tests {
    use super::model::Layers;
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn options_say_what_is_wrong() {
        let wrong = |text: &str| parse(text).err().unwrap_or_else(|| panic!("{text} was read"));
        assert!(
            wrong("h3o").contains("use sinks, heads, shared, h2o, tova, scissorhands, caote, gkv, lazy, quest"),
            "{}",
            wrong("h3o")
        );
        assert!(wrong("sinks").contains("needs `first`"));
        assert!(wrong("sinks:first=4").contains("needs `window`"));
        assert!(wrong("sinks:first=4,width=9").contains("no setting `width`"));
        assert!(wrong("sinks:first=4,first=9").contains("twice"));
        assert!(wrong("sinks:first").contains("is no setting"));
        assert!(wrong("sinks:first=4,window=9,layers=3-1").contains("no list of layers"));
        let read = parse("sinks:window=9,first=4,layers=0-2+5").unwrap();
        assert_eq!(read.to_string(), "sinks:first=4,layers=0-2+5,window=9");
        assert_eq!(read.layers().unwrap(), Layers(Some(BTreeSet::from([0, 1, 2, 5]))));
        let zero = parse("sinks:first=0,window=9").unwrap();
        assert!(zero.count("first", 9).unwrap_err().contains("1 to 9"));
    }
}

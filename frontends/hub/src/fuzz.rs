//! Fuzz targets: arbitrary bytes in, no panic, hang or exhausted memory out.

use crate::choose::{Wishes, choose, why};
use crate::gguf;
use crate::listing::{Listing, shards};
use crate::names;
use crate::reference::{Part, Reference};

/// A model's name as people write it. As it is shown, it is read as the same one again.
///
/// # Panics
/// The reader has a bug.
pub fn reference(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(read) = Reference::parse(text) else { return };
    assert!(names::is_id(&read.id) && names::is_revision(read.revision()), "{read:?}");
    assert_eq!(Reference::parse(&format!("hf:{read}")).as_ref(), Ok(&read));
}

/// The hub's list of a model's files, or an index of shards. Files that are chosen are in the list, and stay in their
/// folder.
///
/// # Panics
/// The reader has a bug.
pub fn listing(data: &[u8]) {
    if let Ok(names) = shards(data) {
        assert!(names.iter().all(|name| names::is_file(name)), "{names:?}");
    }
    let Ok(list) = Listing::read(data) else { return };
    assert!(names::is_commit(&list.commit) && list.files.iter().all(|file| names::is_file(&file.name)), "{list:?}");
    let all: Vec<&str> = list.files.iter().map(|file| file.name.as_str()).collect();
    let parts = [Part::Model, Part::Format("Q4_K_M".into())].into_iter();
    let parts = parts.chain(all.first().map(|name| Part::File((*name).to_owned())));
    for (part, weights) in parts.flat_map(|part| [(part.clone(), true), (part, false)]) {
        let wishes = Wishes { weights, ..Wishes::default() };
        if let Ok(choice) = choose(&list.files, &part, &wishes) {
            let mut chosen = choice.names.iter().chain(&choice.index).chain(&choice.main);
            assert!(chosen.all(|name| all.contains(&name.as_str())), "{choice:?}");
        }
        assert!(all.iter().all(|name| !why(name, &wishes).said().is_empty()), "a file is left out without a word");
    }
    for name in &all {
        if let Ok(parts) = gguf::parts(&all, name) {
            assert!(parts.iter().all(|part| all.contains(part)), "{parts:?}");
        }
    }
}
